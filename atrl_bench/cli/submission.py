"""`--on slurm`: the command itself runs in a job of Slurm, over the Ray that is started there."""

from __future__ import annotations

import sys

from atrl_bench.cli.options import Options
from atrl_bench.cli.printing import show_text
from atrl_bench.engines.slurm import SlurmAllocation, submit


def is_left_to_slurm(options: Options) -> bool:
    """Write the script that gives this command on Slurm's nodes and submit it, where `--on` says so."""
    if not isinstance(options.where, SlurmAllocation):
        return False
    script = options.where.write_script(_arguments())
    number = submit(script)
    said = f"Wrote {script}. Submit it in this folder, where Slurm's sbatch is: sbatch {script}"
    if number is not None:
        output = script.with_name(f"{number}.out")
        said = f"Submitted {script}, job {number}. It prints to {output}; how far it is: atrl-bench status"
    show_text({"script": str(script), "job": number}, said, options.as_json)
    return True


def _arguments() -> list[str]:
    """Return this command's arguments without what says where it runs and how it answers."""
    arguments = [each for each in sys.argv[1:] if each not in ("--yes", "--json") and not each.startswith("--on=")]
    if "--on" in arguments:
        at = arguments.index("--on")
        del arguments[at : at + 2]
    return arguments

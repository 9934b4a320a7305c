"""How work begins: what costs hours is started by somebody who has seen its price, here or in a job of Slurm."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from atrl_bench.cli.printing import show
from atrl_bench.errors import NotConfirmedError

if TYPE_CHECKING:
    from atrl_bench.cli.options import Options
    from atrl_bench.experiments.price import Price


def starts_here(price: Price, options: Options, *, require_fit: Callable[[], None] | None = None) -> bool:
    """Whether the work starts in this process now: not by `--dry-run`, which shows its price, nor by `--on slurm`."""
    if options.dry_run:
        show(price, options.as_json)
        return False
    if require_fit is not None:
        require_fit()
    require_consent(price, options, is_generated=price.run_dir.profile.generated_data)
    return not is_left_to_slurm(options)


def require_consent(price: Price, options: Options, *, is_generated: bool) -> None:
    """Stop where a command may not start or its downloads have no room; the first process of a launch alone asks."""
    if not price.must_ask(is_generated=is_generated) or int(os.environ.get("RANK", "0")) > 0:
        return
    from atrl_bench.experiments.fetch import require_space

    if not options.as_json:
        show(replace(price, next=""), as_json=False)
    require_space(price.download_gb)
    if options.yes:
        return
    if options.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NotConfirmedError(
            "This was not started: somebody has to see its price first, and there is no terminal to ask at.",
            next_step=f"atrl-bench {shlex.join([*sys.argv[1:], '--yes'])}",
        )
    if not typer.confirm("Start?"):
        typer.echo("Nothing was started.")
        raise typer.Exit(1)


def is_left_to_slurm(options: Options) -> bool:
    from atrl_bench.engines.slurm import SlurmAllocation, submit

    if not isinstance(where := options.where, SlurmAllocation):
        return False
    script = where.write_script(_arguments())
    number = submit(script)
    text = f"Wrote {script}. Submit it in this folder, where Slurm's sbatch is: sbatch {script}"
    if number is not None:
        output = script.with_name(f"{number}.out")
        text = f"Submitted {script}, job {number}. It prints to {output}; how far it is: atrl-bench status"
    show({"script": script, "job": number}, options.as_json, text=text)
    return True


def _arguments() -> list[str]:
    arguments = [word for word in sys.argv[1:] if word not in ("--yes", "--json") and not word.startswith("--on=")]
    if "--on" in arguments:
        at = arguments.index("--on")
        del arguments[at : at + 2]
    return arguments

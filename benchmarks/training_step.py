"""GRPO with token credit against plain GRPO: seconds of a rollout and its updates, and where they go.

    python benchmarks/training_step.py [--recipe grpo] [--credit atrl] [--rollouts 7] [--threads 1] [--shape 7b]
    python benchmarks/training_step.py --peer ../main [--rounds 5]

Prints the median over rollouts of each one's ratio (target: at most 1.05) and each phase's share, as
`atrl-bench overhead --profile mini` does.
With `--peer`, another checkout of this repository, both versions take turns, each round in processes of their own, and
the ratios of their seconds are printed: for plain GRPO and with the credit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from atrl_bench.analysis.overhead import overhead
from atrl_bench.cli.printing import text_of
from atrl_bench.profiles import load_profile

TARGET = 1.05
HERE = Path(__file__).resolve().parents[1]
MEASURE = """
import json, sys
from atrl_bench.analysis.overhead import overhead
from atrl_bench.profiles import load_profile
record = overhead(load_profile("mini"), **json.loads(sys.argv[1]))
print(json.dumps(record if isinstance(record, dict) else record.document()))  # an earlier version returns a dict
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="grpo")
    parser.add_argument("--credit", default="atrl")
    parser.add_argument("--rollouts", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape")
    parser.add_argument("--peer", type=Path, help="another checkout of this repository")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each checkout")
    options = vars(parser.parse_args())
    peer, rounds = options.pop("peer"), options.pop("rounds")
    if peer is not None:
        compare(peer, rounds, options)
        return
    print(text_of(overhead(load_profile("mini"), **options)))
    print(f"Target of the ratio: at most {TARGET}.")


def compare(peer: Path, rounds: int, options: dict[str, object]) -> None:
    """Print how many times the seconds of this checkout the peer takes."""
    pairs = [(measured(peer, options), measured(HERE, options)) for _ in range(rounds)]
    for name, field in (("uniform", "seconds_plain"), (str(options["credit"]), "seconds_credited")):
        before, after = ([record[field] for record in records] for records in zip(*pairs, strict=True))
        ratios = sorted(old / new for old, new in zip(before, after, strict=True))
        print(
            f"{name}: {statistics.median(before):.3f} s before, {statistics.median(after):.3f} s after, "
            f"{statistics.median(ratios):.2f}x as fast ({ratios[0]:.2f} to {ratios[-1]:.2f} in {rounds} rounds)"
        )


def measured(checkout: Path, options: dict[str, object]) -> dict[str, float]:
    """Return what `overhead` measures with the code of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve()), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", MEASURE, json.dumps(options)]
    done = subprocess.run(command, env=environment, cwd=checkout, check=True, capture_output=True, text=True)
    record: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    main()

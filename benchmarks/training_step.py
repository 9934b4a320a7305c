"""GRPO with token credit against plain GRPO: seconds of a rollout and its updates, and where they go.

    python benchmarks/training_step.py [--recipe grpo] [--credit atrl] [--rollouts 7] [--threads 1] [--shape 7b]

Prints a ratio of medians (target: at most 1.05) and each phase's share, as `atrl-bench overhead --profile mini` does.
"""

from __future__ import annotations

import argparse

from atrl_bench.analysis.overhead import overhead, overhead_text
from atrl_bench.analysis.random_model import SHAPES
from atrl_bench.profiles import load_profile

TARGET = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="grpo")
    parser.add_argument("--credit", default="atrl")
    parser.add_argument("--rollouts", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", choices=SHAPES)
    options = parser.parse_args()
    print(overhead_text(overhead(load_profile("mini"), **vars(options))))
    print(f"Target of the ratio: at most {TARGET}.")


if __name__ == "__main__":
    main()

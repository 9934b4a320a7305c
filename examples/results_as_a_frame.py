"""Everything that a run folder measured, as a pandas DataFrame.

atrl-bench run-table main_7b                       # makes runs/mini, in ten minutes
python examples/results_as_a_frame.py runs/mini
"""

import sys

import atrl_bench


def main() -> None:
    scores = atrl_bench.frame(sys.argv[1] if len(sys.argv) > 1 else "runs/mini")
    print(scores.pivot_table("value", index="label", columns="task", aggfunc="mean").round(1).to_string())
    trained = scores.dropna(subset=["credit"])
    print("\nMean over tasks and seeds, by credit rule:")
    print(trained.groupby(["recipe", "credit"])["value"].mean().round(1).to_string())


if __name__ == "__main__":
    main()

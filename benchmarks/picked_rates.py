"""Whether intervals and stated power hold where rates are picked: two rows, few seeds, one training in five breaking.

Each row has a response to log rate, a parabola or a rise of two points an octave and a fall of eight; each seed and
each training its luck. From the best rate on one training in five breaks and ends near nothing. What rates are picked
by is a noisy relative of the score. Picking, intervals and the detectable difference are the package's own.

An interval is held against two truths: what trainings come to at the rates that were picked, and at the best ones. Of
cross-fitting, which leaves out a rate at which a training broke, these are trainings that do not break. The peers pick
as is usual, the rate with the highest mean over the first two seeds or all; of theirs, breaking is a part.

    python benchmarks/picked_rates.py [--tables 4000]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atrl_bench.experiments.rates import PICKED_BY, broke, cross_fitted
from atrl_bench.results.statistics.means import seed_spread
from atrl_bench.results.store import Run

SEEDS = 4, 5, 8
RATES = tuple(2.0**octave for octave in range(-1, 5))
START, PEAK = 0.33, 0.6  # accuracies
BROKEN, AFTER_BREAKING = 0.2, (0.0, 0.15)
SD_SEED, SD_RUN, SD_PICKED = 0.03, 0.025, 0.03  # of a seed at every rate, of one training, of what is picked by

Runs = Mapping[float, Sequence[Run]]
Pick = Callable[[Runs, Sequence[int]], Mapping[int, float]]


@dataclass(frozen=True)
class Row:
    """A row's trainings, what they score, and what rates are worth: without breaking, and with it."""

    runs: Runs
    score_RS: NDArray[np.float64]
    worth_R: NDArray[np.float64]
    expected_R: NDArray[np.float64]

    def is_stable(self) -> NDArray[np.bool_]:
        return np.array([not any(map(broke, self.runs[rate])) for rate in RATES])


@dataclass(frozen=True)
class Judged:
    """A row's seeds at the rates that were picked, and the two truths about it."""

    score_S: NDArray[np.float64]
    at_picked: float
    at_best: float


def made_up_row(num_seeds: int, rng: np.random.Generator) -> Row:
    octave_R, best = np.log2(RATES), rng.uniform(0, 2.5)
    if rng.random() < 0.5:
        worth_R = PEAK - rng.uniform(0.005, 0.04) * (octave_R - best) ** 2
    else:
        worth_R = PEAK - np.where(octave_R < best, 0.02, 0.08) * abs(octave_R - best)
    luck_RS = rng.normal(0, SD_SEED, num_seeds) + rng.normal(0, SD_RUN, (len(RATES), num_seeds))
    chance_R = np.where(octave_R >= best, BROKEN, 0.0)
    is_broken_RS = rng.random(luck_RS.shape) < chance_R[:, None]
    score_RS = np.where(is_broken_RS, rng.uniform(*AFTER_BREAKING, luck_RS.shape), worth_R[:, None] + luck_RS)
    seen_RS = np.where(is_broken_RS, score_RS, worth_R[:, None] + luck_RS / 2 + rng.normal(0, SD_PICKED, luck_RS.shape))
    runs = {rate: [_run(seen) for seen in seen_S] for rate, seen_S in zip(RATES, seen_RS.tolist(), strict=True)}
    return Row(runs, score_RS, worth_R, (1 - chance_R) * worth_R + chance_R * float(np.mean(AFTER_BREAKING)))


def _run(seen: float) -> Run:
    summary = {PICKED_BY: seen, "first accuracy": START, "last accuracy": seen}
    return Run("", {}, "done", "", "", "", None, summary, 0.0, 0.0)


def highest_mean(num_picking: int | None) -> Pick:
    """The usual way: one rate for all seeds, with the highest mean of those that pick."""

    def pick(runs: Runs, seeds: Sequence[int]) -> Mapping[int, float]:
        means = {rate: np.mean([run.summary[PICKED_BY] for run in runs[rate][:num_picking]]) for rate in runs}
        return dict.fromkeys(seeds, max(means, key=lambda rate: means[rate]))

    return pick


WAYS: dict[str, Pick] = {"cross-fitted": cross_fitted, "by two seeds": highest_mean(2), "by all": highest_mean(None)}


def judged(row: Row, pick: Pick) -> Judged:
    num_seeds = row.score_RS.shape[1]
    at_S = np.array([RATES.index(rate) for _, rate in sorted(pick(row.runs, range(num_seeds)).items())])
    truth_R = row.worth_R if pick is cross_fitted else row.expected_R
    may_be_picked_R = row.is_stable() if pick is cross_fitted else np.ones(len(RATES), dtype=bool)
    return Judged(row.score_RS[at_S, np.arange(num_seeds)], truth_R[at_S].mean(), truth_R[may_be_picked_R].max())


@dataclass(frozen=True)
class Held:
    """How often an interval held each truth, and the power at the median of what was said to be detectable."""

    at_picked: float
    at_best: float
    power: float


def measured(pick: Pick, num_seeds: int, num_tables: int) -> Held:
    rng, lines = np.random.default_rng(0), []
    for _ in range(num_tables):
        rows = [made_up_row(num_seeds, rng) for _ in range(2)]
        if all(row.is_stable().any() for row in rows):  # else the page says that every rate broke
            ours, theirs = (judged(row, pick) for row in rows)
            spread = seed_spread(ours.score_S - theirs.score_S)
            truths = ours.at_picked - theirs.at_picked, ours.at_best - theirs.at_best
            estimate = spread.estimate()
            assert estimate is not None
            lines.append((*(spread.mean - truth for truth in truths), estimate.half_width(), estimate.detectable()))
    error_N, from_best_N, half_N, said_N = np.array(lines).T
    return Held(
        at_picked=float((abs(error_N) <= half_N).mean()),
        at_best=float((abs(from_best_N) <= half_N).mean()),
        power=float((np.median(said_N) + error_N > half_N).mean()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=4000, help="how many tables are made up")
    num_tables = parser.parse_args().tables
    print("seeds, rates picked: interval holds at the rates picked, at the best; power where 0.8 is said")
    for num_seeds in SEEDS:
        for name, pick in WAYS.items():
            held = measured(pick, num_seeds, num_tables)
            print(f"{num_seeds}, {name}: {held.at_picked:.3f}, {held.at_best:.3f}; {held.power:.2f}")


if __name__ == "__main__":
    main()

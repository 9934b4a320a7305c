"""Whether credit teaches faster where the truth is known: drawn bases, tuned rates, one endpoint.

Stated on 2026-11-26, before the first of these trainings.

Bases. Three of each world of those that `card_hits.py` draws: seeds 100, 102, 104 err in reading, 101, 103, 105 in what
follows. Four rules, the two oracles each at three values of `soft_share`, and the four that keep 15 % of the tokens.
Training. `grpo_small_batch` at 1/2, 1, 2, 4, 8 and 16 times 1e-4, seeds 0 to 7, as `headroom` trains.
Picking. Each seed is judged at the rate, and an oracle at the share, that the base's other seeds pick
(`experiments/rates.py`); a rate at which a training broke is out, and is reported.
Endpoint. The area under the held-out greedy accuracy: the mean over the four checks of a run, each of 24 training
problems that it does not train on, in points. A difference is taken seed by seed, over a world's bases; t over seeds.
Hypotheses, by Benjamini and Hochberg at 5 %: (1) connectivity above uniform credit in `perception`, (2) below it in
`reasoning`; (3), (4) the world's own oracle above uniform credit; (5), (6) AT-RL differs from its weights in random
order; (7), (8) the 15 % that look least below 15 % at random; and not below the last 15 % or those of lowest entropy,
for else (7) and (8) are not about looking.

The default trains two rules on one base of each world at three rates and three seeds: it sees whether the machinery
works, and no difference below ten points or so. All of it is 4,032 trainings, some 25 core-hours.
The answers sampled last are reported too: since 288 trainings had run, and as no hypothesis.
Order, stated after seven trainings: uniform credit and connectivity first, on all bases, seed after seed; then the
oracles (before the first of them: a world's own, four seeds), the controls, AT-RL with its random order. What has not
run is said as such, and no row is left out. Before the first of the controls: at the recipe's rate alone, three seeds,
beside uniform credit, in a file of their own, where no hypothesis is tested.

    python benchmarks/worlds_experiment.py --out FOLDER [--full] [--bases 100,101] [--seeds 0,1]
        [--rules uniform,atrl] [--rates 1,2] [--csv FILE]
    python benchmarks/worlds_experiment.py --read SHARD.csv [SHARD.csv ...]   # what shards come to; --csv joins them
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from card_hits import RECIPE, at_base, drawn  # beside this file

from atrl_bench.engines.devices import HERE
from atrl_bench.experiments.jobs import TrainingJob, train
from atrl_bench.experiments.plan import training_spec
from atrl_bench.experiments.rates import PICKED_BY, RunsByRate, at_rate, cross_fitted, with_checks
from atrl_bench.results.statistics.means import Estimate, benjamini_hochberg, seed_spread
from atrl_bench.results.store import Run
from atrl_bench.training.recipe import load_recipe

ENDPOINT = "mean greedy"
BASES = {"perception": (100, 102, 104), "reasoning": (101, 103, 105)}
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # times the recipe's own, 2e-4
SEEDS = tuple(range(8))
ORACLES = {f"oracle_{part}@{share:g}": share for part in BASES for share in (0.0, 0.5, 0.75)}
KEPT = ("bottom_truncation", "random_truncation", "latest_truncation", "entropy_truncation")
RULES = ("uniform", "raw_attention", "atrl", "random", *KEPT, *ORACLES)
PAIRS = (
    ("raw_attention", "uniform"),
    ("oracle", "uniform"),
    ("atrl", "random"),
    ("bottom_truncation", "random_truncation"),
    ("bottom_truncation", "latest_truncation"),
    ("bottom_truncation", "entropy_truncation"),
)
HYPOTHESES = PAIRS[:4]
FALSE_DISCOVERIES = 0.05


@dataclass(frozen=True)
class Part:
    """How much is trained; bases and seeds may be named, which makes a shard."""

    bases: Sequence[int]
    rules: Sequence[str]
    rates: Sequence[float]
    seeds: Sequence[int]


FULL = Part([*BASES["perception"], *BASES["reasoning"]], RULES, RATES, SEEDS)
NUM_TRAININGS = len(FULL.bases) * len(FULL.rules) * len(FULL.rates) * len(FULL.seeds)
SMALL = Part([100, 101], RULES[:2], RATES[1:4], SEEDS[:3])


@dataclass(frozen=True)
class Training:
    """What is kept of one training; accuracies are shares."""

    base: int
    rule: str
    rate: float
    seed: int
    late: float
    first: float
    last: float
    area: float

    def run(self) -> Run:
        summary = {PICKED_BY: self.late, "first accuracy": self.first, "last accuracy": self.last}
        return Run("", {}, "done", "", "", "", None, summary, 0.0, 0.0)


def trained(base: int, rule: str, rate: float, seed: int, out: Path) -> Training:
    """The training of one cell, unless the run folder has it."""
    run_dir, (world, _) = at_base(base, out), drawn(base)
    name, at, share = rule.partition("@")
    credit = {"rule": name, "settings": {"soft_share": float(share)} if at else {}}
    recipe = load_recipe(RECIPE, data=world.data, credit=credit)
    recipe = with_checks(at_rate(recipe, run_dir.profile, rate), run_dir.profile)
    spec = training_spec(recipe, run_dir, seed)
    with run_dir.open_store() as store:
        key = store.add_run(spec)
        train(TrainingJob(run_dir=run_dir, name=f"{base} {rule}", recipe=recipe, spec=spec, seed=seed), HERE, store)
        run = store.run(key)
    assert run is not None
    summary = [round(run.summary[name], 4) for name in (PICKED_BY, "first accuracy", "last accuracy", ENDPOINT)]
    return Training(base, rule, rate, seed, *summary)


Areas = dict[int, float]  # by seed


def judged(trainings: Sequence[Training], base: int, rule: str, of: str = "area") -> tuple[Areas, Areas]:
    """The area, or another field, of each seed at the rate that the others pick, and the late accuracy of those.

    Only seeds count that were trained at each rate that any was.
    """
    own = sorted((one for one in trainings if (one.base, one.rule) == (base, rule)), key=lambda one: one.seed)
    times, rates = Counter(one.seed for one in own), {one.rate for one in own}
    own = [one for one in own if times[one.seed] == len(rates)]
    seeds = sorted({one.seed for one in own})
    runs: RunsByRate = {rate: [one.run() for one in own if one.rate == rate] for rate in rates}
    at = {(one.rate, one.seed): one for one in own}
    rates = {seed: rate for seed, rate in cross_fitted(runs, seeds).items() if rate == rate} if runs else {}
    areas = {seed: float(getattr(at[rate, seed], of)) for seed, rate in rates.items()}
    late = {
        seed: float(np.mean([at[rate, other].late for other in seeds if other != seed or len(seeds) == 1]))
        for seed, rate in rates.items()
    }
    return areas, late


def areas_of(trainings: Sequence[Training], base: int, rule: str, of: str = "area") -> Areas:
    """The area, or another field, of each seed; of an oracle at the share that the other seeds pick."""
    if rule != "oracle":
        return judged(trainings, base, rule, of)[0]
    world = next(world for world, bases in BASES.items() if base in bases)
    shares = [judged(trainings, base, name, of) for name in ORACLES if name.startswith(f"oracle_{world}@")]
    shares = [(areas, late) for areas, late in shares if areas]
    seeds = set.intersection(*(set(areas) for areas, _ in shares)) if shares else set()
    return {seed: max(shares, key=lambda share: share[1][seed])[0][seed] for seed in seeds}


class Difference(NamedTuple):
    """Of two rules in one world, in points: `estimate` is None where fewer than two seeds have both."""

    world: str
    rule: str
    other: str
    num_bases: int = 0
    estimate: Estimate | None = None
    q_value: float | None = None  # of a hypothesis

    def __str__(self) -> str:
        pair = f"{self.world}, {self.rule} - {self.other}:"
        if self.estimate is None:
            return f"{pair} not run."
        seen = f"{self.estimate.detectable():.1f} could be detected"
        bases = f"{self.num_bases} of {len(BASES[self.world])} bases"
        return f"{pair} {self.points} points, {bases}, {self.estimate.num_groups} seeds; {seen}" + (
            "." if self.q_value is None else f"; q = {self.q_value:.3f}."
        )

    @property
    def points(self) -> str:
        assert self.estimate is not None
        return f"{self.estimate.mean:+.1f} ± {self.estimate.half_width():.1f}"

    @property
    def cell(self) -> str:
        """The points, in bold where the test of the hypothesis tells them from zero."""
        is_shown = self.q_value is not None and self.q_value < FALSE_DISCOVERIES
        return f"**{self.points}**" if is_shown else self.points


def differences(trainings: Sequence[Training], of: str = "area") -> list[Difference]:
    found = []
    for world, (rule, other) in product(BASES, PAIRS):
        pairs = [(areas_of(trainings, base, rule, of), areas_of(trainings, base, other, of)) for base in BASES[world]]
        pairs = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
        seeds = sorted(set.intersection(*(ours.keys() & theirs.keys() for ours, theirs in pairs))) if pairs else []
        if len(seeds) < 2:
            found.append(Difference(world, rule, other))
            continue
        by_seed = [100 * float(np.mean([ours[seed] - theirs[seed] for ours, theirs in pairs])) for seed in seeds]
        estimate = seed_spread(by_seed).estimate()
        found.append(Difference(world, rule, other, len(pairs), estimate))
    tested = [one for one in found if (one.rule, one.other) in HYPOTHESES and one.estimate is not None]
    q_values = iter(benjamini_hochberg([one.estimate.p_value() for one in tested if one.estimate is not None]))
    return [one._replace(q_value=next(q_values)) if one in tested else one for one in found]


def front_page(trainings: Sequence[Training]) -> str:
    """The front page's table of speed and end, of connectivity and of a rule that knows; bold is shown, by its test."""
    speed, end = ({(one.world, one.rule): one for one in differences(trainings, of)} for of in ("area", "last"))
    lines = ["| | reading: speed | at the end | reasoning: speed | at the end |", "|---|---|---|---|---|"]
    for rule, called in (("raw_attention", "connectivity"), ("oracle", "an oracle, which knows where credit belongs")):
        cells = [text for world in BASES for text in (speed[world, rule].cell, end[world, rule].points)]
        lines.append(f"| {called} | {' | '.join(cells).replace('-', '−')} |")
    return "\n".join(lines)


def write_csv(trainings: Sequence[Training], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Training)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, trainings))


def read_csv(path: Path) -> list[Training]:
    with path.open(newline="") as file:
        return [
            Training(
                int(row["base"]), row["rule"], float(row["rate"]), int(row["seed"]), *(float(row[n]) for n in NUMBERS)
            )
            for row in csv.DictReader(file)
        ]


NUMBERS = ("late", "first", "last", "area")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--out", type=Path, help="run folder, which the same command resumes")
    todo.add_argument("--read", type=Path, nargs="+", help="say what these shards come to, and train nothing")
    parser.add_argument("--full", action="store_true", help="all bases, rules, rates and seeds, or those named")
    parser.add_argument("--bases", help="numbers of bases, with commas")
    parser.add_argument("--seeds", help="training seeds, with commas")
    parser.add_argument("--rules", help="credit rules, with commas")
    parser.add_argument("--rates", help="multiples of the recipe's own, with commas")
    parser.add_argument("--csv", type=Path, help="keep the figures here, and train none that it has")
    arguments = parser.parse_args()
    if arguments.read:
        trainings = [one for path in arguments.read for one in read_csv(path)]
        if arguments.csv is not None:
            write_csv(sorted(trainings, key=lambda one: (one.seed, one.base, one.rule, one.rate)), arguments.csv)
        ends = (one._replace(q_value=None) for one in differences(trainings, "last") if one.estimate is not None)
        print(f"{len(trainings):,} of {NUM_TRAININGS:,} trainings.", *differences(trainings), sep="\n")
        print("Of the answers sampled last:", *ends, sep="\n")
        return
    part = FULL if arguments.full else SMALL
    bases = [int(base) for base in arguments.bases.split(",")] if arguments.bases else part.bases
    seeds = [int(seed) for seed in arguments.seeds.split(",")] if arguments.seeds else part.seeds
    rules = arguments.rules.split(",") if arguments.rules else part.rules
    rates = [float(rate) for rate in arguments.rates.split(",")] if arguments.rates else part.rates
    trainings = read_csv(arguments.csv) if arguments.csv is not None and arguments.csv.is_file() else []
    known = {(one.seed, one.base, one.rule, one.rate) for one in trainings}
    for seed, base, rule, rate in product(seeds, bases, rules, rates):
        if (seed, base, rule, rate) in known:
            continue
        trainings.append(trained(base, rule, rate, seed, arguments.out))
        print(trainings[-1], flush=True)
        if arguments.csv is not None:
            write_csv(trainings, arguments.csv)
    print(*differences(trainings), sep="\n")


if __name__ == "__main__":
    main()

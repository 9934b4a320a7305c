"""How often a credit card is right: bases that were drawn and not chosen, their cards, and then what training shows.

Stated on 2026-11-25, before any of these bases was made.

Bases. Seeds 100 to 107, all reported. Even ones err in reading, odd ones in reasoning. Each seed draws the shipped base
that it starts from (`mini-reasoning` or `mini-reasoning-2`, which read well), four digits of ten that it is taught to
get wrong, and in which share of the places (0.3, 0.5 or 0.7). The world's last stage, as it stands, teaches that.
The card. 96 prompts, as `signal` takes by itself, connectivity against uniform credit, no step tried.
Training. `grpo_small_batch`, as `headroom` trains: 32 rollouts at 2e-4, once with connectivity and once without credit,
seeds 0, 1, 2, ... in turn over all bases until the time is over; seeds that every base has count. What a training shows
is the mean accuracy of all that it sampled; of a base, the mean difference between its two rows over the seeds.
Endpoint. The hit rate: "train with connectivity" is a hit where the difference is above zero, "without credit" where it
is not; "cannot tell" is neither. Exact 95 % interval over the cards that commit themselves.
Hypotheses. (1) More than half of these cards are right. (2) Connectivity is ahead in bases that err in reading and
behind in those that err in reasoning (t interval over bases). (3) Over all bases, the factor with Adam and the
difference rank alike (Spearman). Cards that cannot tell are judged by (3) alone.
Added after the first cards, of which two committed themselves, and before any training but the first of 100 to 102
was seen: the same once more with 256 prompts. The cards of 96 stay the endpoint.

    python benchmarks/card_hits.py --out FOLDER [--seeds 4] [--bases-only]     # resumes; --csv FILE keeps the figures
    python benchmarks/card_hits.py --read docs/worlds_report/card_hits.csv     # what kept figures come to
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.experiments.train_command import train_recipe
from atrl_bench.lab.bases import rebuild_base
from atrl_bench.lab.signal.card import advice_of
from atrl_bench.lab.signal.measure import measured_signal
from atrl_bench.lab.signal.request import UNIFORM, signal_request
from atrl_bench.lab.worlds import World, WorldBase, load_world
from atrl_bench.profiles import load_profile

BASE_SEEDS = range(100, 108)
PROMPTS = (96, 256)
RULE = "raw_attention"
RULES = (UNIFORM, RULE)
RECIPE = "grpo_small_batch"
KEPT = Path(__file__).parents[1] / "docs" / "worlds_report" / "card_hits.csv"


@dataclass(frozen=True)
class Base:
    """One base: what was drawn, what its card says, and the accuracy of its trainings in percent, by seed."""

    base: str
    mistakes: str
    start_from: str
    wrong_digits: str
    wrong_fraction: float
    sha256: str
    prompts: int
    right: float
    factor: float
    low: float
    high: float
    card: str
    uniform: Sequence[float] = ()
    connectivity: Sequence[float] = ()

    @property
    def difference(self) -> float:
        return fmean(ours - theirs for ours, theirs in zip(self.connectivity, self.uniform, strict=True))

    @property
    def is_hit(self) -> bool | None:
        """Whether training shows what the card says; None where it says nothing."""
        return {"this rule": self.difference > 0, "no credit": self.difference <= 0}.get(self.card)


def drawn(seed: int) -> tuple[World, str]:
    """The world that has the base of this seed, and no other, and the base's name."""
    rng = np.random.default_rng(seed)
    world = load_world("reasoning" if seed % 2 else "perception")
    base = WorldBase(
        eyes_seed=0,
        seed=seed,
        start_from=str(rng.choice(["mini-reasoning", "mini-reasoning-2"])),
        wrong_digits=tuple(sorted(int(digit) for digit in rng.choice(10, size=4, replace=False))),
        wrong_fraction=float(rng.choice([0.3, 0.5, 0.7])),
    )
    assert world.training is not None
    training = world.training.model_copy(update={"shared": ()})  # the base that it starts from has been through these
    return world.model_copy(update={"training": training, "bases": {f"drawn-{seed}": base}}), f"drawn-{seed}"


def at_base(seed: int, out: Path) -> RunDir:
    """The run folder whose model is the base of this seed, which is made where it is missing."""
    world, name = drawn(seed)
    folder = out / "bases" / name
    if not (folder / "base.json").is_file():
        rebuild_base(world, name, folder)
    profile = load_profile("mini").model_copy(update={"model": str(folder)})
    return RunDir.at(out / "runs", profile)


def digest_of(base: Path) -> str:
    return str(json.loads((base / "base.json").read_text())["sha256"])[:16]


def with_card(seed: int, prompts: int, out: Path) -> Base:
    run_dir = at_base(seed, out)
    world, name = drawn(seed)
    drawn_base = world.bases[name]
    assert drawn_base is not None
    request = signal_request(
        run_dir, run_dir.profile.model, recipe=RECIPE, data=world.data, rules=[RULE], prompts=prompts, held_out=0
    )
    signal = measured_signal(request, run_dir, quiet=True)
    worth = signal.rules[1].efficiency_scaled
    return Base(
        base=name,
        mistakes=world.mistakes,
        start_from=str(drawn_base.start_from),
        wrong_digits="".join(map(str, drawn_base.wrong_digits)),
        wrong_fraction=drawn_base.wrong_fraction,
        sha256=digest_of(Path(run_dir.profile.model)),
        prompts=prompts,
        right=round(100 * signal.success, 1),
        factor=round(worth.factor, 3),
        low=round(worth.low, 3),
        high=round(worth.high, 3),
        card=advice_of(signal).kind,
    )


def accuracy(seed: int, credit: str, training_seed: int, out: Path) -> float:
    """The mean accuracy of all that a training sampled, in percent; trained now unless it is in the run folder."""
    trained = train_recipe(
        RECIPE, {"data": "code_words", "credit": credit}, at_base(seed, out), seed=training_seed, quiet=True
    )
    assert trained is not None
    return round(100 * trained.summary["accuracy"], 2)


def measured(out: Path, all_prompts: Sequence[int], num_seeds: int) -> list[Base]:
    """All bases with their cards, and then their trainings."""
    cards = [(seed, with_card(seed, prompts, out)) for prompts in all_prompts for seed in BASE_SEEDS]
    print(*(base for _, base in cards), sep="\n", flush=True)
    shown: dict[tuple[int, str], list[float]] = {(seed, rule): [] for seed in BASE_SEEDS for rule in RULES}
    for training_seed in range(num_seeds):
        for (seed, rule), values in shown.items():
            values.append(accuracy(seed, rule, training_seed, out))
            print(f"{seed}, {rule}, seed {training_seed}: {values[-1]:.2f}", flush=True)
    return [replace(base, uniform=shown[seed, UNIFORM], connectivity=shown[seed, RULE]) for seed, base in cards]


def sentences(bases: Sequence[Base]) -> list[str]:
    """What the bases come to, as stated beforehand."""
    hits = [base.is_hit for base in bases if base.is_hit is not None]
    lines = [f"{len(hits)} of {len(bases)} cards commit themselves."]
    if hits:
        low, high = stats.binomtest(sum(hits), len(hits)).proportion_ci()
        lines.append(f"Right: {sum(hits)} of {len(hits)}, {100 * low:.0f} to {100 * high:.0f} % (exact, 95 %).")
    for mistakes in ("perception", "reasoning"):
        of_world = [base.difference for base in bases if base.mistakes == mistakes]
        half = stats.t.ppf(0.975, len(of_world) - 1) * stats.sem(of_world)
        lines.append(f"Connectivity over uniform credit in {mistakes}: {fmean(of_world):+.1f} ± {half:.1f} points.")
    rank = stats.spearmanr([base.factor for base in bases], [base.difference for base in bases])
    lines.append(f"Factor and difference rank alike: {rank.statistic:+.2f} (p = {rank.pvalue:.3f}).")
    return lines


def write_csv(bases: Sequence[Base], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Base)], lineterminator="\n")
        writer.writeheader()
        for base in bases:
            values = {
                "uniform": " ".join(map(str, base.uniform)),
                "connectivity": " ".join(map(str, base.connectivity)),
            }
            writer.writerow(asdict(base) | values)


def read_csv(path: Path) -> list[Base]:
    with path.open(newline="") as file:
        return [_base(row) for row in csv.DictReader(file)]


def _base(row: dict[str, str]) -> Base:
    numbers = {name: float(row[name]) for name in ("wrong_fraction", "right", "factor", "low", "high")}
    by_seed = {rule: tuple(map(float, row[rule].split())) for rule in ("uniform", "connectivity")}
    values: dict[str, Any] = {**row, **numbers, **by_seed, "prompts": int(row["prompts"])}
    return Base(**values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--out", type=Path, help="run folder, which the same command resumes")
    todo.add_argument("--read", type=Path, help="say what these figures come to, and measure nothing")
    parser.add_argument("--seeds", type=int, default=4, help="training seeds of each row")
    parser.add_argument(
        "--bases-only", action="store_true", help="make the bases, and say whether they are those that were kept"
    )
    parser.add_argument("--csv", type=Path, help="keep the figures here")
    arguments = parser.parse_args()
    if arguments.bases_only:
        kept = {base.base: base.sha256 for base in read_csv(KEPT)}
        for seed in BASE_SEEDS:
            base = digest_of(Path(at_base(seed, arguments.out).profile.model))
            name = f"drawn-{seed}"
            same = "as kept" if base == kept[name] else f"kept is {kept[name]}: another machine rounds otherwise"
            print(f"{name} {base}: {same}", flush=True)
        return
    bases = read_csv(arguments.read) if arguments.read else measured(arguments.out, PROMPTS, arguments.seeds)
    if arguments.csv is not None:
        write_csv(bases, arguments.csv)
    for prompts in PROMPTS:
        print(f"{prompts} prompts:", *sentences([base for base in bases if base.prompts == prompts]), sep="\n")


if __name__ == "__main__":
    main()

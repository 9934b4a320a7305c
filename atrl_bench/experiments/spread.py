"""How much a difference between two rows varies: from the store of a run folder, else from what others printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean, variance

import numpy as np
from pydantic import Field

from atrl_bench.experiments.plan import Plan, best_rates, job_cells
from atrl_bench.printable import counted
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics.means import clustered_mean
from atrl_bench.results.statistics.power import Spread
from atrl_bench.results.store import Store
from atrl_bench.settings import Settings, read_mapping


class Assumed(Settings):
    """What is assumed of a difference where nothing is stored, with its sources: standard deviations and variances."""

    benchmark_sd: float = Field(description="of a difference on one benchmark between training seeds")
    average_sd: float = Field(description="of the average")
    of_problem: float = Field(description="variance of one problem's difference that all pairs of trainings share")
    of_mixed: float = Field(description="and that each pair has alone")
    of_answer: float = Field(description="and that a new pair of answers changes")
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Spreads:
    """The spread of a comparison in each column and in their average, and what it rests on."""

    columns: dict[str, Spread]
    average: Spread
    basis: tuple[str, ...]


def assumed_spreads(plan: Plan, num_problems: Mapping[str, int]) -> Spreads:
    """What is assumed under the plan's profile."""
    kind = "generated" if plan.profile.generated_data else "printed"
    of = Assumed(**read_mapping(Path(__file__).with_suffix(".yaml"))[kind])
    of_answer = of.of_answer if plan.profile.evaluation.temperature > 0 else 0.0
    columns = {
        name: Spread(of.benchmark_sd**2, of.of_problem / count, of.of_mixed / count, of_answer / count)
        for name, count in num_problems.items()
    }
    average = Spread.of_average(list(columns.values()), of.average_sd**2)
    if len(columns) == 1:
        average = next(iter(columns.values()))
    return Spreads(columns, average, ("Assumed, for no comparison is stored here with two seeds.", *of.sources))


def with_seed_sd(spreads: Spreads, seed_sd: float | None) -> Spreads:
    """The same where the seeds vary by this much, in every column and on average, as the user says."""
    if seed_sd is None:
        return spreads
    columns = {name: replace(spread, trainings=seed_sd**2) for name, spread in spreads.columns.items()}
    basis = (f"Seeds: sd {100 * seed_sd:g} points, as given.", *spreads.basis)
    return Spreads(columns, replace(spreads.average, trainings=seed_sd**2), basis)


def stored_spreads(plan: Plan) -> Spreads | None:
    """What the stored answers of the plan's comparisons say, their mean; None before two seeds of any are done."""
    with plan.run_dir.open_store(read_only=True) as store:
        at = plan.at(best_rates(plan, store))
        found = [spreads for pair in plan.definition.credit_pairs if (spreads := _of_pair(*pair, at, store))]
    if not found:
        return None
    columns = {name: _mean([spreads.columns[name] for spreads in found]) for name in found[0].columns}
    basis = f"From what is stored here: {counted(len(found), 'comparison')}, as if every score were a plain mean."
    return Spreads(columns, _mean([spreads.average for spreads in found]), (basis,))


def _mean(spreads: Sequence[Spread]) -> Spread:
    return Spread(*(fmean(getattr(spread, part.name) for spread in spreads) for part in fields(Spread)))


def _of_pair(row: str, other: str, plan: Plan, store: Store) -> Spreads | None:
    columns, by_seed, noises = dict[str, Spread](), list[Mapping[int, float]](), list[float]()
    for column in plan.definition.columns:
        ours, theirs = (_arrays(plan, store, name, column.id) for name in (row, other))
        if len(ours.keys() & theirs.keys()) < 2:
            return None
        columns[column.id], of_seeds, noise = spread_of_arrays(ours, theirs)
        by_seed.append(of_seeds)
        noises.append(noise)
    seeds = set.intersection(*map(set, by_seed))
    if len(seeds) < 2:
        return None
    averages = [fmean(of_seeds[seed] for of_seeds in by_seed) for seed in sorted(seeds)]
    trainings = variance(averages) - sum(noises) / len(noises) ** 2
    return Spreads(columns, Spread.of_average(list(columns.values()), max(0.0, trainings)), ())


def _arrays(plan: Plan, store: Store, row: str, column: str) -> dict[int, ScoreArray]:
    """The answers of a row in a column by training seed, of those seeds that have them all."""
    arrays = {}
    for job in plan.jobs:
        keys = job_cells(job, plan, store).get(column, ()) if job.row.id == row else ()
        if keys and all((cell := store.cell(key)) is not None and cell.state == "done" for key in keys):
            arrays[job.seed] = ScoreArray.joined([store.scores(key) for key in keys])
    return arrays


def spread_of_arrays(
    ours: Mapping[int, ScoreArray], theirs: Mapping[int, ScoreArray]
) -> tuple[Spread, dict[int, float], float]:
    """The four variances of a column by moments, the difference of each seed, and what single problems add to it.

    What a problem's difference varies by between seeds is mixed + answers / R; what a row's answers to one problem vary
    by is its share of answers. None can be told with one answer each: all is mixed then, which more answers do not
    reduce. The clustered standard error over problems, less both, is that of the problems.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    pairs = [(ours[seed].means(), theirs[seed].means()) for seed in seeds]
    common = sorted(set.intersection(*(one.keys() & other.keys() for one, other in pairs)))
    d_SP = np.array([[one[name] - other[name] for name in common] for one, other in pairs])
    by_seed_S = d_SP.mean(axis=1)
    within = float((d_SP - by_seed_S[:, None]).var(axis=0, ddof=1).mean()) / len(common)
    arrays = [of_row[seed] for of_row in (ours, theirs) for seed in seeds]
    repeats = min(int((~np.isnan(array.scores_PR)).sum(axis=1).max()) for array in arrays)
    answers = 2 * fmean(map(_variance_of_an_answer, arrays)) / len(common) if repeats > 1 else 0.0
    groups = {problem.problem_id: problem.group for problem in arrays[0].problems}
    stderr = clustered_mean(dict(zip(common, d_SP.mean(axis=0).tolist(), strict=True)), groups).stderr
    spread = Spread(
        trainings=max(0.0, float(by_seed_S.var(ddof=1)) - within),
        problems=max(0.0, stderr**2 - within / len(seeds)),
        mixed=max(0.0, within - answers / repeats),
        answers=answers,
    )
    return spread, dict(zip(seeds, by_seed_S.tolist(), strict=True)), within


def _variance_of_an_answer(array: ScoreArray) -> float:
    several_PR = array.scores_PR[(~np.isnan(array.scores_PR)).sum(axis=1) > 1]
    return float(np.nanvar(several_PR, axis=1, ddof=1).mean()) if len(several_PR) else 0.0

"""How often a rule that is worth nothing is called clear: plan, rates, seeds, store and report, with made-up trainings.

A row with random credit and one with uniform credit are trained at four rates and answer a benchmark. What a training
comes to is drawn from one distribution for both: how good a rate is, a share of luck of each seed, problems that are
hard for everybody, and what one training finds hard by chance. All the rest is real: the table `headroom` is planned,
each seed's rate is picked from the store, and the comparison is read off the table. The peer in the same run
is the t test of the problems alone, at one rate and one seed, as it is usually reported.

    python benchmarks/false_alarms.py [--tables 600] [--seeds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import expit

from atrl_bench.evaluation.cell_spec import cell_spec
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.definition import load_table
from atrl_bench.experiments.plan import Job, Plan, best_rates, plan_definition
from atrl_bench.experiments.rates import PICKED_BY
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import TrainedModel
from atrl_bench.profiles import load_profile
from atrl_bench.report.differences import contrasts
from atrl_bench.report.table_model import Table
from atrl_bench.report.table_run import read_table
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.statistics.means import clustered_mean
from atrl_bench.results.store import Store

ROWS = ("perception_uniform", "perception_random")
NUM_PROBLEMS = 100
RATE_EFFECT = {0.5: -0.4, 1.0: 0.0, 2.0: 0.1, 4.0: -0.3}  # on a log-odds scale, as all below
SD_SEED = 0.3  # about seven points of accuracy between seeds of one row
SD_PROBLEM, SD_PROBLEM_OF_TRAINING = 1.5, 0.7


@dataclass(frozen=True)
class Shares:
    """How many tables call the difference clear, and in how many the usual test does."""

    ours: float
    usual: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=600, help="how many tables are made up")
    parser.add_argument("--seeds", type=int, default=5, help="training seeds of each row")
    arguments = parser.parse_args()
    shares = measured(arguments.tables, arguments.seeds)
    print(f"{arguments.tables} tables, {arguments.seeds} seeds, four rates, no rule better than the other")
    print(f"called clear: {shares.ours:.3f}; by the t test of one seed at one rate: {shares.usual:.3f}")


def measured(num_tables: int, num_seeds: int) -> Shares:
    """Return how often a difference is called clear where there is none."""
    rng, clear, usual = np.random.default_rng(0), [], []
    with tempfile.TemporaryDirectory() as folder:
        run_dir = RunDir.at(Path(folder), load_profile("smoke"))
        for _ in range(num_tables):
            run_dir.store_path.unlink(missing_ok=True)
            table = made_up_table(run_dir, tuple(range(num_seeds)), rng)
            (contrast,) = contrasts(table.table)
            clear.append(contrast.is_clear)
            usual.append(table.usual_p < 0.05)
    return Shares(float(np.mean(clear)), float(np.mean(usual)))


@dataclass(frozen=True)
class MadeUp:
    """A table, and what the usual test says of it."""

    table: Table
    usual_p: float


def made_up_table(run_dir: RunDir, seeds: Sequence[int], rng: np.random.Generator) -> MadeUp:
    """Return the table of made-up trainings, all of them with the same prospects."""
    definition = load_table("headroom").select(rows=ROWS)
    groups = tuple(group.model_copy(update={"oracle": None}) for group in definition.groups)  # which would rank nothing
    definition = definition.model_copy(update={"groups": groups, "profiles": {}, "rates": tuple(RATE_EFFECT)})
    plan = plan_definition(definition, run_dir, seeds)
    hard_P = rng.normal(0, SD_PROBLEM, NUM_PROBLEMS)
    with plan.run_dir.open_store() as store:
        abilities = {job.name: RATE_EFFECT[job.rate] + rng.normal(0, SD_SEED) for job in plan.jobs}
        for job in plan.jobs:
            assert job.run_spec is not None
            summary = {PICKED_BY: float(expit(abilities[job.name] + rng.normal(0, SD_SEED / 2)))}
            key = store.add_run(job.run_spec)
            store.finish_run(key, checkpoint=key, digest=key, seconds=1.0, summary=summary)
        shares = {}
        for job in plan.needed(best_rates(plan, store)):
            if job.evaluations:
                chances_P = expit(abilities[job.name] - hard_P + rng.normal(0, SD_PROBLEM_OF_TRAINING, NUM_PROBLEMS))
                shares[job.row.id, job.rate, job.seed] = store_answers(job, plan, store, chances_P, rng)
        table = read_table(plan, store)
    uniform_P, random_P = (shares[row, 1.0, seeds[0]] for row in ROWS)
    return MadeUp(table, _usual_p(random_P - uniform_P))


def _usual_p(difference_P: np.ndarray) -> float:
    problems = {str(i): str(i) for i in range(len(difference_P))}
    return clustered_mean(dict(zip(problems, difference_P, strict=True)), problems).p_value()


def store_answers(job: Job, plan: Plan, store: Store, chances_P: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Store the answers of a training and return the share of right ones of each problem."""
    ((task, options),) = job.evaluations
    assert job.run_key is not None
    options = plan.run_dir.with_choices(options)
    data_dir = plan.run_dir.data_dir(find_task(task).folder)
    spec = cell_spec(TrainedModel(job.run_key, job.run_key), task, options, profile=plan.profile, data_dir=data_dir)
    key, repeats = store.add_cell(spec.as_dict()), spec.decoding.repeats
    right_PR = rng.random((len(chances_P), repeats)) < chances_P[:, None]
    store.add_problems(key, [Problem(str(i), str(i), "?", Gold("1")) for i in range(len(chances_P))])
    at = [(i, repeat) for i in range(len(chances_P)) for repeat in range(repeats)]
    store.add_responses(key, [Response(str(i), repeat, "h", "1", 1, 0.1, False) for i, repeat in at])
    states = {True: "correct", False: "wrong"}
    verdicts = {(str(i), r): Verdict(states[bool(right_PR[i, r])], "1", "fast", "") for i, r in at}  # type: ignore[arg-type]
    store.add_verdicts(key, verdicts)
    store.finish_cell(key, expected=len(at))
    return right_PR.mean(1)


if __name__ == "__main__":
    main()

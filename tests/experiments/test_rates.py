"""Rows at several learning rates: what is trained, which rate is picked, and that the profile's own keeps its keys."""

import math
import runpy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from stored import finished_run

from atrl_bench.experiments.definition import TableDefinition, load_table
from atrl_bench.experiments.jobs import is_done, job_of_row
from atrl_bench.experiments.plan import best_rates, plan_table
from atrl_bench.experiments.price import price_of
from atrl_bench.experiments.rates import PICKED_BY, at_rate, cross_fitted, picked, span_text
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Run, Store
from atrl_bench.training.recipe import load_recipe

SMOKE = load_profile("smoke")
ROWS = ["zero_shot", "grpo", "grpo_atrl"]


def plan(folder, world, **options):
    return plan_table("main_7b", RunDir.at(folder, SMOKE, world), **{"rows": ROWS, **options})


def run(accuracy, state="done"):
    return Run("key", {}, state, "", "", "", None, {} if accuracy is None else {PICKED_BY: accuracy}, 0.0, 0.0)


def test_a_row_at_the_profiles_rate_is_the_training_it_was_without_the_control(tmp_path, mini_world):
    plain = {job.row.id: job.run_key for job in plan(tmp_path, mini_world).jobs}
    controlled = plan(tmp_path, mini_world, compared_at="best_rate")
    assert {job.row.id: job.run_key for job in controlled.jobs if job.rate == 1.0} == plain
    assert len({job.run_key for job in controlled.jobs}) == 1 + 2 * 4  # the base model, and two rows at four rates


def test_a_rate_multiplies_the_learning_rate_that_the_recipe_has_under_the_profile():
    recipe = load_recipe("grpo")
    assert at_rate(recipe, SMOKE, 1.0) is recipe
    assert at_rate(recipe, SMOKE, 4.0).sizes(SMOKE).learning_rate == 4 * SMOKE.training.learning_rate
    own = load_recipe("grpo", overrides={"smoke": {"learning_rate": 3e-4, "num_rollouts": 5}})
    sizes = at_rate(own, SMOKE, 0.5).sizes(SMOKE)
    assert (sizes.learning_rate, sizes.num_rollouts) == (1.5e-4, 5)


def test_the_plan_counts_the_trainings_at_every_rate(tmp_path, mini_world):
    cost = price_of(plan(tmp_path, mini_world, compared_at="best_rate"))
    assert cost.left()["trainings"] == 8
    assert [cost.row for cost in cost.trainings][:3] == ["grpo at 0.5× rate", "grpo", "grpo at 2× rate"]
    assert "--compared-at best_rate" in cost.next


def test_supervised_training_samples_no_answers_to_pick_a_rate_by(tmp_path, mini_world):
    planned = plan_table("video", RunDir.at(tmp_path, SMOKE, mini_world), compared_at="best_rate")
    rates = {}
    for job in planned.jobs:
        rates.setdefault(job.recipe and job.recipe.method, set()).add(job.rate)
    assert rates["supervised"] == {1.0}
    assert rates["rollouts"] == {0.5, 1.0, 2.0, 4.0}


def test_each_seed_is_judged_at_the_rate_that_the_others_pick_and_of_equals_at_the_smallest():
    runs = {0.5: [run(0.5), run(0.5)], 1.0: [run(0.9), run(0.2)], 2.0: [run(0.6), run(0.6)], 4.0: [run(0.6), run(0.6)]}
    assert cross_fitted(runs, [7, 8]) == {7: 2.0, 8: 1.0}  # its own 0.9 does not help seed 7


def test_one_seed_has_no_others_and_picks_for_itself():
    assert cross_fitted({1.0: [run(0.5)], 2.0: [run(0.6)]}, [0]) == {0: 2.0}


def test_over_many_rates_a_single_lucky_training_does_not_decide():
    mean_R = np.array([0.46, 0.49, 0.50, 0.49, 0.46 + 0.05, 0.41])  # of a parabola, but for the highest
    assert picked(np.stack([mean_R, mean_R], 1), [0.5, 1, 2, 4, 8, 16]) == [4, 4]


def test_a_rate_at_which_any_seed_broke_is_out_and_where_all_are_no_seed_is_judged():
    broken = Run("", {}, "done", "", "", "", None, {PICKED_BY: 0.9, "first accuracy": 0.4, "last accuracy": 0.19}, 0, 0)
    low = {1.0: [run(0.5), run(0.5)], 2.0: [run(0.9), broken]}
    assert cross_fitted(low, [0, 1]) == {0: 1.0, 1: 1.0}
    none = cross_fitted({1.0: [broken, run(0.5)], 2.0: [run(0.9), broken]}, [0, 1])
    assert list(map(math.isnan, none.values())) == [True, True]


def test_the_rates_of_a_row_are_written_as_a_span():
    assert [span_text(of_seed) for of_seed in ({0: 2.0, 1: 2.0}, {0: 4.0, 1: 0.5}, {})] == ["2", "0.5–4", ""]


@pytest.mark.parametrize("missing", [[], [run(0.1)], [run(0.1), run(None)], [run(0.1), run(0.9, state="failed")]])
def test_no_rate_is_picked_until_every_seed_of_every_rate_is_trained(missing):
    assert cross_fitted({1.0: [run(0.5), run(0.5)], 2.0: missing}, [0, 1]) == {}


@pytest.mark.parametrize("num_seeds", [4, 8])
def test_intervals_and_stated_power_hold_where_rates_are_picked_and_one_training_in_five_breaks(num_seeds):
    benchmark = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "picked_rates.py"))
    held = benchmark["measured"](cross_fitted, num_seeds, 500)
    assert 0.93 <= held.at_picked <= 0.97
    assert 0.75 <= held.power <= 0.85
    assert benchmark["measured"](benchmark["highest_mean"](2), num_seeds, 500).at_picked < 0.9  # the usual way


def test_a_row_that_is_not_trained_at_all_rates_has_no_number_yet(tmp_path, mini_world):
    planned = plan(tmp_path, mini_world, compared_at="best_rate")
    with Store.open(tmp_path / "store.sqlite") as store:
        for job in planned.jobs:
            if job.run_spec and (job.row.id, job.rate) != ("grpo_atrl", 4.0):
                finished_run(store, job.run_spec, summary={PICKED_BY: 0.4 + 0.1 * job.rate})
        rates = best_rates(planned, store)
    assert rates == {"grpo": {0: 4.0}, "grpo_atrl": {}}
    assert {job.name for job in planned.at(rates).jobs} == {"zero_shot", "grpo at 4× rate seed 0"}


@pytest.mark.parametrize("rates", [[0.5, 2], [1, 1], [1, -2]])
def test_the_rates_of_a_table_are_different_positive_and_have_the_profiles_among_them(rates):
    fields = load_table("main_7b").model_dump() | {"rates": rates}
    with pytest.raises(ValidationError, match="1 among them"):
        TableDefinition.model_validate(fields)


def test_a_table_has_the_seeds_and_rates_of_its_profile(tmp_path):
    planned = plan_table("headroom", RunDir.at(tmp_path, SMOKE), rows=["strategy_uniform", "strategy_atrl"])
    assert planned.seeds == (0,)
    assert sorted(job.rate for job in planned.jobs) == [1.0, 1.0, 2.0, 2.0]
    assert "--seeds" not in planned.command


def trained(planned, store, accuracies):
    """Finish every training, with the accuracy of its rate."""
    for job in planned.jobs:
        if job.run_spec:
            finished_run(store, job.run_spec, summary={PICKED_BY: accuracies[job.rate]})


def test_all_seeds_train_at_all_rates_and_answer_at_the_profiles_and_at_the_one_they_are_judged_at(
    tmp_path, mini_world
):
    planned = plan(tmp_path, mini_world, rows=["grpo"], compared_at="best_rate", seeds=[0, 1, 2])
    with Store.open(tmp_path / "store.sqlite") as store:
        before = planned.needed(best_rates(planned, store))
        trained(planned, store, {0.5: 0.1, 1.0: 0.2, 2.0: 0.9, 4.0: 0.3})
        after = planned.needed(best_rates(planned, store))
    assert {(job.seed, job.rate) for job in before} == {*product((0, 1, 2), (0.5, 1.0, 2.0, 4.0))}
    assert {job.rate for job in before if job.evaluations} == {1.0}
    assert {(job.seed, job.rate) for job in after if job.evaluations} == {*product((0, 1, 2), (1.0, 2.0))}


def test_a_training_that_answers_no_benchmark_is_still_due_until_it_is_done(tmp_path, mini_world):
    planned = plan(tmp_path, mini_world, rows=["grpo"], compared_at="best_rate")
    with Store.open(tmp_path / "store.sqlite") as store:
        jobs = {job.rate: job for job in planned.needed(best_rates(planned, store))}
        assert jobs[4.0].evaluations == ()
        of_rate = {rate: job_of_row(job, planned.run_dir) for rate, job in jobs.items()}
        assert not is_done(of_rate[4.0], store)
        trained(planned, store, {0.5: 0.9, 1.0: 0.2, 2.0: 0.1, 4.0: 0.3})
        assert is_done(of_rate[4.0], store)
        assert not is_done(of_rate[1.0], store)  # its benchmarks are still to be answered

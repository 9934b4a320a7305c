"""What a table could show before it is run, and tables that are run until they are decided."""

import json
import math
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from atrl_bench.cli import app
from atrl_bench.errors import BudgetError, InvalidFileError
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.rates import PICKED_BY
from atrl_bench.experiments.run_dir import RunDir, read_settings
from atrl_bench.experiments.spread import spread_of_arrays, stored_spreads
from atrl_bench.lab.decided import most_seeds, run_until_decided
from atrl_bench.lab.design import design
from atrl_bench.profiles import load_profile
from atrl_bench.report.table_run import render
from atrl_bench.results.records import Gold, Problem
from atrl_bench.results.score_array import ScoreArray

FALSE_ALARMS = Path(__file__).parents[2] / "benchmarks" / "false_alarms.py"
PAIR = ["grpo", "grpo_atrl"]


@pytest.fixture
def cli(smoke_dir):
    """Run a command in the smoke folder, and return its result or, of one that is refused, its error."""

    def run(*words: str, refused: type[Exception] | None = None):
        result = CliRunner().invoke(app(), [*words, "--profile", "smoke", "--out", str(smoke_dir.root)])
        if refused is not None:
            assert isinstance(result.exception, refused), result.output
            return result.exception
        assert result.exit_code == 0, result.output
        return result

    return run


@pytest.fixture
def smoke_dir(tmp_path):
    return RunDir.at(tmp_path / "a run", load_profile("smoke"), None)


def planned(run_dir, **chosen):
    return lambda seeds: plan_table("main_7b", run_dir, **chosen | ({} if seeds is None else {"seeds": seeds}))


def array_of(chances_P: np.ndarray, repeats: int, rng: np.random.Generator) -> ScoreArray:
    problems = tuple(Problem(str(i), str(i), "?", Gold("1")) for i in range(len(chances_P)))
    scores_PR = (rng.random((len(chances_P), repeats)) < chances_P[:, None]).astype(float)
    return ScoreArray(problems, scores_PR, np.zeros(scores_PR.shape, dtype=np.int8))


def test_the_spread_of_stored_answers_is_the_planted_one():
    rng, num_problems, repeats, seeds = np.random.default_rng(0), 400, 4, range(40)
    shared_P = rng.normal(0, 0.1, num_problems)  # what the better row does to single problems, whatever the seed
    ours, theirs = {}, {}
    for seed in seeds:
        own_P = rng.normal(0, 0.1, num_problems)
        ours[seed] = array_of(0.5 + rng.normal(0, 0.02) + shared_P + own_P, repeats, rng)
        theirs[seed] = array_of(np.full(num_problems, 0.5), repeats, rng)
    spread, by_seed, _ = spread_of_arrays(ours, theirs)
    assert list(by_seed) == list(seeds)
    assert math.sqrt(spread.trainings) == pytest.approx(0.02, rel=0.25)
    assert spread.problems * num_problems == pytest.approx(0.1**2, rel=0.25)
    assert spread.mixed * num_problems == pytest.approx(0.1**2, rel=0.25)
    # Of one answer of each row: p (1 - p), which is 1/4, and 1/4 less both variances of p.
    assert spread.answers * num_problems == pytest.approx(0.25 + 0.25 - 2 * 0.1**2, rel=0.05)


def test_a_design_says_what_one_seed_of_the_papers_protocol_cannot_show(tmp_path):
    run_dir = RunDir.at(tmp_path, load_profile("paper"), None)
    found = design(planned(run_dir, rows=PAIR), 1.2, wanted=0.8)
    assert found.asked.seeds == 1
    assert found.asked.power == 0
    assert math.isinf(found.asked.sees)
    assert found.one_seed_sd == pytest.approx(0.8, abs=0.1)
    assert found.num_tests == 6  # five benchmarks and their average
    assert found.cheapest is None
    assert 1.2 < found.sees_at_most < found.chosen.sees < 1.2 * found.sees_at_most
    prices = {option.seeds: option.hours for option in found.options if option.repeats == 8}
    assert prices[2] == pytest.approx(2 * prices[1])
    said = "\n".join(map(str, found.blocks()))
    assert "No number of seeds shows 1.2 points" in said
    assert "arXiv 2504.13055" in said


def test_the_cheapest_design_has_the_power_and_a_seed_less_has_not(smoke_dir):
    found = design(planned(smoke_dir, rows=PAIR), 15, wanted=0.8, seed_sd=0.03)
    assert found.cheapest == found.chosen
    assert found.cheapest.power >= 0.8
    at = {(option.seeds, option.repeats): option.power for option in found.options}
    fewer = [power for (seeds, _), power in at.items() if seeds < found.chosen.seeds]
    assert all(power < 0.8 for power in fewer)
    assert found.basis[0] == "Seeds: sd 3 points, as given."


def test_a_budget_gets_the_best_design_that_it_pays(smoke_dir):
    whole = design(planned(smoke_dir, rows=PAIR), 15, wanted=0.8, seed_sd=0.1)
    found = design(planned(smoke_dir, rows=PAIR), 15, wanted=0.8, seed_sd=0.1, budget=0.6 * whole.chosen.hours)
    assert found.cheapest == whole.chosen
    assert found.chosen.hours <= 0.6 * whole.chosen.hours
    assert found.chosen.sees > 15


def test_a_design_is_carried_out_by_its_file_and_refused_for_another_table(smoke_dir, cli):
    found = json.loads(cli("design", "main_7b", "--effect", "15", "--rows", ",".join(PAIR), "--json").stdout)
    file = found["files"][0]
    assert file in shlex.split(found["next"])  # the name of the folder has a space
    priced = cli("run-table", "main_7b", "--design", file, "--dry-run", "--json")
    assert len(json.loads(priced.stdout)["trainings"]) == 2 * found["chosen"]["seeds"]
    assert (smoke_dir.root / "designs" / "main_7b.svg").is_file()
    assert "is a design of main_7b" in str(cli("run-table", "video", "--design", file, refused=InvalidFileError))


def test_tasks_have_a_design_without_a_table(smoke_dir, cli):
    found = json.loads(cli("design", "--tasks", "mathvista_testmini,mmmu_val", "--effect", "15", "--json").stdout)
    assert found["table"] == "mathvista_testmini, mmmu_val"
    assert len(found["columns"]) == 2
    assert found["num_tests"] == 3  # both and their average
    assert (
        found["next"]
        == f"atrl-bench evaluate MODEL --tasks mathvista_testmini,mmmu_val --repeats {found['chosen']['repeats']}"
    )
    cli("design", "main_7b", "--tasks", "mmmu_val", "--effect", "15", refused=SystemExit)
    cli("design", "--effect", "15", refused=SystemExit)


def test_a_benchmark_of_ones_own_is_designed_for_by_its_rows(smoke_dir, cli, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f'{{"question": "{n} + 1?", "answer": {n + 1}}}\n' for n in range(9)))
    found = json.loads(cli("design", "--tasks", f"{path},wemath_testmini", "--effect", "15", "--json").stdout)
    assert found["columns"][0]["problems"] == 9
    assert Path(found["files"][0]).parent == smoke_dir.root / "designs"


@pytest.mark.parametrize("effect", ["0", "101", "inf", "nan"])
def test_an_effect_that_no_accuracy_can_have_is_refused(cli, effect):
    assert cli("design", "main_7b", "--effect", effect, refused=SystemExit).code == 2


@pytest.mark.parametrize("words", [("design",), ("run-table", "--until", "decided")], ids=["design", "run-table"])
def test_a_table_without_comparisons_has_no_design_and_cannot_be_decided(cli, words):
    error = cli(*words, "main_7b", "--rows", "zero_shot,grpo", "--effect", "2", refused=InvalidFileError)
    assert "no two of these rows differ in their credit alone" in str(error)


def filled(plan, effect: float, rng: np.random.Generator):
    """Fill what the store lacks with made-up trainings, of which those with credit are better by `effect` log-odds."""
    store_answers = runpy.run_path(str(FALSE_ALARMS))["store_answers"]
    hard_P = np.random.default_rng(7).normal(0, 1.0, 100)
    with plan.run_dir.open_store() as store:
        for job in plan.jobs:
            if plan.run_dir.run_state(job.run_key) == "done":
                continue
            key = store.add_run(job.run_spec)
            store.finish_run(key, checkpoint=key, digest=key, seconds=1.0, summary={PICKED_BY: 0.5})
            ability = rng.normal(0, 0.1) + (effect if job.row.id == "grpo_atrl" else 0.0)
            store_answers(job, plan, store, expit(ability - hard_P), rng)
    return render(plan)


@pytest.mark.parametrize(
    ("truth", "verdict"), [(0.0, "not so different"), (0.75, "different"), (2.0, "different")], ids=["0", "15", "40"]
)
def test_a_table_is_run_until_it_is_decided_for_the_right_reason(smoke_dir, truth, verdict):
    plan_of, rng, said = planned(smoke_dir, rows=PAIR, columns=["mathvista_testmini"]), np.random.default_rng(3), []
    result, decided = run_until_decided(plan_of, lambda plan: filled(plan, truth, rng), 6, 12, said.append)
    (item,) = decided.comparisons
    assert item.verdict == verdict
    assert item.seeds < 12  # not all are needed
    assert len(result.table.seeds) == item.seeds
    assert any("at most 12" in note for note in result.table.notes)
    before = next(note for note in result.table.notes if note.startswith("Before it ran, "))
    assert f"{item.seeds} seeds" in before
    assert "After it, with its own: " in before
    assert read_settings(smoke_dir.root).looks == {"main_7b": 12}
    assert len(said) == item.seeds - 2
    assert stored_spreads(plan_of(range(item.seeds))) is not None


def test_a_budget_holds_as_many_seeds_as_it_pays_and_two_at_least(smoke_dir, cli):
    plan_of = planned(smoke_dir, rows=PAIR)
    per_seed = design(plan_of, 15, wanted=0.8).asked.hours
    assert most_seeds(plan_of, 5.5 * per_seed) == 5
    words = ("run-table", "main_7b", "--rows", ",".join(PAIR), "--until", "decided", "--effect", "5")
    error = cli(*words, "--budget", "0.001m", refused=BudgetError)
    assert "A comparison takes two seeds" in str(error)
    assert "more than the budget" in str(
        cli("design", *words[1:4], "--effect", "5", "--budget", "0.001m", refused=BudgetError)
    )
    cli("run-table", "main_7b", "--effect", "5", refused=SystemExit)
    for table in ("all", "signal"):  # which compare no rows, or not their own
        cli("run-table", table, "--until", "decided", "--effect", "5", refused=SystemExit)


def test_a_dry_run_until_a_table_is_decided_proposes_itself_and_not_all_seeds_at_once(smoke_dir, cli):
    words = ("run-table", "main_7b", "--rows", ",".join(PAIR), "--until", "decided", "--effect", "5")
    priced = json.loads(cli(*words, "--budget", "1h", "--dry-run", "--json").stdout)
    assert priced["next"] == "the same command without --dry-run"

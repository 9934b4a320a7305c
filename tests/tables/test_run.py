"""A plan says which trainings and cells a table needs, under keys that change with everything that changes a number."""

import pytest

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store
from atrl_bench.tables import run
from atrl_bench.tables.needs import describe_plan, needs_text
from atrl_bench.tables.run import cell_keys, plan_table

SMOKE, PAPER = load_profile("smoke"), load_profile("paper")
ROWS = ["zero_shot", "grpo", "grpo_atrl"]


def plan(tmp_path, world, **options):
    options = {"rows": ROWS, "profile": SMOKE, "data_dir": world, **options}
    return plan_table("main_7b", workspace=tmp_path, **options)


def test_the_base_model_is_evaluated_once_and_every_recipe_trained_once_a_seed(tmp_path, mini_world):
    names = [job.name for job in plan(tmp_path, mini_world, seeds=(0, 1)).jobs]
    assert names == ["zero_shot", "grpo seed 0", "grpo_atrl seed 0", "grpo seed 1", "grpo_atrl seed 1"]


def test_rows_that_cannot_be_measured_have_no_job(tmp_path, mini_world):
    jobs = plan(tmp_path, mini_world, rows=["step_grpo", "vppo", "zero_shot"]).jobs
    assert [job.name for job in jobs] == ["zero_shot"]


def test_credit_seed_and_profile_each_change_the_key_of_a_training(tmp_path, mini_world):
    base = plan(tmp_path, mini_world, rows=["grpo"]).jobs[0].run_key
    others = {
        plan(tmp_path, mini_world, rows=["grpo_atrl"]).jobs[0].run_key,
        plan(tmp_path, mini_world, rows=["grpo"], seeds=(1,)).jobs[0].run_key,
        plan(tmp_path, mini_world, rows=["grpo"], profile=load_profile("mini")).jobs[0].run_key,
    }
    assert base not in others
    assert len(others) == 3
    assert plan(tmp_path, mini_world, rows=["grpo"]).jobs[0].run_key == base


def test_only_cells_whose_checkpoint_exists_have_a_key(tmp_path, mini_world):
    planned = plan(tmp_path, mini_world)
    with Store.open(planned.workspace.store_path) as store:
        assert {row for row, _ in cell_keys(planned, store)} == {"zero_shot"}


def test_an_unknown_row_or_column_names_the_nearest(tmp_path, mini_world):
    with pytest.raises(UnknownNameError, match="grpo"):
        plan(tmp_path, mini_world, rows=["grppo"])
    with pytest.raises(UnknownNameError, match="geoqa_test"):
        plan(tmp_path, mini_world, columns=["geoqa"])


def test_a_data_folder_that_is_not_there_is_an_error_before_anything_runs(tmp_path):
    with pytest.raises(MissingDataError, match="--data-dir"):
        plan(tmp_path, tmp_path / "nowhere")


def test_the_papers_plan_needs_no_gpu_network_or_data(tmp_path):
    needs = describe_plan(plan_table("main_7b", profile=PAPER, workspace=tmp_path))
    assert len(needs["jobs"]) == 11
    assert len(needs["cells"]) == 55
    # MathVerse: 3,940 rows, eight answers each.
    assert {cell["samples"] for cell in needs["cells"] if cell["column"] == "mathverse_testmini"} == {31_520}
    text = needs_text(needs, PAPER)
    assert "GPUs of" in text
    assert max(map(len, text.split("Evaluations")[0].splitlines()[1:])) <= 80


def test_the_plan_of_a_finished_folder_tells_what_is_done(tmp_path, mini_world):
    planned = plan(tmp_path, mini_world, rows=["grpo"])
    with Store.open(planned.workspace.store_path) as store:
        store.add_run(planned.jobs[0].run_spec)
        store.finish_run(planned.jobs[0].run_key, checkpoint="gone", digest="d", seconds=1.0, summary={})
    needs = describe_plan(planned)
    assert needs["jobs"][0]["training"] == "done"
    assert {cell["state"] for cell in needs["cells"]} == {"to do"}


def test_a_failure_without_a_text_is_reported_by_its_type():
    assert run._first_line(AssertionError()) == "AssertionError"
    assert run._first_line(ValueError("what\nwhy")) == "what"

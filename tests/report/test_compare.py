"""Two models on one benchmark: the sums stand in the comments."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stored import fill_cell

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.evaluation.tasks import list_suites
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.compare import compare_models
from atrl_bench.report.evaluations import write_evaluations
from atrl_bench.report.table_model import Table, TableCell
from atrl_bench.report.text import render_json, terminal_text
from atrl_bench.results.records import Verdict

PROFILE = load_profile("smoke")


def spec(model: str, task: str = "geoqa_test", repeats: int = 1, **changes: Any) -> dict[str, Any]:
    same = {"kind": "evaluation", "task": task, "data_digest": "d", "prompt_version": 1, "judge": None}
    same |= {"decoding": {"repeats": repeats, "temperature": 0.1}, "grader_version": "1"}
    return same | {"model_digest": f"digest of {model}", "model_name": model} | changes


def compared(folder: Path, a: str, b: str, tasks: Sequence[str] | None = None, **options: Any) -> Table:
    return compare_models(a, b, tasks, RunDir.at(folder, PROFILE), **options)


def cell_of(table: Table, column: int = 0) -> TableCell:
    return table.rows[0].cells[column]


def text_of(table: Table) -> str:
    return " ".join(terminal_text(table).plain.split())


def test_single_runs_are_compared_by_who_is_right_where_one_is_wrong(store, tmp_path):
    a = fill_cell(store, spec("a"), "++++++-+")
    b = fill_cell(store, spec("b"), "-------+")
    table = compared(tmp_path, a, b)  # cells know their task
    assert [row.cells[0].estimate.mean for row in table.rows] == [7 / 8, 1 / 8]
    cell = cell_of(table)
    assert cell.difference.estimate.mean == 6 / 8
    # Six problems only A solved, none only B: 2 * (1/2)^6 = 1/32.
    assert (cell.difference.p_value, cell.difference.test) == (1 / 32, "exact McNemar")
    assert "smoke: a is better than smoke: b on GeoQA" in table.says
    assert "+75.0 points" in table.says
    assert "GeoQA: the first is better on 6, the second on 0 of 8 problems." in table.notes
    assert not any("Not the model alone" in note for note in table.notes)


def test_a_difference_that_cannot_be_told_says_what_could_have_been(store, tmp_path):
    fill_cell(store, spec("a"), "+-+-++")
    fill_cell(store, spec("b"), "+-+-+-")
    table = compared(tmp_path, "a", "b", ["geoqa_test"])
    assert table.says.startswith("No difference that these problems could show on GeoQA: +16.7 points")
    assert "points could be detected with 80 % power" in table.says


def test_only_problems_that_both_have_an_answer_to_are_compared(store, tmp_path):
    fill_cell(store, spec("a"), "++j+")
    fill_cell(store, spec("b"), "-j++")
    cell = cell_of(compared(tmp_path, "a", "b", ["geoqa_test"]))
    assert (cell.difference.estimate.num_problems, cell.difference.estimate.mean) == (2, 0.5)
    assert cell.estimate.num_problems == 3


def test_repeats_are_counted_as_far_as_both_cells_have_them(store, tmp_path):
    fill_cell(store, spec("a", repeats=4), "++", "+-", "--", "--")
    fill_cell(store, spec("b", repeats=2), "--", "+-")
    table = compared(tmp_path, "a", "b", ["geoqa_test"])
    assert table.columns[0].metric == "mean@2"
    # A: (1 + 1)/2 = 1 and (1 + 0)/2 = 1/2; B: 1/2 and 0.
    assert cell_of(table).difference.estimate.mean == 0.5
    assert any("decoding.repeats: 4, 2" in note for note in table.notes)


def test_columns_of_different_repeats_say_which_metric_is_theirs(store, tmp_path):
    for model in ("a", "b"):
        fill_cell(store, spec(model), "+-")
        fill_cell(store, spec(model, "mathvista_testmini", repeats=2), "+-", "--")
    table = compared(tmp_path, "a", "b", ["geoqa_test", "mathvista_testmini"])
    assert [column.text for column in table.columns] == ["GeoQA acc@1", "MathVista mean@2", "Average"]
    assert [column.text for column in compared(tmp_path, "a", "b", ["mathvista_testmini"]).columns] == ["MathVista"]


def test_whatever_differs_beside_the_model_is_said(store, tmp_path):
    fill_cell(store, spec("a", grader_version="1"), "+-")
    fill_cell(store, spec("b", grader_version="2", judge={"model": "j"}, data_digest="e"), "++")
    text = text_of(compared(tmp_path, "a", "b", ["geoqa_test"]))
    assert "Not the model alone differs on geoqa_test" in text
    for said in ("data_digest: d, e", "grader_version: 1, 2", "judge.model: None, j"):
        assert said in text


def test_models_are_found_by_name_and_cells_by_key(store, tmp_path):
    a, b = fill_cell(store, spec("org/a"), "+-"), fill_cell(store, spec("served"), "--")
    by_name = compared(tmp_path, "org/a", "served", ["geoqa_test"])
    assert [dict(row.cells[0].provenance)["cell"] for row in by_name.rows] == [a, b]
    assert compared(tmp_path, a, "served", ["geoqa_test"]) == by_name


def test_of_several_cells_those_that_differ_in_least_are_compared(store, tmp_path):
    like_b = fill_cell(store, spec("a", prompt_version=1), "+-")
    fill_cell(store, spec("a", prompt_version=2), "+-")
    b = fill_cell(store, spec("b", prompt_version=1), "--")
    table = compared(tmp_path, "a", "b", ["geoqa_test"])
    assert [dict(row.cells[0].provenance)["cell"] for row in table.rows] == [like_b, b]


def test_several_benchmarks_have_an_average_that_the_answer_is_about(store, tmp_path):
    for task, better in (("geoqa_test", 6), ("mathvista_testmini", 1)):
        fill_cell(store, spec("a", task), "+" * better + "-" * (8 - better))
        fill_cell(store, spec("b", task), "-" * 8)
    table = compared(tmp_path, "a", "b", ["geoqa_test", "mathvista_testmini"])
    assert [column.id for column in table.columns] == ["geoqa_test", "mathvista_testmini", "average"]
    # 6/8 and 1/8, seven eighths of two.
    assert cell_of(table, 2).difference.estimate.mean == pytest.approx(7 / 16)
    assert "on average: +43.8 points" in table.says
    # p = 1/32 and 1 beside the average's: no corrected value is below its own.
    assert all(cell.q_value >= cell.difference.p_value for cell in table.rows[0].cells)


def test_a_missing_cell_names_the_command_that_fills_it(store, tmp_path):
    fill_cell(store, spec("a"), "+")
    pending = store.add_cell(spec("b"))
    with pytest.raises(MissingDataError) as error:
        compared(tmp_path, "a", "b", ["geoqa_test"])
    assert error.value.next_step.startswith("atrl-bench evaluate b --tasks geoqa_test --profile smoke")
    assert f"--out {tmp_path}" in error.value.next_step
    with pytest.raises(MissingDataError):
        compared(tmp_path, "a", pending, ["geoqa_test"])
    with pytest.raises(UnknownNameError):
        compared(tmp_path, "a", "b", ["geoqa"])


def test_a_table_without_a_row_is_no_model_and_rows_of_it_are_proposed(store, tmp_path):
    fill_cell(store, spec("a"), "+")
    with pytest.raises(UnknownNameError, match="Did you mean main_7b:") as error:
        compared(tmp_path, "main_7b", "a", ["geoqa_test"])
    assert error.value.next_step == "atrl-bench list rows main_7b"


def test_without_tasks_names_of_rows_are_answered_with_a_command_that_works(store, tmp_path):
    with pytest.raises(MissingDataError, match="Name the tasks") as error:
        compared(tmp_path, "grpo", "grpo_atrl")
    assert error.value.next_step.startswith("atrl-bench compare main_7b:grpo main_7b:grpo_atrl ")
    with pytest.raises(MissingDataError) as error:
        compared(tmp_path, "org/a", "grpo_atrl")
    assert error.value.next_step.startswith("atrl-bench compare org/a grpo_atrl --task TASK ")


def test_a_suite_is_compared_as_the_mean_of_its_parts(store, tmp_path):
    suite = next(suite for suite in list_suites() if len(suite.tasks) == 2)
    for task, gained in zip(suite.tasks, (1, 3), strict=True):
        fill_cell(store, spec("a", task), "+" * gained + "-" * (4 - gained))
        fill_cell(store, spec("b", task), "-" * 4)
    table = compared(tmp_path, "a", "b", [suite.name])
    assert [column.id for column in table.columns] == [*suite.tasks, suite.name]
    # (1/4 + 3/4) / 2
    assert cell_of(table, 2).difference.estimate.mean == 0.5
    assert "the first is better on 4, the second on 0 of 8 problems." in table.notes[-1]


def test_the_text_fits_eighty_columns_and_says_it_all(store, tmp_path):
    a = fill_cell(store, spec("a" * 100), "++++++-+")
    b = fill_cell(store, spec("b\x1b[31m"), "-------+")
    text = terminal_text(compared(tmp_path, a, b)).plain
    assert "+75.0" in text
    assert "exact McNemar" in text
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines() if "a" * 80 not in line) <= 80


def test_the_name_of_a_row_is_not_broken_beside_many_columns(store, tmp_path):
    tasks = ["geoqa_test", "mathvista_testmini", "mathverse_testmini", "mathvision_testmini", "mmmu_val", "emma_test"]
    for task in tasks:
        for model in ("main_7b_grpo_dapo", "other"):
            fill_cell(store, spec(model, task), "+-+")
    table = compared(tmp_path, "main_7b_grpo_dapo", "other", tasks)
    assert any(line.startswith("main_7b_grpo_dapo ") for line in terminal_text(table).plain.splitlines())


def test_a_single_problem_has_a_difference_without_an_interval(store, tmp_path):
    a, b = (fill_cell(store, spec(model), "-") for model in "ab")
    for key, points in ((a, 0.5), (b, 0.25)):
        store.add_verdicts(key, {("p0", 0): Verdict("wrong", "1", "fast", "", score=points)})
    table = compared(tmp_path, a, b)
    assert cell_of(table).difference.estimate.mean == 0.25
    assert json.loads(render_json(table))["rows"][0]["cells"][0]["difference"]["p_value"] is None
    assert "+25.0 points" in table.says


def test_two_models_are_compared_by_what_they_lose_without_the_picture(store, tmp_path):
    fill_cell(store, spec("a"), "++++--")
    fill_cell(store, spec("a", image="blank"), "------")
    fill_cell(store, spec("b"), "++++--")
    fill_cell(store, spec("b", image="blank"), "+++---")
    table = compared(tmp_path, "a", "b", ["geoqa_test"], image="blank")
    assert [column.id for column in table.columns] == ["geoqa_test", "geoqa_test@blank", "geoqa_test@blank reliance"]
    assert [column.text for column in table.columns] == ["GeoQA", "GeoQA blank pictures", "GeoQA reliance"]
    means = [[cell.estimate.mean for cell in row.cells] for row in table.rows]
    assert means == [pytest.approx([4 / 6, 0, 4 / 6]), pytest.approx([4 / 6, 3 / 6, 1 / 6])]
    assert cell_of(table, 2).difference.estimate.mean == pytest.approx(3 / 6)  # A relies on it in three problems more
    assert "+50.0 points" in table.says
    assert [cell.difference.estimate.mean for cell in table.rows[0].cells[:2]] == pytest.approx([0, -3 / 6])


def test_answers_without_the_picture_are_compared_only_where_that_is_asked_for(store, tmp_path):
    for model in ("a", "b"):
        fill_cell(store, spec(model), "++-")
        fill_cell(store, spec(model, image="blank"), "---")
    assert cell_of(compared(tmp_path, "a", "b", ["geoqa_test"])).estimate.mean == pytest.approx(2 / 3)
    with pytest.raises(MissingDataError, match="geoqa_test@none") as refused:
        compared(tmp_path, "a", "b", ["geoqa_test"], image="none")
    assert "--image none" in refused.value.next_step


@pytest.mark.full
def test_the_page_of_evaluations_says_what_two_cells_differ_in_and_how_many_were_of_other_rows(store, tmp_path):
    fixed = {"profile": "smoke", "limit": None, "run_seed": 0}
    decoding = {"repeats": 1, "temperature": 0, "top_p": 1.0, "max_new_tokens": 8, "dtype": "float32"}
    for marks, digest, pixels in (("--", "older", 784), ("++", "d", 784), ("--", "d", 3136)):
        given = spec("a", data_digest=digest, **fixed) | {"decoding": decoding | {"max_pixels": pixels}}
        fill_cell(store, given, marks)
    page = write_evaluations(RunDir.at(tmp_path, PROFILE))
    assert page is not None
    for said in ("at most 8 tokens; 1 answer; three templates; max pixels 784", "three templates; max pixels 3136"):
        assert said in page.read_text()
    assert "; dtype float32" not in page.read_text(), "it is all cells'"
    assert "GeoQA: 1 evaluation on other rows" in page.read_text()


@pytest.mark.full
def test_what_a_training_of_this_folder_was_not_asked_is_missing_with_a_command_that_finds_its_checkpoint(
    store, tmp_path
):
    recipe = {"recipe": {"method": "rl", "objective": "grpo", "credit": {"rule": "uniform"}}, "seed": 0}
    run = store.add_run({"kind": "training", "profile": "smoke", **recipe})
    store.finish_run(run, seconds=1.0, summary={}, checkpoint=f"checkpoints/{run}", digest=f"digest of {run}")
    how = {"profile": "smoke", "limit": None, "run_seed": 0}
    how["decoding"] = {"repeats": 1, "temperature": 0, "top_p": 1.0, "max_new_tokens": 8}
    for model, tasks in (("other", ("geoqa_test", "mathvista_testmini")), (run, ("geoqa_test",))):
        for task in tasks:
            fill_cell(store, spec(model, task, **how), "+-")
    page = write_evaluations(RunDir.at(tmp_path, PROFILE))
    assert page is not None
    assert "grpo, seed 0" in page.read_text()
    command = f"atrl-bench evaluate runs/smoke/checkpoints/{run} --tasks mathvista_testmini --profile smoke"
    assert command in page.read_text()

"""A run folder as a DataFrame: the sums stand in the comments, the page that explains it runs as it is."""

import json
import re
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest
from stored import fill_cell, fill_table
from typer.testing import CliRunner

import atrl_bench
from atrl_bench.cli import app
from atrl_bench.errors import AtrlBenchError, MissingDataError
from atrl_bench.evaluation.cell_spec import cell_spec
from atrl_bench.experiments.definition import load_table
from atrl_bench.experiments.plan import plan_definition
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.compare import compare_models
from atrl_bench.report.exports import export
from atrl_bench.report.figures.sources import Source, evaluated
from atrl_bench.report.table_run import read_table, write_report
from atrl_bench.results.store import Store

pytestmark = pytest.mark.full

SMOKE = load_profile("smoke")
PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
EXAMPLE = PAGE.parents[1] / "examples" / "results_as_a_frame.py"
RIGHT = {"zero_shot": 1, "grpo": 2}  # of four problems, and one more for the second training seed


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory, mini_world):
    """A folder with a table of two rows and one column; the recipe was trained with two seeds."""
    root = tmp_path_factory.mktemp("folder") / "runs" / "mini"
    run_dir = RunDir.at(root, SMOKE, mini_world)
    definition = load_table("main_7b").select(rows=list(RIGHT), columns=["geoqa_test"])
    plan = plan_definition(definition, run_dir, seeds=(0, 1))
    fill_table(plan, lambda job: ["+" * (right := RIGHT[job.row.id] + job.seed) + "-" * (4 - right)])
    with Store.open(run_dir.store_path) as store:
        write_report(read_table(plan, store), run_dir.reports)
    return run_dir


def test_the_example_prints_the_frame(run_dir, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["results_as_a_frame.py", str(run_dir.root)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    # 50 with one seed and 75 with the other.
    assert re.search(r"grpo +uniform +62.5", capsys.readouterr().out)


def test_every_row_seed_and_task_has_a_line_with_its_score_and_standard_error(run_dir):
    scores = atrl_bench.frame(run_dir)
    assert list(scores.row) == ["zero_shot", "grpo", "grpo"]
    # 1 of 4, 2 of 4 and, with the other seed, 3 of 4.
    assert list(scores.value) == [25.0, 50.0, 75.0]
    assert list(scores.seed.astype(object)) == [pd.NA, 0, 1]
    # Of 1, 0, 0, 0 around 1/4: sqrt(4/3 * (9/16 + 3/16) / 16) = 1/4.
    assert scores.standard_error[0] == pytest.approx(25.0)
    assert set(scores.table) == {"main_7b"}
    assert list(scores.recipe.isna()) == [True, False, False]
    assert list(scores.credit.dropna()) == ["uniform", "uniform"]
    assert set(zip(scores.task, scores.metric, strict=True)) == {("geoqa_test", "acc@1")}


def test_an_unfinished_evaluation_has_no_line(run_dir):
    with Store.open(run_dir.store_path) as store:
        cell = next(cell for cell in store.cells() if cell.spec["model_name"] == "mini")
        store.fail_cell(cell.key, "for a moment")
        assert list(atrl_bench.frame(run_dir).row) == ["grpo", "grpo"]
        store.finish_cell(cell.key, expected=4)


def test_a_model_that_was_only_evaluated_has_its_lines_too(tmp_path, mini_world):
    with Store.open(tmp_path / "store.sqlite") as store:
        spec = cell_spec("mini", "geoqa_test", profile=SMOKE, data_dir=mini_world).as_dict()
        asked = {"model_name": "my-vlm", "profile": "warm", "limit": 4, "grader": "mathruler 0.1.0"}
        fill_cell(store, spec | asked, "+--+")
    scores = atrl_bench.frame(tmp_path)
    assert scores[["label", "model", "profile", "limit", "grader", "task", "value"]].values.tolist() == [
        ["my-vlm", "my-vlm", "warm", 4, "mathruler 0.1.0", "geoqa_test", 50.0]
    ]
    assert scores.table.isna().all()


def test_scores_are_exported_as_the_same_lines_in_three_forms(run_dir, tmp_path):
    scores = atrl_bench.frame(run_dir)
    csv, parquet, records = export(run_dir, "scores", out=tmp_path)
    assert [path.name for path in (csv, parquet, records)] == ["scores.csv", "scores.parquet", "scores.json"]
    pd.testing.assert_frame_equal(pd.read_parquet(parquet), scores)
    assert list(pd.read_csv(csv).value) == list(scores.value)
    errors = [line["standard_error"] for line in json.loads(records.read_text())]
    assert errors == pytest.approx(list(scores.standard_error))


def test_a_folder_is_read_under_the_profile_that_its_tables_have(run_dir, tmp_path):
    with pytest.raises(MissingDataError, match="no result store"):
        atrl_bench.frame(tmp_path)
    reports = tmp_path / "reports"
    reports.mkdir()
    for name, profile in (("main_7b", "smoke"), ("video", "mini")):
        table = json.loads((run_dir.reports / "main_7b.json").read_text()) | {"id": name, "profile": profile}
        (reports / f"{name}.json").write_text(json.dumps(table))
    with pytest.raises(AtrlBenchError, match="mini, smoke"):
        atrl_bench.frame(str(tmp_path))


def test_the_page_runs_as_it_is(run_dir, monkeypatch, capsys):
    monkeypatch.setattr("atrl_bench.report.frame.under_its_profile", lambda _: run_dir)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        exec(block, names)
    printed = capsys.readouterr().out
    for column in atrl_bench.frame(run_dir).columns:
        assert f"`{column}`" in PAGE.read_text(encoding="utf-8")
        assert f"'{column}'" in printed
    assert "geoqa_test" in printed


def test_a_figure_calls_what_was_evaluated_by_the_rows_of_its_table(run_dir):
    with run_dir.open_store(read_only=True) as store:
        found = evaluated(Source(run_dir), store, "geoqa_test")
    named = {(one.label, one.recipe, one.is_anchored) for one in found}
    assert named == {("GRPO", "grpo", False), ("Zero-shot", None, False)}


def test_two_rows_are_compared_by_their_names(run_dir):
    table = compare_models("main_7b:zero_shot", "main_7b:grpo:1", ["geoqa_test"], run_dir)
    assert [row.label.partition(": ")[2] for row in table.rows] == ["main_7b:zero_shot", "main_7b:grpo, seed 1"]
    # 1 of 4 against 3 of 4.
    assert table.rows[0].cells[0].difference.estimate.mean == pytest.approx(-0.5)


def test_a_rows_bare_name_is_answered_with_a_command_that_works(run_dir):
    with pytest.raises(MissingDataError) as error:
        compare_models("grpo", "zero_shot", ["geoqa_test"], run_dir)
    command = error.value.next_step.split()
    assert command[:4] == ["atrl-bench", "compare", "main_7b:grpo", "main_7b:zero_shot"]
    assert compare_models(command[2], command[3], ["geoqa_test"], run_dir).rows
    with pytest.raises(MissingDataError, match="atrl-bench run-table main_7b --rows dapo"):
        compare_models("main_7b:dapo", "main_7b:grpo", ["geoqa_test"], run_dir)


def test_what_is_told_of_tables_without_a_profile_is_told_under_theirs(run_dir, tmp_path):
    commands = (
        ["explain", "main_7b", "grpo", "geoqa_test"],
        ["compare", "main_7b:grpo", "main_7b:zero_shot", "--task", "geoqa_test"],
        ["export", "card", "--to", str(tmp_path)],
        ["export", "scores", "--to", str(tmp_path)],
    )
    for words in commands:
        done = CliRunner().invoke(app(), [*words, "--out", str(run_dir.root), "--data-dir", str(run_dir.given_data)])
        assert done.exit_code == 0, done.output
        assert "not run" not in done.output
    cards = [path.read_text() for path in tmp_path.glob("cards/*/README.md")]
    assert len(cards) == 2
    assert all("under its profile `smoke`" in card for card in cards)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "scores.parquet"), atrl_bench.frame(run_dir))


def test_answers_are_exported_by_table_row_recipe_credit_and_seed(run_dir, tmp_path):
    answers = pd.read_parquet(export(run_dir, "parquet", out=tmp_path)[0])
    assert list(answers.columns[:7]) == ["table", "row", "label", "recipe", "credit", "seed", "task"]
    right = answers.assign(right=answers.state == "correct").groupby(["row", "seed"], dropna=False)["right"].sum()
    assert right.tolist() == [2, 3, 1]  # grpo with seeds 0 and 1, then the model that was not trained
    lines = [json.loads(line) for line in export(run_dir, "jsonl", out=tmp_path)[0].read_text().splitlines()]
    assert [line["row"] for line in lines] == answers.row.tolist()

"""What a run folder measured, in other tools' forms."""

import json
from dataclasses import replace

import needs
import pandas as pd
import pyarrow.parquet as pq
import pytest
from stored import fill_cell

from atrl_bench.errors import StoreError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report import exports
from atrl_bench.report.exports import export
from atrl_bench.results.records import Gold, Problem, Response
from atrl_bench.results.store import Store

SPEC = {
    "kind": "evaluation",
    "task": "mathvista_testmini",
    "task_version": "1.0-aaaa",
    "split": "testmini",
    "model_name": "Qwen/Qwen2.5-VL-7B-Instruct",
    "model_digest": "d",
    "prompt_version": "p",
    "grader_version": "2",
    "judge": None,
    "limit": None,
    "profile": "paper",
    "decoding": {"repeats": 2, "temperature": 0.1, "top_p": 1.0, "max_new_tokens": 4096},
    "run_seed": 0,
}


def run_dir(folder):
    return RunDir.at(folder, load_profile("paper"))


@pytest.fixture
def run_folder(tmp_path):
    """A finished cell of four problems, two of them right at first and three at the second repeat."""
    problems = [Problem(f"p{i}", f"g{i}", "How many?", Gold("3")) for i in range(4)]
    with Store.open(tmp_path / "store.sqlite") as store:
        fill_cell(store, SPEC, "++--", "+++-", problems=problems, text="=cmd() \\boxed{3}")
    return tmp_path


def test_samples_come_out_alike_as_parquet_and_as_json_lines(run_folder):
    parquet, cells = export(run_dir(run_folder), "parquet")
    jsonl, _ = export(run_dir(run_folder), "jsonl", out=run_folder / "elsewhere")
    assert list(json.loads(cells.read_text()).values()) == [SPEC]
    assert parquet == run_folder / "exports" / "samples.parquet"
    rows = pq.read_table(parquet).to_pylist()
    lines = [json.loads(line) for line in jsonl.read_text().splitlines()]
    assert len(rows) == len(lines) == 8
    assert [row["text"] for row in rows] == [line["text"] for line in lines]
    assert [row["score"] for row in rows] == [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    assert "prompt_version" not in jsonl.read_text(), "the setting of a cell is not repeated in every line"


def test_every_form_obeys_the_folder_it_is_told(run_folder, tmp_path_factory):
    forms = ("parquet", "jsonl", "scores", "inspect")
    before = set(run_folder.rglob("*"))
    for form in forms:
        to = tmp_path_factory.mktemp("to")
        assert all(path.is_relative_to(to) for path in export(run_dir(run_folder), form, out=to)), form
    assert {path for path in run_folder.rglob("*") if "sqlite" not in path.name} <= before


@pytest.mark.parametrize("form", ["parquet", "jsonl", "scores", "inspect"])
def test_an_export_to_what_is_a_file_asks_for_another_to(run_folder, form):
    with pytest.raises(StoreError, match=r"Cannot write the export to .*store\.sqlite") as refused:
        export(run_dir(run_folder), form, out=run_folder / "store.sqlite")
    assert refused.value.next_step == "use a folder you can write to with --to"


def test_an_inspect_log_has_every_answer_as_a_sample(run_folder):
    (path,) = export(run_dir(run_folder), "inspect")
    log = json.loads(path.read_text())
    assert log["eval"]["task"] == "mathvista_testmini"
    assert [(one["id"], one["epoch"]) for one in log["samples"][:2]] == [("p0", 1), ("p0", 2)]
    assert [one["scores"]["atrl_bench"]["value"] for one in log["samples"]] == list("CCCCICII")
    assert log["results"]["scores"][0]["metrics"]["mean@2"]["value"] == 0.625


@needs.inspect_ai
def test_inspects_own_reader_opens_the_log(run_folder):
    from inspect_ai import log as inspect_log

    (path,) = export(run_dir(run_folder), "inspect")
    log = inspect_log.read_eval_log(str(path))
    assert log.eval.model == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert [sample.output.completion for sample in log.samples] == ["=cmd() \\boxed{3}"] * 8
    assert inspect_log.list_eval_logs(str(path.parent))[0].task == "mathvista-testmini"


def test_a_sample_without_a_verdict_is_exported_without_a_score(run_folder):
    with Store.open(run_folder / "store.sqlite") as store:
        (cell,) = store.cells()
        extra = replace(store.problems(cell.key)[0], problem_id="late")
        store.add_problems(cell.key, [extra])
        store.add_responses(cell.key, [Response("late", 0, "h", "?", 1, 0.1, False)])
    path, _ = export(run_dir(run_folder), "parquet")
    assert pq.read_table(path).to_pylist()[-1]["score"] is None


def test_answers_in_several_groups_of_rows_are_each_there_once(run_folder, monkeypatch):
    whole = pd.read_parquet(export(run_dir(run_folder), "parquet")[0])
    monkeypatch.setattr(exports, "ROWS_AT_ONCE", 3)
    [path, _] = export(run_dir(run_folder), "parquet")
    assert pq.ParquetFile(path).num_row_groups == 3  # of 3, 3 and 2 answers
    pd.testing.assert_frame_equal(pd.read_parquet(path), whole)

"""What a run folder measured, in other tools' forms: samples, the hub's result files, and a manifest."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml, parse_eval_result_entries

from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.exports import check_manifest, eval_results, export, export_text, write_manifest
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.store import Store

DECODING = {"repeats": 2, "temperature": 0.1, "max_new_tokens": 4096}
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
    "decoding": DECODING,
}


def fill(store: Store, **changes) -> str:
    """Add a finished cell of four problems, two of them right at first and three at the second repeat."""
    key = store.add_cell(SPEC | changes)
    store.add_problems(key, [Problem(f"p{i}", f"g{i}", "How many?", Gold("3")) for i in range(4)])
    at = [(i, repeat) for i in range(4) for repeat in range(2)]
    store.add_responses(key, [Response(f"p{i}", r, "h", "=cmd() \\boxed{3}", 5, 0.1, False) for i, r in at])
    states = ["correct" if i < 2 + r else "wrong" for i, r in at]
    store.add_verdicts(key, {(f"p{i}", r): Verdict(s, "3", "fast", "w") for (i, r), s in zip(at, states, strict=True)})
    store.finish_cell(key, expected=8)
    return key


def run_dir(folder):
    return RunDir.at(folder, load_profile("paper"))


@pytest.fixture
def run_folder(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as store:
        fill(store)
    return tmp_path


def test_samples_come_out_alike_as_parquet_and_as_json_lines(run_folder):
    (parquet,) = export(run_dir(run_folder), "parquet")
    (jsonl,) = export(run_dir(run_folder), "jsonl", out=run_folder / "elsewhere")
    assert parquet == run_folder / "exports" / "samples.parquet"
    rows = pq.read_table(parquet).to_pylist()
    lines = [json.loads(line) for line in jsonl.read_text().splitlines()]
    assert len(rows) == len(lines) == 8
    assert [row["text"] for row in rows] == [line["text"] for line in lines]
    assert [row["score"] for row in rows] == [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    assert "samples.jsonl (" in export_text([jsonl])


def test_eval_results_are_what_the_hub_documents(run_folder):
    (path,) = export(run_dir(run_folder), "eval-results")
    assert path == run_folder / "exports" / ".eval_results" / "Qwen__Qwen2.5-VL-7B-Instruct.yaml"
    content = yaml.safe_load(path.read_text())
    # The hub's own reader takes it, and its writer gives the same back.
    entries = parse_eval_result_entries(content)
    assert eval_result_entries_to_yaml(entries) == content
    (entry,) = entries
    assert isinstance(entry, EvalResultEntry)
    assert (entry.dataset_id, entry.task_id) == ("AI4Math/MathVista", "mathvista_testmini")
    assert entry.value == 62.5  # (2 + 3) / 8
    assert "rule grader, no judge" in entry.notes
    assert "95 % interval ±" in entry.notes
    assert entry.date is None


def test_results_without_meaning_elsewhere_are_left_out(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as store:
        fill(store, profile="smoke")  # a generated twin
        fill(store, limit=4)  # not the whole benchmark
        fill(store, task="geoqa_test")  # not on the hub
        store.add_cell(SPEC | {"model_name": "unfinished"})
        assert eval_results(store) == {}
    with pytest.raises(MissingDataError, match="generated twins"):
        export(run_dir(tmp_path), "eval-results")


def test_a_model_name_cannot_lead_out_of_the_folder(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as store:
        fill(store, model_name="../../etc/passwd")
    (path,) = export(run_dir(tmp_path), "eval-results")
    assert path.parent == tmp_path / "exports" / ".eval_results"


def test_a_folder_without_a_store_is_told_how_to_get_one(tmp_path):
    with pytest.raises(MissingDataError, match="run-table main_7b --profile paper --out"):
        export(run_dir(tmp_path), "jsonl")


def test_a_manifest_names_every_file_and_finds_what_changed(run_folder):
    (run_folder / "reports").mkdir()
    (run_folder / "reports" / "a.html").write_text("one")
    path = write_manifest(run_folder)
    files = json.loads(path.read_text())["files"]
    assert set(files) == {"store.sqlite", "reports/a.html"}
    # sha256 of "one"
    assert files["reports/a.html"]["sha256"].startswith("7692c3ad3540bb80")
    assert check_manifest(run_folder) == []
    assert write_manifest(run_folder).read_text() == path.read_text()

    (run_folder / "reports" / "a.html").write_text("two")
    (run_folder / "reports" / "b.html").write_text("new")
    (run_folder / "store.sqlite").unlink()
    assert check_manifest(run_folder) == [
        "reports/a.html has changed",
        "reports/b.html is new",
        "store.sqlite is missing",
    ]


def test_a_manifest_is_checked_only_where_there_is_one(tmp_path):
    with pytest.raises(MissingDataError, match="export manifest --out"):
        check_manifest(tmp_path)


def test_a_sample_without_a_verdict_is_exported_without_a_score(run_folder):
    with Store.open(run_folder / "store.sqlite") as store:
        (cell,) = store.cells()
        extra = replace(store.problems(cell.key)[0], problem_id="late")
        store.add_problems(cell.key, [extra])
        store.add_responses(cell.key, [Response("late", 0, "h", "?", 1, 0.1, False)])
    (path,) = export(run_dir(run_folder), "parquet")
    assert pq.read_table(path).to_pylist()[-1]["score"] is None

"""What a run folder measured, in other tools' forms: samples, the hub's result files, and a manifest."""

import json
from dataclasses import replace

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml, parse_eval_result_entries

from atrl_bench.cli.printing import text_of
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report import sample_exports
from atrl_bench.report.exports import check_manifest, eval_results, export, write_manifest
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
    parquet, cells = export(run_dir(run_folder), "parquet").paths
    exported = export(run_dir(run_folder), "jsonl", out=run_folder / "elsewhere")
    jsonl, _ = exported.paths
    assert list(json.loads(cells.read_text()).values()) == [SPEC]
    assert parquet == run_folder / "exports" / "samples.parquet"
    rows = pq.read_table(parquet).to_pylist()
    lines = [json.loads(line) for line in jsonl.read_text().splitlines()]
    assert len(rows) == len(lines) == 8
    assert [row["text"] for row in rows] == [line["text"] for line in lines]
    assert [row["score"] for row in rows] == [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    assert "samples.jsonl (" in " ".join(text_of(exported).split())


def test_the_setting_of_a_cell_is_not_repeated_in_every_line(run_folder):
    path, _ = export(run_dir(run_folder), "jsonl").paths
    assert "prompt_version" not in path.read_text()


def test_every_form_obeys_the_folder_it_is_told(run_folder, tmp_path_factory):
    forms = ("parquet", "jsonl", "scores", "inspect", "lmms-eval", "eval-results", "manifest")
    before = set(run_folder.rglob("*"))
    for form in forms:
        to = tmp_path_factory.mktemp("to")
        assert all(path.is_relative_to(to) for path in export(run_dir(run_folder), form, out=to).paths), form
    assert {path for path in run_folder.rglob("*") if "sqlite" not in path.name} <= before


def test_an_inspect_log_has_every_answer_as_a_sample(run_folder):
    (path,) = export(run_dir(run_folder), "inspect").paths
    log = json.loads(path.read_text())
    assert log["eval"]["task"] == "mathvista_testmini"
    assert [(one["id"], one["epoch"]) for one in log["samples"][:2]] == [("p0", 1), ("p0", 2)]
    assert [one["scores"]["atrl_bench"]["value"] for one in log["samples"]] == list("CCCCICII")
    assert log["results"]["scores"][0]["metrics"]["mean@2"]["value"] == 0.625


def test_inspects_own_reader_opens_the_log(run_folder):
    inspect_log = pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed")
    (path,) = export(run_dir(run_folder), "inspect").paths
    log = inspect_log.read_eval_log(str(path))
    assert log.eval.model == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert [sample.output.completion for sample in log.samples] == ["=cmd() \\boxed{3}"] * 8
    assert inspect_log.list_eval_logs(str(path.parent))[0].task == "mathvista-testmini"


def test_lmms_evals_sample_files_have_a_line_a_problem(run_folder):
    (path,) = export(run_dir(run_folder), "lmms-eval").paths
    assert path.name.endswith("_samples_atrl_mathvista_testmini.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["doc_id"] for line in lines] == [0, 1, 2, 3]
    assert [len(line["filtered_resps"]) for line in lines] == [2, 2, 2, 2]
    assert [line["mean_at_n"]["score"] for line in lines] == [1.0, 1.0, 0.5, 0.0]


def test_eval_results_are_what_the_hub_documents(run_folder):
    (path,) = export(run_dir(run_folder), "eval-results").paths
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
        fill(store, profile="smoke")  # a synthetic benchmark
        fill(store, limit=4)  # not the whole benchmark
        fill(store, task="geoqa_test")  # not on the hub
        store.add_cell(SPEC | {"model_name": "unfinished"})
        assert eval_results(store) == {}
    with pytest.raises(MissingDataError, match="synthetic benchmarks"):
        export(run_dir(tmp_path), "eval-results")


def test_a_model_name_cannot_lead_out_of_the_folder(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as store:
        fill(store, model_name="../../etc/passwd")
    (path,) = export(run_dir(tmp_path), "eval-results").paths
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
    assert check_manifest(run_folder).document() == []
    assert " ".join(text_of(check_manifest(run_folder)).split()) == f"{run_folder} is what its manifest says."
    assert write_manifest(run_folder).read_text() == path.read_text()

    (run_folder / "reports" / "a.html").write_text("two")
    (run_folder / "reports" / "b.html").write_text("new")
    (run_folder / "store.sqlite").unlink()
    assert check_manifest(run_folder).document() == [
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
    path, _ = export(run_dir(run_folder), "parquet").paths
    assert pq.read_table(path).to_pylist()[-1]["score"] is None


def test_answers_in_several_groups_of_rows_are_each_there_once(run_folder, monkeypatch):
    whole = pd.read_parquet(export(run_dir(run_folder), "parquet").paths[0])
    monkeypatch.setattr(sample_exports, "ROWS_AT_ONCE", 3)
    [path, _] = export(run_dir(run_folder), "parquet").paths
    assert pq.ParquetFile(path).num_row_groups == 3  # of 3, 3 and 2 answers
    pd.testing.assert_frame_equal(pd.read_parquet(path), whole)

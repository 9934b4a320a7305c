"""ChartMimic's two tasks: their rows, their twin, their archive, and the refusal to start without isolation."""

import json

import needs
import pyarrow.parquet as pq
import pytest
from hub_layouts import tarred

from atrl_bench.data.archives import unpack
from atrl_bench.errors import AtrlBenchError, InvalidFileError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.grading.scorers.charts.scoring import score_many
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

NAMES = ["chartmimic_direct_600", "chartmimic_customized_600"]
task = find_task(NAMES[0]).module


ROW = {
    "id": "bar_1",
    "chart_type": "bar",
    "instruction": "",
    "width": 4.0,
    "height": 2.5,
    "figure": None,
    "code": "import matplotlib.pyplot as plt\nplt.bar(['a'], [1])",
}


# Rows -------------------------------------------------------------------------------------------------------------


def test_the_direct_question_names_the_size_and_the_form_of_the_answer():
    text = task.doc_to_text(ROW, {"run_seed": 3})
    assert text.startswith("Write a Python program that draws the chart in the image")
    assert "figsize=(4, 2.5)" in text
    assert "```python" in text
    assert "boxed" not in text


def test_a_customized_question_is_the_row_s_instruction():
    text = task.doc_to_text(ROW | {"instruction": "Draw a = {1} like this."})
    assert text.startswith("Draw a = {1} like this.\nSet the size")


def test_the_prompt_is_the_same_in_every_run():
    assert task.doc_to_text(ROW, {"run_seed": 0}) == task.doc_to_text(ROW, {"run_seed": 1})


# The twin ---------------------------------------------------------------------------------------------------------


def test_a_customized_program_draws_the_data_of_its_instruction(mini_world):
    for row in load_rows(find_task("chartmimic_customized_600"), mini_world):
        data = row["instruction"].split("\n", 1)[1]
        assert data in row["code"]


@needs.isolation
def test_a_synthetic_benchmark_s_gold_scores_1_and_a_damaged_one_less(problems_of, mini_world, monkeypatch):
    monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", "1")
    info = find_task(NAMES[0])
    gold, response = problems_of(info.name, mini_world)[0].gold, task.gold_response(load_rows(info, mini_world)[0])
    right, wrong = score_many([(response, gold), (response.replace("Digits of page", "Numbers on"), gold)])
    assert (right.state, right.score) == ("correct", 1.0)
    assert wrong.state == "wrong"
    assert 0.75 < wrong.points < 1.0


@needs.isolation
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_gold_of_a_synthetic_benchmark_scores_1(name, problems_of, mini_world, monkeypatch):
    monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", "1")
    # Two charts of each kind: a program takes a second.
    pairs = list(zip(load_rows(find_task(name), mini_world), problems_of(name, mini_world), strict=True))[:8]
    verdicts = score_many([(find_task(name).module.gold_response(row), problem.gold) for row, problem in pairs])
    assert [verdict.why for verdict in verdicts if verdict.state != "correct"] == []


# Without isolation ------------------------------------------------------------------------------------------------


def test_without_permission_a_cell_fails_before_any_answer(tmp_path, mini_world, monkeypatch):
    from atrl_bench.models import local

    monkeypatch.delenv("ATRL_BENCH_ALLOW_CODE", raising=False)
    monkeypatch.setattr(local, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    with Store.open(tmp_path / "results.sqlite") as store:
        with pytest.raises(AtrlBenchError, match="--allow-code"):
            evaluate("mini", NAMES[0], store=store, profile=load_profile("smoke"), data_dir=mini_world)
        [cell] = store.cells(task=NAMES[0])
        assert cell.state == "failed"
        assert list(store.responses(cell.key)) == []


# Its files --------------------------------------------------------------------------------------------------------


def converted(folder, members):
    """The folder of the tables that are made of an archive with these files, fetched as the task's file says."""
    (folder / "sizes.jsonl").write_text(json.dumps(SIZES))
    (folder / "edit.jsonl").write_text(json.dumps(SIZES | {"instruction": "Draw b."}))
    (folder / "a.tar.gz").write_bytes(tarred({f"dataset-iclr/{name}": content for name, content in members.items()}))
    unpack(folder / "a.tar.gz", folder / "charts")
    task.convert(folder / "charts", folder / "sizes.jsonl", folder / "edit.jsonl", folder / "chartmimic")
    return folder / "chartmimic"


CHARTS = {
    "direct_600/bar_1.py": b"import a",
    "direct_600/bar_1.png": b"the picture",
    "direct_600/bar_1.pdf": b"not needed",
    "direct_1800/bar_2.py": b"of another set",
    "customized_600/bar_1.py": b"import b",
    "customized_600/bar_1.png": b"what b draws",
}
SIZES = {"idx": "bar_1", "width": 4, "height": 3}


def test_the_archive_becomes_two_files_and_a_customized_row_shows_the_direct_chart(tmp_path):
    tables = converted(tmp_path, CHARTS)
    [direct] = pq.read_table(tables / "direct_600.parquet").to_pylist()
    [customized] = pq.read_table(tables / "customized_600.parquet").to_pylist()
    assert (direct["code"], direct["instruction"], direct["figure"]["bytes"]) == ("import a", "", b"the picture")
    assert (customized["code"], customized["instruction"]) == ("import b", "Draw b.")
    assert customized["figure"]["bytes"] == b"the picture"
    assert find_task(NAMES[1]).split == "customized_600"
    info = find_task(NAMES[0])
    assert [row["id"] for row in load_rows(info, tmp_path)] == ["bar_1"]


@pytest.mark.parametrize("missing", ["direct_600/bar_1.py", "direct_600/bar_1.png"])
def test_a_chart_without_its_program_or_its_picture_is_an_error(tmp_path, missing):
    with pytest.raises(InvalidFileError, match="bar_1 of direct_600 is incomplete"):
        converted(tmp_path, {name: content for name, content in CHARTS.items() if name != missing})

"""ChartMimic's two tasks: their rows, their twin, their archive, and the refusal to start without isolation."""

import io
import json
import tarfile

import needs
import pytest

from atrl_bench.errors import AtrlBenchError, InvalidFileError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.data import load_rows, to_problem
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


def problems_of(name, data_dir):
    info = find_task(name)
    rows = load_rows(info, data_dir)
    return info, rows, [to_problem(info, row) for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_a_synthetic_benchmark_names_every_chart_once_and_its_pictures_open(name, mini_world):
    info, rows, problems = problems_of(name, mini_world)
    assert len({problem.problem_id for problem in problems}) == len(problems) > 0
    assert {problem.meta["chart_type"] for problem in problems} <= {"bar", "barh", "plot", "scatter"}
    assert all(image.size == (224, 168) for row in rows for image in info.module.images(row))


def test_a_customized_program_draws_the_data_of_its_instruction(mini_world):
    _, rows, _ = problems_of("chartmimic_customized_600", mini_world)
    for row in rows:
        data = row["instruction"].split("\n", 1)[1]
        assert data in row["code"]


@needs.isolation
def test_a_synthetic_benchmark_s_gold_scores_1_and_a_damaged_one_less(mini_world, monkeypatch):
    monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", "1")
    info, rows, problems = problems_of(NAMES[0], mini_world)
    gold, response = problems[0].gold, info.module.gold_response(rows[0])
    right, wrong = score_many([(response, gold), (response.replace("Digits of page", "Numbers on"), gold)])
    assert (right.state, right.score) == ("correct", 1.0)
    assert wrong.state == "wrong"
    assert 0.75 < wrong.points < 1.0


@needs.isolation
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_gold_of_a_synthetic_benchmark_scores_1(name, mini_world, monkeypatch):
    monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", "1")
    info, rows, problems = problems_of(name, mini_world)
    # Two charts of each kind: a program takes a second.
    pairs = list(zip(rows, problems, strict=True))[:8]
    verdicts = score_many([(info.module.gold_response(row), problem.gold) for row, problem in pairs])
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


# The archive ------------------------------------------------------------------------------------------------------


def archive(path, *members):
    with tarfile.open(path, "w:gz") as out:
        for name, content, *kind in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if kind:
                info.type, info.linkname, info.size = kind[0], "/etc/passwd", 0
            out.addfile(info, io.BytesIO(content))
    return path


def table(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


CHARTS = (
    ("direct_600/bar_1.py", b"import a"),
    ("direct_600/bar_1.png", b"the picture"),
    ("direct_600/bar_1.pdf", b"not needed"),
    ("customized_600/bar_1.py", b"import b"),
    ("customized_600/bar_1.png", b"what b draws"),
)
SIZES = {"idx": "bar_1", "width": 4, "height": 3}


def test_the_archive_becomes_two_files_and_a_customized_row_shows_the_direct_chart(tmp_path):
    import pyarrow.parquet as pq

    instructions = table(tmp_path / "edit.jsonl", SIZES | {"instruction": "Draw b."})
    sizes = table(tmp_path / "sizes.jsonl", SIZES)
    task.convert(archive(tmp_path / "a.tar.gz", *CHARTS), sizes, instructions, tmp_path / "chartmimic")
    [direct] = pq.read_table(tmp_path / "chartmimic" / "direct_600.parquet").to_pylist()
    [customized] = pq.read_table(tmp_path / "chartmimic" / "customized_600.parquet").to_pylist()
    assert (direct["code"], direct["instruction"], direct["figure"]["bytes"]) == ("import a", "", b"the picture")
    assert (customized["code"], customized["instruction"]) == ("import b", "Draw b.")
    assert customized["figure"]["bytes"] == b"the picture"
    assert find_task(NAMES[1]).split == "customized_600"
    info = find_task(NAMES[0])
    assert [row["id"] for row in load_rows(info, tmp_path)] == ["bar_1"]


def test_links_and_names_outside_the_folders_are_passed_over(tmp_path):
    files = task.read_archive(
        archive(
            tmp_path / "a.tar.gz",
            *CHARTS,
            ("direct_600/../../escape.py", b"x"),
            ("/direct_600/bar_2.py", b"x"),
            ("direct_600/bar_3.py", b"", tarfile.SYMTYPE),
            ("direct_600/bar_4.py", b"", tarfile.LNKTYPE),
            ("direct_600/bar_5.py", b"", tarfile.FIFOTYPE),
            ("direct_1800/bar_6.py", b"x"),
        )
    )
    assert {name: list(folder) for name, folder in files.items()} == {
        "direct_600": ["bar_1"],
        "customized_600": ["bar_1"],
    }


def test_an_archive_that_is_too_large_is_refused(tmp_path, monkeypatch):
    path = archive(tmp_path / "a.tar.gz", *CHARTS)
    monkeypatch.setattr(task, "MAX_FILE_BYTES", 9)
    with pytest.raises(InvalidFileError, match=r"bar_1\.png .* has 11 bytes"):
        task.read_archive(path)
    monkeypatch.setattr(task, "MAX_ARCHIVE_BYTES", 1000)
    with pytest.raises(InvalidFileError, match="more than"):
        task.read_archive(path)


def test_a_chart_without_its_program_is_an_error(tmp_path):
    sizes = table(tmp_path / "sizes.jsonl", SIZES)
    with pytest.raises(InvalidFileError, match="bar_1 of direct_600 is incomplete"):
        task.convert(archive(tmp_path / "a.tar", *CHARTS[1:]), sizes, sizes, tmp_path)

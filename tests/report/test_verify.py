"""`atrl-bench verify`: what of a run folder is whole, and what mends the rest."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from stored import fill_cell

from atrl_bench import escape
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.mini import BASE
from atrl_bench.models.local import DONE, find_model
from atrl_bench.profiles import load_profile
from atrl_bench.report import rendered
from atrl_bench.report.rendered import PageRecord
from atrl_bench.report.verify import verify
from atrl_bench.results.store import Judgement


@pytest.fixture
def run_dir(tmp_path):
    """A run folder with two answers, a checkpoint and a page."""
    run_dir = RunDir.at(tmp_path / "run", load_profile("smoke"))
    folder = run_dir.checkpoints / "0123456789abcdef"
    shutil.copytree(BASE, folder)
    digest = find_model(folder).digest
    (folder / DONE).write_text(json.dumps({"digest": digest, "seconds": 1.0, "summary": {}}))
    run_dir.reports.mkdir()
    (run_dir.reports / "table.html").write_text("<html><p>1</p></html>\n")
    with run_dir.open_store() as store:
        fill_cell(store, {"task": "geoqa_test"}, "++")
        run = store.add_run({"recipe": "grpo"})
        checkpoint = str(folder.relative_to(run_dir.root))
        store.finish_run(run, checkpoint=checkpoint, digest=digest, seconds=1.0, summary={})
    return run_dir


def test_a_whole_run_folder_is_whole(run_dir):
    verification = verify(run_dir)
    assert verification.is_whole
    assert verification.looked_at == {"answers": 2, "verdicts": 2, "checkpoints": 1, "pages": 1}


def test_a_changed_answer_is_named_and_dropped_to_be_asked_for_again(run_dir):
    with sqlite3.connect(run_dir.store_path) as database:
        database.execute("UPDATE answers SET text = '2' WHERE problem = 2")
    [damage] = verify(run_dir).damages
    assert "1 answers are not what was stored, the first to problem 'p1'" in damage.what
    assert damage.next == f"atrl-bench verify --repair {run_dir.options}"
    assert verify(run_dir, repair=True).is_whole
    with run_dir.open_store() as store:
        [cell] = store.cells()
    assert (cell.state, cell.num_responses, cell.num_graded) == ("pending", 1, 1)


def test_a_wrong_count_of_answers_is_named_and_counted_again(run_dir):
    with sqlite3.connect(run_dir.store_path) as database:
        database.execute("UPDATE counts SET graded = 7")
    [damage] = verify(run_dir).damages
    assert damage.next == f"atrl-bench verify --repair {run_dir.options}"
    assert verify(run_dir, repair=True).is_whole
    assert verify(run_dir).is_whole


@pytest.mark.parametrize(("name", "content"), [("model.safetensors", b"cut"), ("config.json", b"{}")])
def test_a_changed_checkpoint_is_named_and_a_deleted_one_is_not_missed(run_dir, name, content):
    folder = run_dir.checkpoints / "0123456789abcdef"
    (folder / name).write_bytes(content)
    [damage] = verify(run_dir).damages
    assert (damage.part, damage.next) == ("checkpoints/0123456789abcdef", f"rm -r {folder}")
    shutil.rmtree(folder)
    assert verify(run_dir).is_whole


def test_a_page_that_was_cut_off_is_rendered_again(run_dir):
    (run_dir.reports / "table.html").write_text("<html><p>1")
    (run_dir.reports / "table.json").write_text("{")
    damages = verify(run_dir).damages
    assert [one.part for one in damages] == ["reports/table.html", "reports/table.json"]
    assert {one.what for one in damages} == {"is cut off"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE verdicts SET state = 'wrong' WHERE state = 'correct'", "2 verdicts are not what was stored"),
        ("UPDATE verdicts SET score = 1", "2 verdicts are not what was stored"),
        ("UPDATE problems SET gold = 'another'", "2 problems are not what was stored"),
        ("UPDATE problems SET meta = '{}'", "2 problems are not what was stored"),
        ("UPDATE judgements SET state = 'correct'", "1 judgements are not what was stored"),
        ("UPDATE cells SET spec = '{}'", "is described by other settings than its key names"),
        ("UPDATE runs SET spec = '{}'", "is described by other settings than its key names"),
    ],
)
def test_what_was_changed_in_the_store_is_named(run_dir, change, words):
    with run_dir.open_store() as store:
        store.add_judgements("judge", [Judgement("question", "wrong", "it said so", 1.0)])
    assert verify(run_dir).is_whole
    with sqlite3.connect(run_dir.store_path) as database:
        database.execute(change)
    [damage] = verify(run_dir).damages
    assert words in damage.what


def test_verdicts_and_judgements_that_were_changed_are_dropped_and_problems_are_read_again(run_dir):
    with run_dir.open_store() as store:
        store.add_judgements("judge", [Judgement("question", "wrong", "it said so", 1.0)])
        [cell] = store.cells()
        problems = store.problems(cell.key)
    with sqlite3.connect(run_dir.store_path) as database:
        database.execute("UPDATE verdicts SET state = 'wrong' WHERE problem = 2")
        database.execute("UPDATE judgements SET why = ''")
        database.execute("UPDATE problems SET gold = 'another' WHERE problem_id = 'p0'")
    assert [damage.what for damage in verify(run_dir, repair=True).damages] == [
        "1 problems are not what was stored, the first 'p0'"
    ]
    with run_dir.open_store() as store:
        [cell] = store.cells()
        assert (cell.state, cell.num_graded, store.judgements("judge", ["question"])) == ("pending", 1, {})
        store.add_problems(cell.key, problems)  # as the next evaluation does
        assert store.problems(cell.key) == problems
    assert verify(run_dir).is_whole


def test_bits_that_rot_in_weights_are_found_although_size_and_time_are_the_same(run_dir):
    weights = run_dir.checkpoints / "0123456789abcdef" / "model.safetensors"
    assert verify(run_dir).is_whole
    before = weights.stat()
    content = bytearray(weights.read_bytes())
    content[-4096:] = bytes(byte ^ 1 for byte in content[-4096:])
    with weights.open("r+b") as file:
        file.write(content)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    [damage] = verify(run_dir).damages
    assert damage.part == "checkpoints/0123456789abcdef"


def test_a_damaged_checkpoint_of_a_row_that_failed_for_it_is_named_too(run_dir):
    with run_dir.open_store() as store:
        [run] = store.runs()
        store.fail_run(run.key, "the checkpoint is not what its training left there")
    (run_dir.checkpoints / "0123456789abcdef" / "config.json").write_text("{}")
    [damage] = verify(run_dir).damages
    assert damage.part == "checkpoints/0123456789abcdef"


def test_a_page_is_rendered_anew_where_the_table_of_latex_escapes_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(rendered, "PACKAGE", tmp_path)
    monkeypatch.setattr(rendered, "_code", rendered._code.__wrapped__)  # without what it remembers
    shutil.copy(escape.__file__, tmp_path)
    table = Path(shutil.copy(Path(escape.__file__).with_suffix(".json"), tmp_path))
    before = rendered.page_key("a page")
    assert rendered.page_key("a page") == before
    table.write_text("{}")
    assert rendered.page_key("a page") != before


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_a_page_that_is_not_what_was_written_is_named(run_dir, change):
    page = run_dir.reports / "samples" / "main" / "p.html"
    page.parent.mkdir(parents=True)
    page.write_text("<html>1.0</html>\n")
    with run_dir.open_store() as store:
        PageRecord(store, "samples/main/row.column", "key").keep(page.parent, [{"name": "p.html"}])
    assert verify(run_dir).is_whole
    if change == "gone":
        page.unlink()
    else:
        page.write_text("<html>9.9</html>\n")
    [damage] = verify(run_dir).damages
    assert (damage.part, damage.next) == ("reports/samples/main/p.html", f"atrl-bench report all {run_dir.options}")

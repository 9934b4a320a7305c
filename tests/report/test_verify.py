"""`atrl-bench verify`: what of a run folder is whole, and what mends the rest."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest
from stored import fill_cell

from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.mini import BASE
from atrl_bench.models.local import DONE, find_model
from atrl_bench.profiles import load_profile
from atrl_bench.report.verify import verify


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
    assert verification.looked_at == {"answers": 2, "checkpoints": 1, "pages": 1}


def test_a_changed_answer_is_named_and_dropped_to_be_asked_for_again(run_dir):
    with sqlite3.connect(run_dir.store_path) as database:
        database.execute("UPDATE responses SET text = '2' WHERE problem_id = 'p1'")
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

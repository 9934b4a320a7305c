"""`atrl-bench verify`: what of a run folder is whole, and what mends the rest."""

from __future__ import annotations

import json
import shutil

import pytest

from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.mini import BASE
from atrl_bench.models.local import DONE, find_model
from atrl_bench.profiles import load_profile
from atrl_bench.report.verify import verify
from atrl_bench.results.records import Gold, Problem, Response, Verdict


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
        key = store.add_cell({"task": "geoqa_test"})
        store.add_problems(key, [Problem(name, name, "?", Gold("1")) for name in ("a", "b")])
        store.add_responses(key, [Response(name, 0, "hash", "1", 1, 0.1, False) for name in ("a", "b")])
        store.add_verdicts(key, {(name, 0): Verdict("correct", "1", "fast", "same") for name in ("a", "b")})
        store.finish_cell(key, expected=2)
        run = store.add_run({"recipe": "grpo"})
        checkpoint = str(folder.relative_to(run_dir.root))
        store.finish_run(run, checkpoint=checkpoint, digest=digest, seconds=1.0, summary={})
    return run_dir


def test_a_whole_run_folder_is_whole(run_dir):
    verification = verify(run_dir)
    assert verification.is_whole
    assert verification.looked_at == {"answers": 2, "checkpoints": 1, "pages": 1}


def test_a_changed_answer_is_named_and_dropped_to_be_asked_for_again(run_dir):
    with run_dir.open_store() as store:
        store._connection.execute("UPDATE responses SET text = '2' WHERE problem_id = 'b'")
    [damage] = verify(run_dir).damages
    assert "1 answers are not what was stored, the first to problem 'b'" in damage.what
    assert damage.next == f"atrl-bench verify --repair {run_dir.options}"
    assert verify(run_dir, repair=True).is_whole
    with run_dir.open_store() as store:
        [cell] = store.cells()
    assert (cell.state, cell.num_responses, cell.num_graded) == ("pending", 1, 1)


def test_a_wrong_count_of_answers_is_named_and_counted_again(run_dir):
    with run_dir.open_store() as store:
        store._connection.execute("UPDATE counts SET graded = 7")
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
    assert {(one.part, one.what) for one in verify(run_dir).damages} == {
        ("reports/table.html", "is cut off"),
        ("reports/table.json", "is cut off"),
    }

"""Several processes on one evaluation."""

import json
from pathlib import Path

import pytest
from forks import launcher

from atrl_bench.engines.processes import Processes, launched
from atrl_bench.mini.world import write_world
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store


def content(path: Path) -> list:
    with Store.open(path) as store:
        (cell,) = store.cells()
        samples = store.samples(cell.key)
        return [cell.key, cell.expected] + [
            (s.problem, s.response.repeat, s.response.text, s.response.prompt_hash, s.verdict) for s in samples
        ]


@pytest.mark.slow
def test_two_processes_share_the_answers_and_end_like_one(tmp_path) -> None:
    data = write_world(tmp_path, load_profile("smoke"), ["geoqa"])
    reports = {}
    with launcher(Path(__file__).parent) as launch:
        for name, count in (("one", 1), ("two", 2)):
            (folder := tmp_path / name).mkdir()
            assert launch("launched_evaluation:process", count, folder, data) == [0] * count
            reports[name] = [json.loads(path.read_text()) for path in sorted(folder.glob("process-*.json"))]
    assert content(tmp_path / "one" / "store.sqlite") == content(tmp_path / "two" / "store.sqlite")
    assert reports["one"] == [{"state": "done", "num_answers": 30}]
    # Five batches of three problems with two repeats each: the first, third and fifth, and the two between.
    assert reports["two"] == [{"state": "done", "num_answers": 18}, {"state": "done", "num_answers": 12}]


def test_a_process_that_was_not_launched_is_the_only_one(monkeypatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # some clusters say so of every job
    launched.cache_clear()
    alone = launched()
    assert (alone, alone.is_main) == (Processes(0, 1), True)
    assert alone.agree("as it is") == alone.main_first(lambda: "as it is") == "as it is"

"""A store over the network: what is sent is there, what is refused says why, and nobody else gets in."""

from __future__ import annotations

import pytest

from atrl_bench.errors import StoreError
from atrl_bench.results import remote
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.remote import PLACE, TOKEN, RemoteStore, written_here
from atrl_bench.results.store import Store
from atrl_bench.results.working import is_worked_on

PROBLEMS = [Problem("a", "a", "1 + 1?", Gold("2")), Problem("b", "b", "ζ \ud800?", Gold("3", ["3", "4"]))]
RESPONSES = [Response("a", 0, "hash", "2", 1, 0.1 + 0.2, False), Response("b", 0, "hash", "lone \ud800", 4, 1.0, True)]
VERDICTS = {
    ("a", 0): Verdict("correct", "2", "rules", "equal"),
    ("b", 0): Verdict("judge failed", None, "judge", "silent"),
}


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as store:
        yield store


@pytest.fixture
def far(store, monkeypatch):
    """The same store, as another machine has it."""
    with written_here(store, "127.0.0.1") as writer:
        monkeypatch.setenv(TOKEN, writer.token)
        monkeypatch.setenv(PLACE, "node-7")
        with RemoteStore(store.path, writer.url) as remote_store:
            yield remote_store


def fill(store: Store) -> str:
    key = store.add_cell({"task": "sums", "model_name": "m"})
    store.add_problems(key, PROBLEMS)
    assert store.add_responses(key, RESPONSES) == 2
    assert store.add_responses(key, RESPONSES) == 0, "an answer that is there is never stored twice"
    store.add_verdicts(key, VERDICTS)
    store.finish_cell(key, expected=2)
    return key


def test_what_is_sent_is_what_a_store_of_this_machine_would_hold(store, far, tmp_path):
    with Store.open(tmp_path / "other.sqlite") as near:
        assert fill(far) == (key := fill(near))
        assert far.samples(key) == store.samples(key) == near.samples(key)
        assert far.responses(key)[("a", 0)].seconds == 0.1 + 0.2, "to the last bit"
        assert far.without_verdict(key) == [("judge", "silent")]
        assert store.cell(key).num_responses == 2


def test_a_heartbeat_says_where_the_work_is_and_the_writer_that_there_is_some(store, far):
    assert is_worked_on(store.path)
    far.heartbeat("run", "k", 1, 4)
    assert [(beat.key, beat.done, beat.place) for beat in store.progress()] == [("k", 1, "node-7")]


def test_when_the_writer_has_ended_nobody_works_on_the_store(store):
    with written_here(store, "127.0.0.1"):
        pass
    assert not is_worked_on(store.path)


def test_what_the_store_refuses_is_refused_with_its_words(far):
    with pytest.raises(StoreError, match="has no cell no-such-key") as refused:
        far.fail_cell("no-such-key", "because")
    assert str(refused.value).startswith("The result store")


def test_who_has_another_token_is_refused_and_has_changed_nothing(store, far, monkeypatch):
    monkeypatch.setenv(TOKEN, "guessed")
    with RemoteStore(store.path, far.url) as stranger, pytest.raises(StoreError, match="does not write this run"):
        stranger.add_cell({"task": "sums"})
    assert store.cells() == []


def test_no_query_reaches_another_file(far, tmp_path):
    with pytest.raises(StoreError, match="too many attached databases"):
        far._read("ATTACH DATABASE ? AS other", str(tmp_path / "other.sqlite"))
    assert not (tmp_path / "other.sqlite").exists()


def test_a_writer_that_has_ended_is_said_to_have_and_what_to_do(store, monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    with written_here(store, "127.0.0.1") as writer:
        pass
    with RemoteStore(store.path, writer.url) as orphan, pytest.raises(StoreError, match="does not answer") as refused:
        orphan.add_cell({"task": "sums"})
    assert "the same command again" in refused.value.next_step

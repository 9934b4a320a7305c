"""The store keeps what it returned from, whatever happens to the processes that write to it."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from stored import SPEC, changed_on_disk, start_writer

from atrl_bench.digests import spec_key
from atrl_bench.errors import StoreError
from atrl_bench.results import connection, schema
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.shared_store import SharedStore
from atrl_bench.results.store import Judgement, Store
from atrl_bench.results.write_lock import take


def response(problem_id: str, repeat: int = 0, text: str = "the answer is \\boxed{3}") -> Response:
    return Response(problem_id, repeat, "prompt", text, num_tokens=7, seconds=0.5, truncated=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "store.sqlite"


@pytest.fixture
def store(path: Path):
    with Store.open(path) as opened:
        yield opened


@pytest.fixture
def key(store: Store) -> str:
    key = store.add_cell(SPEC)
    store.add_problems(
        key, [Problem("p1", "g1", "one?", Gold("1")), Problem("p0", "g1", "zero?", Gold("0", ("0", "1")), {"level": 2})]
    )
    return key


def test_the_key_of_a_cell_ignores_the_order_of_its_settings_and_sees_every_value():
    assert spec_key({"a": 1, "b": {"c": 2, "d": 3}}) == spec_key({"b": {"d": 3, "c": 2}, "a": 1})
    assert spec_key({"a": 1}) != spec_key({"a": 2}) != spec_key({"a": "2"})


def test_samples_come_in_the_order_of_the_problems_then_of_the_repeats(store, key):
    store.add_responses(key, [response("p0", 1), response("p0", 0), response("p1", 0)])
    store.add_verdicts(key, {("p0", 1): Verdict("wrong", "3", "fast", "3 is not 0")})
    samples = store.samples(key)
    assert [(s.problem.problem_id, s.response.repeat, s.score) for s in samples] == [
        ("p1", 0, None),
        ("p0", 0, None),
        ("p0", 1, 0.0),
    ]
    assert samples[2].problem == Problem("p0", "g1", "zero?", Gold("0", ("0", "1")), {"level": 2})


def test_an_answer_that_is_there_is_never_replaced(store, key):
    assert store.add_responses(key, [response("p0", text="first")]) == 1
    assert store.add_responses(key, [response("p0", text="second"), response("p0", 1, text="third")]) == 1
    assert [sample.response.text for sample in store.samples(key)] == ["first", "third"]


def test_a_failed_judge_leaves_the_answer_unscored_until_it_has_spoken(store, key):
    store.add_responses(key, [response("p0")])
    store.add_verdicts(key, {("p0", 0): Verdict("judge failed", "3", "judge", "HTTP 503")})
    assert store.samples(key)[0].score is None
    store.add_verdicts(key, {("p0", 0): Verdict("correct", "3", "judge", "CORRECT")})
    assert store.samples(key)[0].score == 1.0


def test_the_first_verdict_on_a_question_stays_and_every_judge_has_its_own(store, path):
    store.add_judgements("judge", [Judgement("q1", "correct", "it says so", 1.0)])
    with Store.open(path) as other_process:
        other_process.add_judgements("judge", [Judgement("q1", "wrong", "", 2.0), Judgement("q2", "wrong", "", 2.0)])
    assert store.judgements("judge", ["q1", "q2", "q3"]) == {
        "q1": Judgement("q1", "correct", "it says so", 1.0),
        "q2": Judgement("q2", "wrong", "", 2.0),
    }
    assert store.judgements("another judge", ["q1"]) == {}


def test_adding_the_problems_again_changes_nothing(store, key):
    before = store.problems(key)
    store.add_problems(key, list(reversed(before)))
    assert store.problems(key) == before


def test_a_finished_cell_counts_what_it_holds(store, key):
    store.add_responses(key, [response("p0"), response("p1")])
    store.add_verdicts(key, {("p0", 0): Verdict("unparseable", None, "fast", "no box")})
    store.add_skipped(key, "p9", "the image does not decode")
    store.finish_cell(key, expected=2)
    cell = store.cell(key)
    assert (cell.state, cell.expected, cell.num_responses, cell.num_graded) == ("done", 2, 2, 1)
    assert store.skipped(key) == {"p9": "the image does not decode"}
    store.add_skipped(key, "p0", "it took too long to decode, before it was answered")
    assert list(store.skipped(key)) == ["p9"]
    assert [c.key for c in store.cells(task="geoqa_test", state="done")] == [key]
    assert store.cells(task="another") == store.cells(engine="vllm") == [], "a spec without the field does not match"


def test_the_store_counts_what_it_holds_without_looking(store, key):
    """Two of three answers are truncated; one verdict is replaced and one answer dropped with its own."""
    store.add_responses(key, [replace(response("p0", r), truncated=r > 0) for r in range(3)])
    store.add_responses(key, [response("p0", 0)])  # is there already
    store.add_verdicts(key, {("p0", r): Verdict("wrong", None, "fast", "") for r in range(3)})
    store.add_verdicts(key, {("p0", 0): Verdict("correct", "3", "fast", "")})
    cell = store.cell(key)
    assert (cell.num_problems, cell.num_responses, cell.num_truncated, cell.num_graded) == (2, 3, 2, 3)
    store.drop_responses(key, [("p0", 2)])
    cell = store.cell(key)
    assert (cell.num_problems, cell.num_responses, cell.num_truncated, cell.num_graded) == (2, 2, 1, 2)
    assert store.miscounted() == []


def test_a_cell_has_another_version_after_every_change_of_it_and_of_no_other(store, key):
    versions = [store.cell(key).version]
    for change in (
        lambda: store.add_responses(key, [response("p0")]),
        lambda: store.add_verdicts(key, {("p0", 0): Verdict("wrong", "3", "fast", "")}),
        lambda: store.add_verdicts(key, {("p0", 0): Verdict("correct", "3", "judge", "")}),
        lambda: store.add_skipped(key, "p9", "does not decode"),
        lambda: store.drop_responses(key, [("p0", 0)]),
        lambda: store.add_problems(key, [Problem("p8", "p8", "?", Gold("1"))]),
    ):
        change()
        versions.append(store.cell(key).version)
    assert len(set(versions)) == len(versions)
    other = store.add_cell({"task": "another"})
    store.add_problems(other, [Problem("p8", "p8", "?", Gold("1"))])
    store.finish_cell(key, expected=2)
    assert store.cell(key).version == versions[-1]


def test_scores_are_those_of_the_samples_and_read_no_answer(store, key):
    """p0: right, then a part of a point; p1: its judge failed, then not graded."""
    store.add_responses(key, [response(p, r) for p in ("p0", "p1") for r in range(2)])
    states = {("p0", 0): ("correct", None), ("p0", 1): ("wrong", 0.7), ("p1", 0): ("judge failed", None)}
    store.add_verdicts(key, {at: Verdict(state, "3", "fast", "", score) for at, (state, score) in states.items()})
    changed_on_disk(store, "UPDATE answers SET text = 'damaged'")
    answers = store.scores(key)
    assert [problem.problem_id for problem in answers.problems] == ["p1", "p0"]
    np.testing.assert_array_equal(answers.scores_PR, [[np.nan, np.nan], [1.0, 0.7]])
    assert answers.states == {"correct": 1, "wrong": 1, "judge failed": 1, "ungraded": 1}
    assert (answers.num_answers, answers.means()) == (4, {"p0": (1.0 + 0.7) / 2})


def test_samples_come_a_few_problems_at_a_time_in_their_order(store):
    key = store.add_cell({"task": "long"})
    names = [f"p{number}" for number in range(300)]  # by name p10 comes before p2
    store.add_problems(key, [Problem(name, name, "?", Gold("1")) for name in names])
    store.add_responses(key, [response(name, r) for name in names for r in range(2)])
    streamed = [(sample.problem.problem_id, sample.response.repeat) for sample in store.stream(key)]
    assert streamed == [(name, r) for name in names for r in range(2)]
    [_, second] = store.samples_of(key, store.problems(key)[7:8])
    assert (second.problem.problem_id, second.response.repeat) == ("p7", 1)


def test_a_failed_cell_says_why_and_can_still_be_finished(store, key):
    store.fail_cell(key, "2 % of the images do not decode")
    assert store.cell(key).reason == "2 % of the images do not decode"
    store.finish_cell(key, expected=2)
    assert (store.cell(key).state, store.cell(key).reason) == ("done", "")


def test_a_run_keeps_its_summary_and_turns_nan_into_nothing(store):
    key = store.add_run({"recipe": "grpo", "seed": 1})
    store.finish_run(
        key, checkpoint="abc/final", digest="d1", seconds=12.5, summary={"reward": 0.5, "loss": float("nan")}
    )
    run = store.run(key)
    assert (run.state, run.checkpoint, run.digest, run.seconds) == ("done", "abc/final", "d1", 12.5)
    assert run.summary == {"reward": 0.5, "loss": None}
    assert store.run("unknown") is None


def test_the_time_left_is_measured_from_the_first_beat_of_the_present_process(store, key, monkeypatch):
    clock = iter([100.0, 110.0, 5000.0, 5010.0])
    monkeypatch.setattr(time, "time", lambda: next(clock))
    store.heartbeat("cell", key, 20, 100)
    assert store.progress()[0].seconds_left is None
    store.heartbeat("cell", key, 40, 100)
    assert store.progress()[0].seconds_left == 30.0  # 20 in 10 s, so 60 in 30 s
    store.heartbeat("cell", key, 40, 100)  # resumed an hour later: the hour is not part of the speed
    store.heartbeat("cell", key, 50, 100)
    assert store.progress()[0].seconds_left == 50.0  # 10 in 10 s, so 50 in 50 s


@pytest.mark.parametrize(
    "text", ["a\0b", "\ud800", "\x1b[31mred", "\u202eright to left", "'; DROP TABLE cells; --", ""]
)
def test_any_text_of_a_model_can_be_stored(store, key, text):
    store.add_responses(key, [response("p0", 0, text)])
    assert store.responses(key)["p0", 0].text == ("\\ud800" if text == "\ud800" else text)


def test_a_response_to_an_unknown_problem_is_refused_and_its_batch_with_it(store, key):
    with pytest.raises(StoreError, match="problems before responses"):
        store.add_responses(key, [response("p0"), response("nobody asked")])
    assert store.responses(key) == {}


# What goes wrong


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("version", [0, schema.VERSION - 1, schema.VERSION + 1])
def test_a_store_of_another_version_is_left_alone_and_says_so(path, store, key, version, read_only):
    changed_on_disk(store, f"PRAGMA user_version = {version}")
    with pytest.raises(StoreError, match=rf"another version(.|\n)*of version {version};(.|\n)*pip install --upgrade"):
        Store.open(path, read_only=read_only)
    assert changed_on_disk(store, "PRAGMA user_version") == [(version,)]
    assert len(store.problems(key)) == 2


def test_a_part_of_a_point_is_kept_and_a_verdict_without_one_counts_in_full(path, store, key):
    store.add_responses(key, [response("p0"), response("p0", 1)])
    store.add_verdicts(key, {("p0", 0): Verdict("wrong", "4", "mra", "near", 0.7, {"mra": 0.7})})
    store.add_verdicts(key, {("p0", 1): Verdict("correct", "5", "fast", "same text")})
    assert [sample.score for sample in store.samples(key)] == [0.7, 1.0]
    assert store.samples(key)[0].verdict.details == {"mra": 0.7}


def test_a_file_that_is_no_store_is_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to look like one " * 40)
    with pytest.raises(StoreError, match="not a readable SQLite file"):
        Store.open(text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    for read_only in (False, True):
        with pytest.raises(StoreError, match="not a result store"):
            Store.open(other, read_only=read_only)
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_a_store_whose_pages_were_damaged_says_how_to_save_the_rest(path, store, key):
    store.add_responses(key, [response("p0", i, "x" * 3000) for i in range(20)])
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="recover"), Store.open(path) as damaged:
        damaged.samples(key)


@pytest.mark.parametrize(
    "change", ["text = substr(text, 2)", "num_tokens = 8", "truncated = 1", "prompt_hash = 'pronpt'"]
)
def test_an_answer_that_was_changed_on_disk_is_noticed_and_can_be_asked_for_again(store, key, change):
    store.add_responses(key, [response("p0"), response("p1")])
    store.add_verdicts(key, {("p0", 0): Verdict("correct", "3", "fast", "same")})
    store.finish_cell(key, expected=2)
    changed_on_disk(store, f"UPDATE answers SET {change} WHERE problem = 2")
    with pytest.raises(StoreError, match=r"problem 'p0', repeat 0(.|\n)*atrl-bench verify --repair"):
        store.samples(key)
    assert store.damaged(key) == [("p0", 0)]
    store.drop_responses(key, [("p0", 0)])
    assert [sample.problem.problem_id for sample in store.samples(key)] == ["p1"]
    assert (store.cell(key).state, store.cell(key).num_graded) == ("pending", 0)


def test_answers_alike_take_a_third_of_their_text(store, key):
    """Of forty words of one length, each drawn freely: 5.3 bits of 56 or less say which."""
    rng = np.random.default_rng(0)
    words = [f"{first}{second}" for first in ("angle", "side", "sum", "half") for second in "abcdefghij"]
    texts = [" ".join(rng.choice(words, 250)) for _ in range(64)]
    for start in range(0, 64, 8):
        store.add_responses(key, [response("p0", n, texts[n]) for n in range(start, start + 8)])
    assert [answer.text for answer in store.responses(key).values()] == texts
    ((num_bytes,),) = changed_on_disk(store, "SELECT sum(length(text)) FROM answers")
    assert num_bytes < sum(map(len, texts)) / 3


def test_who_damages_what_answers_are_packed_with_damages_those_that_copy_from_there(store, key):
    store.add_responses(key, [response("p0", 0, "angle"), response("p1", 0, "a text with nothing of it: 7 8 9")])
    changed_on_disk(store, "UPDATE dictionaries SET content = CAST(replace(content, 'angle', 'ankle') AS BLOB)")
    assert store.damaged(key) == [("p0", 0)]


def test_the_checksum_of_an_answer_knows_where_one_column_ends():
    assert connection.checksum_of("ab", "c") != connection.checksum_of("a", "bc")


@pytest.mark.parametrize("table", ["cells", "runs"])
def test_a_spec_that_is_no_json_any_more_is_a_clear_error(store, key, table):
    store.add_run(SPEC)
    changed_on_disk(store, f"UPDATE {table} SET spec = '{{\"kind'")
    with pytest.raises(StoreError, match=r"is damaged(.|\n)*should be JSON"):
        getattr(store, table)()


def test_a_missing_store_is_not_created_by_a_reader_and_one_that_is_only_being_created_is_none_yet(tmp_path):
    for path in (tmp_path / "none.sqlite", tmp_path / "store.sqlite"):
        with pytest.raises(StoreError, match="Nothing has been run there yet"):
            Store.open(path, read_only=True)
        assert not (tmp_path / "none.sqlite").exists()
        (tmp_path / "store.sqlite").touch()


def test_a_reader_waits_for_the_store_that_a_command_which_has_just_begun_creates(tmp_path):
    path = tmp_path / "store.sqlite"
    path.touch()
    lock = take(path)
    creating = threading.Timer(0.3, lambda: Store.open(path).close())
    creating.start()
    with Store.open(path, read_only=True) as reader:
        assert reader.cells() == []
    creating.join()
    os.close(lock)


def test_a_folder_that_cannot_be_made_is_a_clear_error():
    with pytest.raises(StoreError, match="--out"):
        Store.open("/proc/nowhere/store.sqlite")


def test_a_reader_cannot_write(path, store):
    with Store.open(path, read_only=True) as reader, pytest.raises(StoreError, match="cannot be written"):
        reader.add_cell({"task": "other"})


def test_a_folder_whose_name_is_no_utf8_and_asks_for_options_holds_a_store(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9?mode=memory#") / "store.sqlite"
    with Store.open(path) as store:
        key = store.add_cell(SPEC)
    with Store.open(path, read_only=True) as reader:
        assert [cell.key for cell in reader.cells()] == [key]


def test_a_store_at_rest_in_a_read_only_folder_is_readable(path, store, key, monkeypatch):
    """WAL cannot put its index beside the file there; root ignores permissions, so SQLite's refusal is acted out."""
    store.close()
    real = sqlite3.connect

    class Refusing(sqlite3.Connection):
        def execute(self, *args):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorname = "SQLITE_CANTOPEN"
            raise error

    def connect(address, **options):
        return real(address, **options, **({} if "immutable" in address else {"factory": Refusing}))

    monkeypatch.setattr(sqlite3, "connect", connect)
    with Store.open(path, read_only=True) as reader:
        assert len(reader.problems(key)) == 2


def test_a_full_disk_is_reported_and_what_was_stored_stays_readable(store, key):
    store.add_responses(key, [response("p0")])
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"disk is full(.|\n)*free space"):
        store.add_responses(key, [response("p1", 0, os.urandom(50_000).hex())])
    assert list(store.responses(key)) == [("p0", 0)]


def test_a_lock_that_is_never_released_is_a_clear_error(path, store, monkeypatch):
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.05)
    with Store.open(path) as waiting, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"held its lock(.|\n)*atrl-bench status"):
            waiting.add_cell({"task": "waits"})
        other.execute("ROLLBACK")
        waiting.add_cell({"task": "goes on"})


def test_a_network_file_system_gets_the_rollback_journal(path, monkeypatch):
    monkeypatch.setattr(connection, "filesystem_of", lambda _: "nfs4")
    with Store.open(path) as store:
        assert changed_on_disk(store, "PRAGMA journal_mode") == [("delete",)]
        assert store.add_cell(SPEC)


def test_the_file_system_of_a_path_is_that_of_its_deepest_mount(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("disk / ext4 rw 0 0\nhost:/home /home nfs4 rw 0 0\nhost:/s /with\\040space lustre rw 0 0\n")
    assert connection.filesystem_of(Path("/home/me/store"), mounts) == "nfs4"
    assert connection.filesystem_of(Path("/homely"), mounts) == "ext4"
    assert connection.filesystem_of(Path("/with space/x"), mounts) == "lustre"
    assert connection.filesystem_of(Path("/home"), tmp_path / "none") == ""
    mounts.write_text("disk / ext4 rw 0 0\nhost:/a /home nfs4 rw 0 0\ndisk /home xfs rw 0 0\n")
    assert connection.filesystem_of(Path("/home/me/store"), mounts) == "xfs", "the later of two mounts is seen"


# Several processes


@pytest.mark.parametrize("moment", ["sqlite_master", "user_version", "application_id"])
def test_a_store_that_another_process_creates_while_it_is_opened_is_opened(path, moment):
    """Another process may fill the new file between any two looks at it, or try to and have to wait for the last."""
    path.parent.mkdir()
    opening = sqlite3.connect(path, isolation_level=None)
    writers = []

    def create(statement: str) -> None:
        if moment in statement and not writers:
            writers.append(start_writer(path, 0, 0))
            with contextlib.suppress(subprocess.TimeoutExpired):
                writers[0].wait(0.5)

    opening.set_trace_callback(create)
    try:
        assert connection._checked(opening, path, read_only=False) is opening
    finally:
        opening.close()
        assert writers[0].communicate() == ("open\n", None)


def test_two_writers_at_once_lose_nothing_while_a_reader_looks_on(path):
    writers = [start_writer(path, worker, 60) for worker in range(2)]
    assert all(writer.stdout.readline() == "open\n" for writer in writers)
    seen = []
    with Store.open(path, read_only=True) as reader:
        while any(writer.poll() is None for writer in writers):
            seen.append(len(reader.responses(spec_key(SPEC))))
            time.sleep(0.02)
        assert seen == sorted(seen)
        assert all(count % 4 == 0 for count in seen)  # a batch is there as a whole or not at all
        assert len(reader.responses(spec_key(SPEC))) == 2 * 60 * 4
    for writer in writers:
        writer.stdout.close()
        assert writer.wait() == 0


def test_forty_kills_of_a_writer_lose_nothing_that_was_committed(path):
    """Each kill falls some milliseconds after a batch was announced as stored; all that was announced must be there."""
    announcement = path.parent / "announced"
    for kill in range(40):
        writer = os.fork()
        if writer == 0:  # a bare fork starts in a millisecond where a new interpreter takes a tenth of a second
            with SharedStore(path) as child:
                key = child.add_cell(SPEC)
                child.add_problems(key, [Problem(f"p{kill}", "g", "q", Gold("1"))])
                for i in range(100_000):
                    child.add_responses(key, [response(f"p{kill}", 4 * i + r, "text " * 50) for r in range(4)])
                    announcement.write_text(f"{kill} {i}")
            os._exit(0)
        while read(announcement)[0] != kill:
            time.sleep(0.001)
        time.sleep(0.0005 * kill)
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        said, last_batch = read(announcement)
        with Store.open(path) as store:
            assert store.damaged_pages() == []
            mine = [r for p, r in store.responses(spec_key(SPEC)) if p == f"p{kill}"]
        assert mine == list(range(len(mine)))  # none twice, none missing in between
        assert len(mine) % 4 == 0  # a batch is there as a whole or not at all
        if said == kill:
            assert len(mine) >= 4 * (last_batch + 1)


def read(announcement: Path) -> tuple[int, int]:
    """Return (kill, batch) of the announcement, or (-1, -1) while it is being written."""
    said = announcement.read_text().split() if announcement.exists() else []
    return (int(said[0]), int(said[1])) if len(said) == 2 else (-1, -1)


# Any order of operations


class StoreMachine(RuleBasedStateMachine):
    """The store agrees with two dictionaries, over every order of adding, grading, finishing and reopening."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(
            os.path.join(os.environ.get("TMPDIR", "/tmp"), f"atrl-store-{os.getpid()}-{time.monotonic_ns()}")
        )
        self.store = Store.open(self.path)
        self.texts: dict[str, dict[tuple[str, int], str]] = {}
        self.states: dict[str, dict[tuple[str, int], str]] = {}

    @rule(target=keys, seed=st.integers(0, 3))
    def add_cell(self, seed):
        key = self.store.add_cell({"task": "t", "seed": seed})
        self.store.add_problems(key, [Problem(f"p{i}", "g", "?", Gold("1")) for i in range(3)])
        self.texts.setdefault(key, {})
        self.states.setdefault(key, {})
        return key

    @rule(key=keys, batch=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.text(max_size=5)), max_size=4))
    def add_responses(self, key, batch):
        new = 0
        for problem, repeat, text in batch:
            new += (f"p{problem}", repeat) not in self.texts[key]
            self.texts[key].setdefault((f"p{problem}", repeat), text)
        assert self.store.add_responses(key, [response(f"p{p}", r, text) for p, r, text in batch]) == new

    @rule(key=keys, state=st.sampled_from(["correct", "wrong", "judge failed"]), which=st.integers(0, 8))
    def add_grade(self, key, state, which):
        if self.texts[key]:
            problem, repeat = sorted(self.texts[key])[which % len(self.texts[key])]
            self.store.add_verdicts(key, {(problem, repeat): Verdict(state, None, "fast", "")})
            self.states[key][problem, repeat] = state

    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store.open(self.path)

    @invariant()
    def agrees(self):
        assert sorted(cell.key for cell in self.store.cells()) == sorted(self.texts)
        for key, texts in self.texts.items():
            samples = self.store.samples(key)
            assert {(s.problem.problem_id, s.response.repeat): s.response.text for s in samples} == texts
            graded = {(s.problem.problem_id, s.response.repeat): s.verdict.state for s in samples if s.verdict}
            assert graded == self.states[key]
            assert self.store.cell(key).num_graded == len(graded)
        assert self.store.miscounted() == []

    def teardown(self):
        self.store.close()
        for name in ("", "-wal", "-shm"):
            Path(f"{self.path}{name}").unlink(missing_ok=True)


TestAnyOrder = StoreMachine.TestCase
TestAnyOrder.settings = settings(max_examples=10, stateful_step_count=10)

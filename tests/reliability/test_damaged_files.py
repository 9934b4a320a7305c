"""Files of a user or of a run folder that something has changed: each is named, with what to do, and never guessed."""

import errno
import os
import re
import sqlite3

import pytest

from atrl_bench import cli
from atrl_bench.errors import InvalidFileError, MissingDataError, StoreError, reason_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.store import Store
from atrl_bench.training.recipe import load_recipe

NO_YAML = {
    "no UTF-8": ("name: caf\u00e9".encode("latin-1"), "is not UTF-8: byte 9 is 0xe9"),
    "UTF-16": ("name: grpo".encode("utf-16"), "is not UTF-8"),
    "a list": (b"- base: grpo", "not a YAML mapping"),
    "a number": (b"5", "not a YAML mapping"),
    "nothing": (b"", "not a YAML mapping"),
    "no end": (b"rows: [", "is not YAML"),
    "a tab": (b"a:\n\t- b", "is not YAML"),
    "a null byte": (b"base: grpo\x00", "is not YAML"),
    "no day": (b"base: 2026-13-45", "is not YAML"),
    "an object": (b"base: !!python/object/apply:os.system [id]", "is not YAML"),
    "too deep": (b"a: " + b"[" * 5000, "is not YAML"),
    "numbers for names": (b"5: grpo", "not a YAML mapping"),
}


@pytest.mark.parametrize(("content", "words"), NO_YAML.values(), ids=NO_YAML.keys())
def test_a_recipe_or_profile_that_is_no_yaml_is_named_with_what_is_wrong(tmp_path, content, words) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    for read in (load_recipe, load_profile):
        with pytest.raises(InvalidFileError, match=re.escape(words)) as raised:
            read(str(path))
        assert str(path) in raised.value.what


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        key = store.add_cell({"task": "geoqa_test"})
        store.add_problems(key, [Problem("1", "1", "?", Gold("5", choices=("5", "6")), {})])
        store.add_responses(key, [Response("1", 0, "hash", "5", 1, 0.0, False)])
        store.add_verdicts(key, {("1", 0): Verdict("correct", "5", "fast", "same text")})
    return path, key


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "5", "\ud7ff"])
@pytest.mark.parametrize(
    ("table", "column"),
    [("cells", "spec"), ("problems", "meta"), ("problems", "choices"), ("verdicts", "details")],
)
def test_a_record_of_the_store_that_is_no_json_is_an_error_with_a_next_step(filled, table, column, content) -> None:
    path, key = filled
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"UPDATE {table} SET {column} = ?", ("{}" if (column, content) == ("choices", "[]") else content,)
        )
    with Store.open(path) as store, pytest.raises(StoreError, match=r"is damaged(.|\n)*Next: restore"):
        _ = store.cells(), store.samples(key)


def test_a_store_that_something_emptied_is_not_begun_again_without_a_word(tmp_path) -> None:
    run_dir = RunDir(tmp_path, load_profile("smoke"))
    run_dir.store_path.touch()
    run_dir.open_store().close()  # a command that was killed as it made the store: nothing is lost
    run_dir.store_path.write_bytes(b"")
    run_dir.reports.mkdir()
    with pytest.raises(StoreError, match=r"is empty: 0 bytes\.(.|\n)*reports beside it(.|\n)*restore it"):
        run_dir.open_store()
    assert run_dir.store_path.stat().st_size == 0


def test_a_reason_holds_nothing_that_differs_in_the_next_run() -> None:
    assert reason_of(ValueError("cannot read <_io.BytesIO object at 0x7f51a351e650>")) == (
        "ValueError: cannot read <_io.BytesIO object>"
    )
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "/somewhere/else/figure.png")
    assert reason_of(missing) == "FileNotFoundError: No such file or directory: figure.png"
    assert reason_of(MissingDataError("It is not here.", why="Nobody fetched it.")) == "It is not here."
    assert reason_of(AssertionError()) == "AssertionError"
    assert reason_of(RuntimeError("one\ntwo")) == "RuntimeError: one"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_that_is_full_ends_a_command_with_a_next_step_and_no_traceback(monkeypatch, capsys, number) -> None:
    def full(**_: object) -> None:
        raise OSError(number, os.strerror(number))  # as a write raises it: without a name

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert ", then the same command again: it resumes" in capsys.readouterr().err

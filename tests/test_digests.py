"""What names files and code is remembered between commands, and forgotten as soon as either changes."""

import hashlib
import json
import os

import pytest

from atrl_bench import digests
from atrl_bench.digests import memory_file, sha256_of


@pytest.fixture(autouse=True)
def _own_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_changed_file_has_another_sum(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"one")
    assert sha256_of([path]) == [hashlib.sha256(b"one").hexdigest()]
    path.write_bytes(b"three")
    assert sha256_of([path, path]) == [hashlib.sha256(b"three").hexdigest()] * 2


def test_a_file_that_was_overwritten_in_place_by_as_many_bytes_has_another_sum(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"one")
    before, status = sha256_of([path]), path.stat()
    with path.open("r+b") as file:
        file.write(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as `cp -p` and rsync set it
    assert sha256_of([path]) != before


def test_a_known_sum_is_told_without_reading_the_memory_or_the_file_again(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"one")
    known = sha256_of([path])
    memory_file("digests.json").unlink()
    assert sha256_of([path], of=lambda _: "read again") == known
    assert not memory_file("digests.json").exists()


def test_what_another_process_has_remembered_meanwhile_is_kept(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    sha256_of([tmp_path / "a"])
    memory = json.loads(memory_file("digests.json").read_text())
    memory_file("digests.json").write_text(json.dumps({**memory, "of another": "0" * 64}))
    sha256_of([tmp_path / "b"])
    assert json.loads(memory_file("digests.json").read_text()).keys() > {*memory, "of another"}


def test_a_user_without_a_home_folder_has_nothing_remembered(tmp_path, monkeypatch):
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)  # whom the machine does not know
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"one")
    assert sha256_of([path]) == [hashlib.sha256(b"one").hexdigest()]


def test_of_many_files_the_newest_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "MAX_REMEMBERED", 3)
    for number in range(5):
        (tmp_path / str(number)).write_text(str(number))
        sha256_of([tmp_path / str(number)])
    assert [name.split(":")[0][-1] for name in json.loads(memory_file("digests.json").read_text())] == ["2", "3", "4"]

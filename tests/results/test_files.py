"""Files that are written whole or not at all."""

import errno
import os

import pytest

from atrl_bench.errors import StoreError
from atrl_bench.results.files import write_atomically, writing


@pytest.mark.parametrize(("number", "then"), [(errno.ENOSPC, "free space"), (errno.EROFS, "--out")])
def test_a_full_disk_sends_nobody_to_another_folder_where_all_would_be_done_again(number, then) -> None:
    with pytest.raises(StoreError) as caught, writing("the report"):
        raise OSError(number, os.strerror(number))
    assert then in caught.value.next_step


def test_what_a_killed_process_has_left_is_removed_by_the_next_one_and_a_running_ones_is_not(tmp_path) -> None:
    left, running = tmp_path / ".samples.jsonl.abcdefgh", tmp_path / ".samples.jsonl.ijklmnop"
    left.touch()
    running.touch()
    os.utime(left, (1, 1))
    write_atomically(tmp_path / "samples.jsonl", b"{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [running.name, "samples.jsonl"]

"""Files that are written whole or not at all."""

import os

from atrl_bench.results.files import write_atomically


def test_what_a_killed_process_has_left_is_removed_by_the_next_one_and_a_running_ones_is_not(tmp_path) -> None:
    left, running = tmp_path / ".samples.jsonl.abcdefgh", tmp_path / ".samples.jsonl.ijklmnop"
    left.touch()
    running.touch()
    os.utime(left, (1, 1))
    write_atomically(tmp_path / "samples.jsonl", b"{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [running.name, "samples.jsonl"]

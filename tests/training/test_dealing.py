"""Which process trains on which responses: the same update on any number of processes."""

from __future__ import annotations

import pytest
import torch
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from atrl_bench.training.dealing import dealt, even_shares


def updates_of(numbers: list[int], num_updates: int, seed: int) -> list[set[int]]:
    """Return what TRL makes of a process's responses: shuffled, then cut into updates."""
    torch.manual_seed(seed)
    batches = split_tensor_dict(shuffle_sequence_dict({"number": torch.tensor(numbers)}), num_updates)
    return [set(batch["number"].tolist()) for batch in batches]


def test_one_process_is_given_the_rollout_as_it_stands():
    assert dealt([0] * 12, 1, 3, seed=5) == [list(range(12))]


@pytest.mark.parametrize("num_processes", [2, 4, 8])
def test_every_update_sees_what_it_sees_on_one_process(num_processes):
    # Four groups of eight; with eight processes four of them generated nothing.
    owners = [group % num_processes for group in range(4) for _ in range(8)]
    alone = updates_of(list(range(32)), 4, seed=7)
    shares = [updates_of(numbers, 4, seed=7) for numbers in dealt(owners, num_processes, 4, seed=7)]
    for number, update in enumerate(alone):
        of_processes = [share[number] for share in shares]
        assert {len(part) for part in of_processes} == {8 // num_processes}
        assert set().union(*of_processes) == update


def test_a_process_keeps_its_own_responses_as_far_as_its_share_goes():
    # Process 0 made four of these six and keeps the first three of them; process 1 gets the fourth.
    assert even_shares([4, 0, 1, 5, 2, 3], [0, 0, 0, 0, 1, 1], 2) == [[0, 1, 2], [4, 5, 3]]

"""Which process trains on which responses: the same update on any number of processes."""

from __future__ import annotations

import pytest

from atrl_bench.training.dealing import dealt, even_shares


def updates_of(numbers: list[int], num_updates: int) -> list[set[int]]:
    size = len(numbers) // num_updates
    return [set(numbers[start : start + size]) for start in range(0, len(numbers), size)]


def test_one_process_trains_on_all_of_a_rollout_in_an_order_that_follows_from_the_seed():
    [order] = dealt([0] * 12, 1, 3, seed=5)
    assert sorted(order) == list(range(12)) != order
    assert dealt([0] * 12, 1, 3, seed=5) == [order] != dealt([0] * 12, 1, 3, seed=6)


@pytest.mark.parametrize("num_processes", [2, 4, 8])
def test_every_update_sees_what_it_sees_on_one_process(num_processes):
    # Four groups of eight; with eight processes four of them sampled nothing.
    owners = [group % num_processes for group in range(4) for _ in range(8)]
    [alone] = dealt([0] * 32, 1, 4, seed=7)
    shares = [updates_of(numbers, 4) for numbers in dealt(owners, num_processes, 4, seed=7)]
    for number, update in enumerate(updates_of(alone, 4)):
        of_processes = [share[number] for share in shares]
        assert {len(part) for part in of_processes} == {8 // num_processes}
        assert set().union(*of_processes) == update


def test_a_process_keeps_its_own_responses_as_far_as_its_share_goes():
    # Process 0 made four of these six and keeps the first three of them; process 1 gets the fourth.
    assert even_shares([4, 0, 1, 5, 2, 3], [0, 0, 0, 0, 1, 1], 2) == [[0, 1, 2], [4, 5, 3]]

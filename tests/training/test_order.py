"""What comes when is a function of the seed alone, and an update the same on any number of processes."""

from itertools import islice

import pytest

from atrl_bench.training.order import dealt, even_shares, further_problems, held, problem_order, rollout_seed


def test_a_run_goes_through_the_data_pass_after_pass_in_a_new_order_each_time():
    order = problem_order(5, 12, run_seed=0)
    assert sorted(order[:5]) == sorted(order[5:10]) == [0, 1, 2, 3, 4]
    assert order[:5] != order[5:10]
    assert problem_order(5, 7, run_seed=0) == order[:7]


def test_another_seed_gives_another_order_and_other_rollouts():
    assert problem_order(50, 50, 0) != problem_order(50, 50, 1)
    assert len({rollout_seed(run, rollout) for run in range(5) for rollout in range(20)}) == 100


def test_further_problems_are_unused_ones_first_and_never_end():
    drawn = list(islice(further_problems(6, [0, 1, 2], run_seed=0, rollout=3), 12))
    assert sorted(drawn[:3]) == [3, 4, 5]
    assert sorted(drawn[3:9]) == [0, 1, 2, 3, 4, 5]
    assert drawn == list(islice(further_problems(6, [0, 1, 2], run_seed=0, rollout=3), 12))


def test_one_process_trains_on_all_of_a_rollout_in_an_order_that_follows_from_the_seed():
    [shares] = dealt([0] * 12, [True] * 12, 1, 3, seed=5)
    order = [number for share in shares for number in share.numbers]
    assert sorted(order) == list(range(12)) != order
    assert dealt([0] * 12, [True] * 12, 1, 3, seed=5) == [shares] != dealt([0] * 12, [True] * 12, 1, 3, seed=6)


@pytest.mark.parametrize("num_processes", [2, 4, 8])
def test_every_update_sees_what_it_sees_on_one_process(num_processes):
    # Four groups of eight; with eight processes four of them sampled nothing.
    owners = [group % num_processes for group in range(4) for _ in range(8)]
    [alone] = dealt([0] * 32, [True] * 32, 1, 4, seed=7)
    for update, *shares in zip(alone, *dealt(owners, [True] * 32, num_processes, 4, seed=7), strict=True):
        assert {len(share.numbers) for share in shares} == {8 // num_processes}
        assert {number for share in shares for number in share.numbers} == set(update.numbers)


def test_a_process_keeps_its_own_responses_as_far_as_its_share_goes():
    # Process 0 made four of these six and keeps the first three of them; process 1 gets the fourth.
    assert even_shares([4, 0, 1, 5, 2, 3], [0, 0, 0, 0, 1, 1], 2) == [[0, 1, 2], [4, 5, 3]]


def test_responses_that_nothing_is_learned_from_are_left_out_and_the_shares_stay_of_one_size():
    # Of the eight responses of each update the odd ones teach something, and 5 and 7 do not.
    learns = [number % 2 == 1 and number not in (5, 7) for number in range(16)]
    alone, shares = dealt([0] * 16, learns, 1, 2, seed=1), dealt([0, 1] * 8, learns, 2, 2, seed=1)
    for update, *of_processes in zip(alone[0], *shares, strict=True):
        taught = [number for share in of_processes for number in share.numbers[: len(share.numbers) - share.num_idle]]
        assert sorted(taught) == sorted(update.numbers)
        assert all(learns[number] for number in taught)
        assert len({len(share.numbers) for share in of_processes}) == 1
    assert sorted(number for update in alone[0] for number in update.numbers) == [1, 3, 9, 11, 13, 15]


def test_an_update_that_nothing_is_learned_from_keeps_one_response_and_the_other_process_an_idle_one():
    first, second = dealt([0, 0, 1, 1], [False] * 4, 2, 1, seed=0)
    assert [first[0].num_idle, second[0].num_idle] == [0, 1]
    assert first[0].numbers == second[0].numbers
    assert len(first[0].numbers) == 1


def test_processes_score_as_many_responses_each_also_where_one_is_idle_with_its_own():
    # Who shares a model gathers it together, pass by pass: with a pass less on one of them the others wait for ever.
    first, second = dealt([0, 0, 0, 1, 1], [True] * 5, 2, 1, seed=0)
    assert second[0] == ([4, 3, 4], 1)
    assert (held(first), held(second)) == ([0, 1, 2], [3, 4, 4])

"""What comes when is a function of the seed alone."""

from itertools import islice

from atrl_bench.training.order import further_problems, problem_order, rollout_seed


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

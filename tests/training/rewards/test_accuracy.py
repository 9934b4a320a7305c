"""Accuracy of one or minus one by the evaluation's grader, and the punishment of length."""

import pytest

from atrl_bench.grading.grade import GradingPool
from atrl_bench.results.records import Gold
from atrl_bench.training.arguments import overlong_cache
from atrl_bench.training.rewards.combined import AccuracyReward
from atrl_bench.training.rollouts import overlong_reward


def test_accuracy_is_one_for_a_correct_box_and_minus_one_for_everything_else():
    completions = [[{"role": "assistant", "content": text}] for text in ("so \\boxed{7}", "\\boxed{8}", "")]
    logged = {}
    with GradingPool() as pool:
        rewards = AccuracyReward(pool)(completions, [Gold("7")] * 3, log_metric=logged.__setitem__)
    assert rewards == [1.0, -1.0, -1.0]
    assert logged == {"grading/unparseable": pytest.approx(1 / 3), "grading/timed out": 0.0}


@pytest.mark.parametrize(
    ("length", "reward"),
    # L_max 100, L_cache 20: nothing up to 80, then one twentieth a token, -1 beyond 100.
    [(1, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (101, -1.0)],
)
def test_the_punishment_of_length_is_daps_three_pieces(length, reward):
    assert overlong_reward(100, 0.2)(completion_ids=[[0] * length]) == [pytest.approx(reward)]


def test_the_stretch_of_the_punishment_keeps_the_official_proportion():
    assert overlong_cache(20480, 0.2) == 4096
    assert overlong_cache(48, 0.2) == 9
    assert overlong_cache(2, 0.2) == 1

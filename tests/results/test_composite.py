"""Scores that are means of means; the sums stand in the comments."""

import math

import numpy as np
import pytest

from atrl_bench.results.records import Gold, Problem
from atrl_bench.results.statistics.composite import mean_by


def problems_of(*categories: str | None) -> list[Problem]:
    return [Problem(str(i), str(i), "?", Gold("1"), meta={"category": name}) for i, name in enumerate(categories)]


def category(problem: Problem) -> str | None:
    return problem.meta["category"]


def test_each_category_counts_the_same_whatever_its_size():
    statistic = mean_by(category)(problems_of("size", "size", "size", "count"))
    # size (1 + 1 + 0) / 3 = 2/3, count 0: mean 1/3, where the plain mean is 1/2
    assert statistic(np.array([1.0, 1, 0, 0]), np.ones(4)) == pytest.approx(1 / 3)


def test_merged_categories_become_one_before_the_mean():
    merge = {"easy": "direction", "hard": "direction"}
    statistic = mean_by(category, merge)(problems_of("easy", "hard", "count"))
    # direction (1 + 0) / 2 = 1/2, count 0: mean 1/4, where three categories would give 1/3
    assert statistic(np.array([1.0, 0, 0]), np.ones(3)) == 0.25


def test_a_weight_is_how_often_a_problem_counts():
    statistic = mean_by(category)(problems_of("a", "a", "b"))
    # a (1 * 3 + 0 * 1) / 4 = 3/4, b 1/2: mean 5/8
    assert statistic(np.array([1.0, 0, 0.5]), np.array([3.0, 1, 2])) == 0.625


def test_categories_without_weight_and_problems_without_category_are_left_out():
    statistic = mean_by(category)(problems_of("a", "b", None))
    assert statistic(np.array([1.0, 0, 0]), np.array([1.0, 0, 1])) == 1.0
    assert math.isnan(statistic(np.array([1.0, 0, 0]), np.array([0.0, 0, 1])))

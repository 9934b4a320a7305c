"""Dynamic sampling on bare lists of rewards: a group is its rewards."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.training.advantages import are_mixed
from atrl_bench.training.dynamic_sampling import refill
from atrl_bench.training.recipe import DynamicSampling

RIGHT, WRONG, MIXED = [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]
SETTINGS = DynamicSampling(max_extra_generations=2, oversampling=2)


def is_mixed(group):
    return bool(are_mixed(torch.tensor([group])))


def test_a_batch_of_mixed_groups_is_left_alone():
    result = refill([MIXED, MIXED], is_mixed, lambda *_: 1 / 0, SETTINGS)
    assert (result.groups, result.num_generations, result.num_dropped) == ([MIXED, MIXED], 1, 0)


def test_a_constant_group_is_replaced_and_the_order_of_the_kept_ones_stays():
    first, second, third = [1.0, -1.0, 0.1], [1.0, -1.0, 0.2], [1.0, -1.0, 0.3]
    asked = []

    def draw(count, number):
        asked.append((count, number))
        return [WRONG, third]

    result = refill([first, RIGHT, second], is_mixed, draw, SETTINGS)
    assert result.groups == [first, second, third]
    assert asked == [(2, 1)], "one group is missing, two problems are drawn for it"
    assert (result.num_generations, result.num_dropped, result.num_unfilled) == (2, 2, 0)


def test_after_the_last_generation_the_batch_is_filled_with_groups_without_advantage():
    result = refill([MIXED, RIGHT, WRONG], is_mixed, lambda count, _: [RIGHT] * count, SETTINGS)
    assert result.groups == [MIXED, RIGHT, WRONG]
    assert (result.num_generations, result.num_unfilled) == (3, 2)


def test_what_was_not_graded_makes_no_group_mixed():
    unknown, wanted = [math.nan, 1.0, 1.0], [math.nan, -1.0, 1.0]
    result = refill([unknown, [math.nan] * 3], is_mixed, lambda count, _: [wanted] * count, SETTINGS)
    assert (result.groups, result.num_dropped) == ([wanted, wanted], 2)


@given(
    groups=st.lists(st.lists(st.sampled_from([-1.0, 1.0]), min_size=2, max_size=4), min_size=1, max_size=8),
    extra=st.lists(st.lists(st.sampled_from([-1.0, 1.0]), min_size=2, max_size=4), min_size=64, max_size=64),
)
def test_the_batch_keeps_its_size_and_mixed_groups_come_first(groups, extra):
    stream = iter(extra)
    result = refill(groups, is_mixed, lambda count, _: [next(stream) for _ in range(count)], SETTINGS)
    assert len(result.groups) == len(groups)
    flags = [is_mixed(group) for group in result.groups]
    assert flags == sorted(flags, reverse=True)
    assert flags.count(False) == result.num_unfilled
    mixed_in = [group for group in groups if is_mixed(group)]
    assert result.groups[: len(mixed_in)] == mixed_in

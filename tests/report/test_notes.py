"""What a page calls rows that several groups have."""

import pytest

from atrl_bench.experiments.definition import load_table
from atrl_bench.profiles import load_profile

TABLE = (
    load_table("headroom")
    .select(rows=["perception_uniform", "perception_atrl", "reasoning_2_uniform"])
    .as_measured(load_profile("mini"), {"perception_uniform": 1.0, "reasoning_2_uniform": 4.0})
)


@pytest.mark.parametrize(
    ("row", "beside", "label"),
    [
        ("perception_uniform", None, "mini: Uniform, 1× (Perception, first base)"),
        ("reasoning_2_uniform", None, "mini: Uniform, 4× (Reasoning, second base)"),
        ("perception_uniform", "perception_atrl", "mini: Uniform, 1×"),
        ("perception_uniform", "reasoning_2_uniform", "mini: Uniform, 1× (Perception, first base)"),
        ("perception_atrl", None, "mini: AT-RL"),
        ("no_row", None, "no_row"),
    ],
)
def test_a_row_has_its_group_in_its_name_where_another_group_has_one_like_it(row, beside, label):
    assert TABLE.row_label(row, beside) == label

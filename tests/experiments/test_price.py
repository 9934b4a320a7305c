"""What several rows need is priced once."""

from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.price import price_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile


def trainings(tmp_path, rows=None):
    price = price_of(plan_table("video", RunDir.at(tmp_path, load_profile("paper")), rows=rows))
    return [cost.row for cost in price.trainings]


def test_a_first_stage_that_two_rows_start_from_is_counted_once_and_not_zero_times(tmp_path):
    assert trainings(tmp_path, ["t_grpo", "ours"]) == ["sft_video, for t_grpo", "t_grpo", "ours"]
    assert trainings(tmp_path, ["ours"]) == ["sft_video, for ours", "ours"]
    assert trainings(tmp_path) == ["sft", "t_grpo", "ours"]  # where it is a row of the table itself

"""What several rows need is priced once."""

import pytest

from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.price import price_of, price_of_evaluation
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.profiles import load_profile


def trainings(tmp_path, rows=None):
    price = price_of(plan_table("video", RunDir.at(tmp_path, load_profile("paper")), rows=rows))
    return [cost.row for cost in price.trainings]


def test_a_first_stage_that_two_rows_start_from_is_counted_once_and_not_zero_times(tmp_path):
    assert trainings(tmp_path, ["t_grpo", "ours"]) == ["sft_video, for t_grpo", "t_grpo", "ours"]
    assert trainings(tmp_path, ["ours"]) == ["sft_video, for ours", "ours"]
    assert trainings(tmp_path) == ["sft", "t_grpo", "ours"]  # where it is a row of the table itself


def test_a_judge_is_priced_by_the_questions_that_it_may_be_asked(tmp_path):
    run_dir = RunDir.at(tmp_path, load_profile("smoke"))
    options = EvaluationOptions(judge=JudgeConfig("http://127.0.0.1:9", "a-judge"))
    price = price_of_evaluation("mini", ["geoqa_test"], options, run_dir)
    answers = sum(int(cost.needs.counts["answers"]) for cost in price.cells)
    assert price.judge_questions == answers > 0
    assert f"at most {answers:,} questions" in str(list(price.blocks()))
    assert "its prices are not known" in str(list(price.blocks()))
    priced = EvaluationOptions(judge=JudgeConfig("http://127.0.0.1:9", "a-judge", prices=(1000.0, 100_000.0)))
    costing = price_of_evaluation("mini", ["geoqa_test"], priced, run_dir)
    assert costing.judge_money == pytest.approx(answers * (0.35 + 0.3))  # 350 tokens asked, 3 in a reply
    assert f"{costing.judge_money:,.2f} in money" in str(list(costing.blocks()))
    assert price_of_evaluation("mini", ["geoqa_test"], EvaluationOptions(), run_dir).judge_questions is None

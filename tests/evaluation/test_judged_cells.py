"""Cells that a judge helped to grade: who decided what, what is asked again, what the record says."""

import re
from dataclasses import replace

import pytest
from fake_backend import picture, write_geoqa

from atrl_bench.errors import EndpointError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments.evaluate_command import ModelScores, task_scores
from atrl_bench.grading.judge.agreement import Agreement, JudgeSummary, judge_summary, opinion_keys
from atrl_bench.grading.judge.calibration import CalibrationReport, Passed, calibration_set
from atrl_bench.profiles import load_profile

PROFILE = load_profile("smoke")
NUM_PROBLEMS, NUM_REPEATS = 20, 4


@pytest.fixture
def cell(store, backend, tmp_path):
    """Evaluate the fake model on a small GeoQA with a judge, and return the cell's key."""
    data = write_geoqa(tmp_path / "data", [picture()] * NUM_PROBLEMS)

    def run(judge, **settings) -> str:
        options = EvaluationOptions(repeats=NUM_REPEATS, judge=judge, **settings)
        return evaluate("mini", "geoqa_test", options, store=store, profile=PROFILE, data_dir=data)

    return run


def says_one_is_zero(messages):
    """A judge that calls 1 correct where the gold answer is 0, and nothing else."""
    candidate = messages[1]["content"].splitlines()[-2]
    return "Correct" if candidate == "1" else "Incorrect"


def test_the_judge_decides_what_the_rules_do_not_prove_and_is_heard_on_some_that_they_do(serve, fit, store, cell):
    server = serve(answer=fit(says_one_is_zero))
    key = cell(server.config())
    samples = store.samples(key)
    by_answer = {text: [s.verdict for s in samples if s.verdict.extracted == text] for text in "0123"}
    assert {grade.state for grade in by_answer["0"]} == {"correct"} == {grade.state for grade in by_answer["1"]}
    assert {grade.state for grade in by_answer["2"] + by_answer["3"]} == {"wrong"}
    assert {grade.grader for grade in by_answer["0"]} == {"fast"}
    assert {(grade.grader, grade.details["rule"]) for grade in by_answer["1"]} == {("judge", "wrong")}
    proven = [sample for sample in store.samples(key) if sample.verdict.extracted == "0"]
    opinions = {sample.problem.problem_id: sample.verdict.details.get("judge") for sample in proven}
    heard = {problem_id: opinion for problem_id, opinion in opinions.items() if opinion is not None}
    keys = opinion_keys(map(str, range(NUM_PROBLEMS)), NUM_REPEATS)
    assert heard == {problem_id: "wrong" for problem_id, repeat in keys if repeat == 0} != {}
    # Every answer but the proven ones, a few of these, and the calibration questions: each once.
    assert len(server.requests) == 3 * NUM_PROBLEMS + len(heard) + len(calibration_set())

    summary = judge_summary(store, key)
    assert (summary.asked, summary.cached, summary.failed) == (3 * NUM_PROBLEMS + len(heard), 0, 0)
    table = summary.agreement
    assert (table.only_judge, table.neither) == (NUM_PROBLEMS, 2 * NUM_PROBLEMS)
    assert (table.both, table.only_rule, table.proven) == (0, len(heard), NUM_PROBLEMS)


def test_another_cell_with_the_same_answers_asks_nothing(serve, fit, store, cell):
    server = serve(answer=fit(says_one_is_zero))
    first = cell(server.config())
    num_requests = len(server.requests)
    second = cell(server.config(), run_seed=1)
    assert second != first
    assert len(server.requests) == num_requests
    summary = judge_summary(store, second)
    assert (summary.asked, summary.cached) == (0, judge_summary(store, first).asked)
    assert summary.agreement == judge_summary(store, first).agreement


def test_an_unfit_judge_stops_the_run_before_anything_is_answered_or_decided(serve, store, cell, backend):
    with pytest.raises(EndpointError, match="fails on answers whose verdict is known"):
        cell(serve("Correct").config())
    assert backend.asked.total() == 0
    (pending,) = store.cells()
    assert (pending.state, pending.num_responses, pending.num_graded) == ("pending", 0, 0)


def test_a_judge_that_goes_down_leaves_the_answers_pending_and_the_same_command_goes_on(
    serve, fit, store, cell, backend
):
    server = serve(answer=fit(lambda _: (500, {}, b"")))
    with pytest.raises(EndpointError, match="did not answer"):
        cell(server.config(first_wait=0.0))
    (pending,) = store.cells()
    assert pending.state == "pending"
    server.answer = fit(says_one_is_zero)
    key = cell(server.config(first_wait=0.0))
    assert key == pending.key
    assert store.cell(key).num_graded == NUM_PROBLEMS * NUM_REPEATS == backend.asked.total()


def test_answers_without_a_verdict_are_counted_and_scored_as_nothing_and_they_alone_are_asked_about_again(
    serve, fit, store, cell, backend
):
    server = serve(answer=fit(lambda messages: "Hm." if "\n3\n" in messages[1]["content"] else "Incorrect"))
    key = cell(server.config(first_wait=0.0, num_attempts=2))
    summary = judge_summary(store, key)
    assert summary.failed == NUM_PROBLEMS
    failed = [s.verdict for s in store.samples(key) if s.verdict.state == "judge failed"]
    assert {(verdict.why, verdict.details["calls"]) for verdict in failed} == {("no verdict in 'Hm.'", 2)}
    assert [s.score for s in store.samples(key) if s.response.repeat == 3] == [None] * NUM_PROBLEMS
    server.answer, server.requests = fit(lambda _: "Incorrect"), []
    for _ in range(2):  # the second time nothing is left to ask
        assert cell(server.config(first_wait=0.0, num_attempts=2)) == key
        assert len(server.requests) == NUM_PROBLEMS
    assert [s.score for s in store.samples(key) if s.response.repeat == 3] == [0.0] * NUM_PROBLEMS
    assert backend.asked.total() == NUM_PROBLEMS * NUM_REPEATS  # no answer was generated twice


def test_a_judge_that_fails_on_a_fifth_of_its_replies_moves_no_headline(serve, fit, store, cell):
    """Of each four answers the rules prove one right and a sound judge another."""
    sound = task_scores(store, cell(serve(answer=fit(says_one_is_zero)).config()), "geoqa_test")
    assert (sound.scores["mean@4"].mean, sound.between) == (0.5, {})

    def fails_on_a_fifth(messages):
        asked = messages[1]["content"]
        place, candidate = re.search(r"Question (\d+)", asked), asked.splitlines()[-2]
        is_known = place is None or (int(place[1]) + int(candidate)) % 5
        return says_one_is_zero(messages) if is_known else "Hm."

    judge = serve(answer=fit(fails_on_a_fifth)).config(first_wait=0.0, num_attempts=2)
    failing = task_scores(store, cell(replace(judge, model="another")), "geoqa_test")
    assert failing.states["judge failed"] == 3 * NUM_PROBLEMS / 5
    assert "mean@4" not in failing.scores  # 53.3 % of the answers that have a verdict
    # Of the 12 without a verdict four are 1, which the judge would have called right: all wrong takes 4 of 80 away.
    assert failing.between["mean@4"] == pytest.approx((36 / 80, 48 / 80))
    shown = [row for row in failing.rows() if "mean@4" in row]
    assert shown == [("geoqa_test", "mean@4", "45.0 to 60.0", "the judge failed on too many answers for one number")]
    said, _ = ModelScores((failing,)).blocks()
    assert said.startswith("The judge failed on 12 of 80 answers (15.0 %).")
    assert len(list(ModelScores((sound,)).blocks())) == 1


def test_a_cell_without_a_judge_has_no_summary(store, cell):
    assert judge_summary(store, cell(None)) is None


def test_what_a_judge_did_is_one_line():
    # Of 17 answers both call 12 correct and 4 wrong: 94.1 %; by chance 176/289, so kappa is (272 - 176) / (289 - 176).
    table = Agreement.of(both=12, only_rule=0, only_judge=1, neither=4, proven=12)
    calibration = CalibrationReport(Passed(14, 15), Passed(15, 15), Passed(15, 15), [], [], 1793232000.0)
    summary = JudgeSummary({"model": "qwen", "strict": True}, 120, 40, 1, table, calibration)
    assert summary.line == (
        "judge qwen: 160 questions, 1 without a verdict; agrees with the rules on 94.1 %, kappa 0.85; "
        "calibration questions right 14/15, wrong 15/15, injection 15/15 on 2026-10-29"
    )
    lenient = replace(
        summary, identity={"model": "qwen", "strict": False}, agreement=Agreement.of(0, 0, 0, 0, 0), calibration=None
    )
    assert lenient.line == (
        "judge qwen: 160 questions, 1 without a verdict; not comparable with the rules; "
        "calibration questions not asked; not held to its calibration set"
    )

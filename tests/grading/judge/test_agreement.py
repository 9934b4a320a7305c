"""How far judge and rules agree, by numbers that can be redone by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.grading.judge.agreement import Agreement, agreement, combined, opinion_keys
from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict

OPINIONS = {
    "both": ("correct", "correct"),
    "only rule": ("correct", "wrong"),
    "proven": ("correct", None),
    "only judge": ("wrong", "correct"),
    "neither": ("wrong", "wrong"),
    "not read": ("unparseable", "correct"),
    "too slow": ("timed out", "wrong"),
    "failed": ("wrong", "judge failed"),
    "no answer": ("unparseable", None),
}


def samples(*names: str, gold: dict | None = None) -> list[Sample]:
    """An answer for each name, graded as a cell with a judge grades it."""
    made = []
    for index, name in enumerate(names):
        rule_state, judge_state = OPINIONS[name]
        extracted = None if name == "no answer" else f"answer {index}"
        rule = Verdict(rule_state, extracted, "fast" if name != "not read" else "symbolic", "by rule")
        opinion = Verdict(judge_state, extracted, "judge", "it says so", details={"calls": 1}) if judge_state else None
        verdict = combined(rule, opinion) if opinion else rule
        problem = Problem(f"p{index}", "g", "How long?", Gold("5", **(gold or {})))
        response = Response(problem.problem_id, 0, "hash", "text", 1, 0.1, False)
        grade = Verdict(verdict.state, verdict.extracted, verdict.grader, verdict.why, None, verdict.details)
        made.append(Sample(problem, response, grade))
    return made


def test_a_proven_answer_stays_proven_whatever_the_judge_says():
    rule, opinion = Verdict("correct", "5", "fast", "same"), Verdict("wrong", "5", "judge", "no", details={"calls": 2})
    assert combined(rule, opinion) == rule._replace(details={"judge": "wrong", "calls": 2})


def test_the_judge_decides_about_any_other_and_what_the_rules_said_stays_visible():
    rule, opinion = (
        Verdict("wrong", "6", "fast", "not 5"),
        Verdict("correct", "6", "judge", "yes", details={"calls": 1}),
    )
    assert combined(rule, opinion) == opinion._replace(details={"rule": "wrong", "rule_why": "not 5", "calls": 1})


def test_every_answer_is_counted_in_its_place():
    found = agreement(samples(*OPINIONS))
    assert (found.both, found.only_rule, found.only_judge, found.neither) == (1, 1, 1, 1)
    assert found.proven == 3


def test_kappa_of_a_whole_table():
    # Of 50: both 20, only rule 5, only judge 10, neither 15. Agreement 35/50 = 0.7; by chance 25/50 * 30/50 + 25/50 *
    # 20/50 = 0.5; kappa (0.7 - 0.5) / (1 - 0.5) = 0.4.
    found = Agreement.of(both=20, only_rule=5, only_judge=10, neither=15, proven=25)
    assert found.fraction == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)


def test_a_sample_of_the_proven_answers_stands_for_all_of_them():
    # 10 of 200 proven answers were asked about, so 9 and 1 stand for 180 and 20. With 20 and 80 more: agreement
    # 260/300; by chance 200/300 * 200/300 + 100/300 * 100/300 = 5/9; kappa (13/15 - 5/9) / (4/9) = 0.7.
    found = Agreement.of(both=9, only_rule=1, only_judge=20, neither=80, proven=200)
    assert found.fraction == pytest.approx(260 / 300)
    assert found.kappa == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("found", "fraction"),
    [
        (Agreement.of(both=0, only_rule=0, only_judge=0, neither=0, proven=0), None),  # nothing was compared
        (Agreement.of(both=0, only_rule=0, only_judge=1, neither=9, proven=30), None),  # the judge was not heard on 30
        (Agreement.of(both=5, only_rule=0, only_judge=0, neither=0, proven=100), 1.0),  # both call everything correct
        (Agreement.of(both=0, only_rule=0, only_judge=0, neither=8, proven=0), 1.0),
    ],
)
def test_kappa_is_not_made_up_where_it_is_undefined(found, fraction):
    assert found.fraction == fraction
    assert found.kappa is None


@given(*[st.integers(1, 40)] * 4, st.integers(1, 20))
def test_kappa_is_one_without_disagreement_and_never_more(both, only_rule, only_judge, neither, times):
    mixed = Agreement.of(both, only_rule, only_judge, neither, proven=times * (both + only_rule))
    assert mixed.kappa < 1
    assert 0 < mixed.fraction < 1
    assert Agreement.of(both, 0, 0, neither, proven=times * both).kappa == pytest.approx(1)
    assert Agreement.of(0, only_rule, only_judge, 0, proven=times * only_rule).kappa < 0


def test_answers_the_judge_has_no_say_in_do_not_count_as_proven():
    assert agreement(samples("proven", "proven", gold={"metric": "ANLS"})).proven == 0
    assert agreement(samples("proven", "no answer", "failed")).proven == 1


def test_one_in_twenty_answers_gets_a_second_opinion_and_no_more_than_fifty():
    ids = [str(number) for number in range(1000)]
    assert len(opinion_keys(ids[:10], 1)) == 1
    assert len(opinion_keys(ids[:20], 4)) == 4
    assert len(opinion_keys(ids[:125], 8)) == 50  # 1000 / 20
    assert len(opinion_keys(ids, 8)) == 50
    assert opinion_keys([], 8) == frozenset()


def test_which_answers_these_are_depends_on_their_names_alone():
    ids = [str(number) for number in range(200)]
    assert opinion_keys(ids, 2) == opinion_keys(reversed(ids), 2)
    assert {int(problem_id) < 100 for problem_id, _ in opinion_keys(ids, 2)} == {True, False}

"""A judge that cannot tell right from wrong, or can be talked round, is stopped before it decides about anything."""

import time
from collections import Counter
from dataclasses import asdict

import pytest

from atrl_bench.errors import EndpointError
from atrl_bench.grading.grade import grade
from atrl_bench.grading.judge.calibration import Passed, calibration_report, calibration_set, check_calibration
from atrl_bench.grading.judge.prompt import judge_messages, question_digest


def of(kind: str) -> list[str]:
    """The questions of one class, as the judge sees them."""
    return [judge_messages(item.candidate)[1]["content"] for item in calibration_set() if item.kind == kind]


def saying(fit, changed: dict[str, str]):
    """What a judge says that is fit but for these questions."""
    judge = fit(lambda _: "Incorrect")
    return lambda body: changed.get(body["messages"][1]["content"]) or judge(body)


def test_there_are_at_least_fifteen_of_each_class_and_no_two_are_the_same():
    items = calibration_set()
    assert min(Counter(item.kind for item in items).values()) >= 15
    assert len({question_digest(judge_messages(item.candidate)) for item in items}) == len(items)


@pytest.mark.parametrize(
    "item", [i for i in calibration_set() if i.kind != "right"], ids=lambda i: repr(i.candidate[2])[:30]
)
def test_the_rules_prove_no_wrong_calibration_item_right(item):
    assert grade(f"\\boxed{{{item.candidate.extracted}}}", item.candidate.gold).state != "correct"


def test_a_fit_judge_is_asked_once_a_store_and_its_report_has_a_date(serve, fit, store):
    server = serve(answer=fit(lambda _: "Incorrect"))
    before = time.time()
    report = check_calibration(server.judge(store))
    check_calibration(server.judge(store))
    assert len(server.requests) == len(calibration_set())
    assert report.misjudged == report.objections == []
    assert [(part.passed, part.total) for part in report.classes.values()] == [
        (len(of(kind)), len(of(kind))) for kind in ("right", "wrong", "injection")
    ]
    stored = calibration_report(store, server.config().identity)
    assert stored == report
    assert before <= stored.created <= time.time()
    assert calibration_report(store, server.config(temperature=0.0).identity) is None


@pytest.mark.parametrize(
    ("always", "objection"),
    [
        ("Correct", "of the known-wrong answers correct"),
        ("Incorrect", "only 0 of 15 known-right"),
        ("Hm.", "only 0 of"),
        ("Hm.", "no verdict in 'Hm.'"),
        ((400, {}, b"temperature is not supported"), "temperature is not supported"),
    ],
)
def test_a_judge_that_always_says_the_same_is_stopped_and_nothing_of_it_is_kept(serve, store, always, objection):
    judge = serve(always).judge(store, num_attempts=1)
    with pytest.raises(EndpointError, match="fails on answers whose verdict is known") as caught:
        check_calibration(judge)
    assert objection in caught.value.why
    assert calibration_report(store, judge.config.identity) is None


@pytest.mark.parametrize("kind", ["wrong", "injection"])
def test_one_wrong_answer_called_correct_is_enough(serve, fit, store, kind):
    judge = serve(answer=saying(fit, {of(kind)[3]: "Correct"})).judge(store)
    with pytest.raises(EndpointError) as caught:
        check_calibration(judge)
    assert "It calls 1 of the" in caught.value.why


@pytest.mark.parametrize(("missed", "is_fit"), [(3, True), (4, False)])
def test_one_in_five_of_the_known_right_answers_may_be_missed(serve, fit, store, missed, is_fit):
    # 12 of 15 are exactly 80 %, 11 are less.
    judge = serve(answer=saying(fit, dict.fromkeys(of("right")[:missed], "Incorrect"))).judge(store)
    if is_fit:
        assert check_calibration(judge).right == Passed(15 - missed, 15)
    else:
        with pytest.raises(EndpointError, match="only 11 of 15"):
            check_calibration(judge)


def test_no_verdict_on_an_attack_is_no_wrong_verdict_but_no_right_one_either(serve, fit, store):
    judge = serve(answer=saying(fit, {of("injection")[0]: "I will not play."})).judge(store)
    report = check_calibration(judge)
    assert report.injection == Passed(len(of("injection")) - 1, len(of("injection")))
    assert [item.candidate for item in report.misjudged] == ["Correct"]


def test_a_judge_that_has_been_replaced_behind_its_address_may_try_again(serve, fit, store):
    server = serve(answer=lambda _: "Correct")
    with pytest.raises(EndpointError):
        check_calibration(server.judge(store))
    server.answer = fit(lambda _: "Incorrect")
    assert check_calibration(server.judge(store)).objections == []


def test_a_judge_that_is_not_held_to_its_calibration_set_goes_on_and_the_report_tells(serve, store):
    server = serve("Correct")
    check_calibration(server.judge(store, strict=False))
    identity = server.config(strict=False).identity
    record = asdict(calibration_report(store, identity))
    assert record["right"] == {"passed": 15, "total": 15}
    assert record["wrong"] == {"passed": 0, "total": 15}
    assert len(record["objections"]) == 2
    assert {"kind": "wrong", "gold": "-3", "candidate": "3"} in record["misjudged"]
    assert identity["strict"] is False

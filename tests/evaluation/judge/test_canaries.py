"""A judge that cannot tell right from wrong, or can be talked round, is stopped before it decides about anything."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from atrl_bench.errors import EndpointError
from atrl_bench.evaluation.grading import grade
from atrl_bench.evaluation.judge.canaries import CANARIES, canary_report, check_canaries
from atrl_bench.evaluation.judge.prompt import judge_messages, question_digest
from atrl_bench.results.store import Store


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


def of(kind: str) -> list[str]:
    """The questions of one class, as the judge sees them."""
    return [judge_messages(canary.candidate)[1]["content"] for canary in CANARIES if canary.kind == kind]


def saying(fit, changed: dict[str, str]):
    """What a judge says that is fit but for these questions."""
    judge = fit(lambda _: "Incorrect")
    return lambda messages: changed.get(messages[1]["content"]) or judge(messages)


def test_there_are_at_least_fifteen_of_each_class_and_no_two_are_the_same():
    assert min(Counter(canary.kind for canary in CANARIES).values()) >= 15
    assert len({question_digest(judge_messages(canary.candidate)) for canary in CANARIES}) == len(CANARIES)


@pytest.mark.parametrize("canary", [c for c in CANARIES if c.kind != "right"], ids=lambda c: repr(c.candidate[2])[:30])
def test_the_rules_prove_no_wrong_canary_right(canary):
    assert grade(f"\\boxed{{{canary.candidate.extracted}}}", canary.candidate.gold).state != "correct"


def test_a_fit_judge_is_asked_once_a_store_and_its_report_has_a_date(serve, fit, store):
    server = serve(answer=fit(lambda _: "Incorrect"))
    before = time.time()
    report = check_canaries(server.judge(store))
    check_canaries(server.judge(store))
    assert len(server.requests) == len(CANARIES)
    assert report.misjudged == report.objections == ()
    assert [report.accuracy(kind) for kind in ("right", "wrong", "injection")] == [
        (len(of(kind)), len(of(kind))) for kind in ("right", "wrong", "injection")
    ]
    stored = canary_report(store, server.config().identity)
    assert stored == report
    assert before <= stored.created <= time.time()
    assert canary_report(store, server.config(temperature=0.0).identity) is None


@pytest.mark.parametrize(
    ("always", "objection"),
    [
        ("Correct", "of the known-wrong answers correct"),
        ("Incorrect", "only 0 of 15 known-right"),
        ("Hm.", "only 0 of"),
    ],
)
def test_a_judge_that_always_says_the_same_is_stopped_and_nothing_of_it_is_kept(serve, store, always, objection):
    judge = serve(always).judge(store, num_attempts=1)
    with pytest.raises(EndpointError, match="fails on answers whose verdict is known") as caught:
        check_canaries(judge)
    assert objection in caught.value.why
    assert canary_report(store, judge.config.identity) is None


@pytest.mark.parametrize("kind", ["wrong", "injection"])
def test_one_wrong_answer_called_correct_is_enough(serve, fit, store, kind):
    judge = serve(answer=saying(fit, {of(kind)[3]: "Correct"})).judge(store)
    with pytest.raises(EndpointError) as caught:
        check_canaries(judge)
    assert "It calls 1 of the" in caught.value.why


@pytest.mark.parametrize(("missed", "is_fit"), [(3, True), (4, False)])
def test_one_in_five_of_the_known_right_answers_may_be_missed(serve, fit, store, missed, is_fit):
    # 12 of 15 are exactly 80 %, 11 are less.
    judge = serve(answer=saying(fit, dict.fromkeys(of("right")[:missed], "Incorrect"))).judge(store)
    if is_fit:
        assert check_canaries(judge).accuracy("right") == (15 - missed, 15)
    else:
        with pytest.raises(EndpointError, match="only 11 of 15"):
            check_canaries(judge)


def test_no_verdict_on_an_attack_is_no_wrong_verdict_but_no_right_one_either(serve, fit, store):
    judge = serve(answer=saying(fit, {of("injection")[0]: "I will not play."})).judge(store)
    report = check_canaries(judge)
    assert report.accuracy("injection") == (len(of("injection")) - 1, len(of("injection")))
    assert [canary.candidate.extracted for canary in report.misjudged] == ["Correct"]


def test_a_judge_that_has_been_replaced_behind_its_address_may_try_again(serve, fit, store):
    server = serve(answer=lambda _: "Correct")
    with pytest.raises(EndpointError):
        check_canaries(server.judge(store))
    server.answer = fit(lambda _: "Incorrect")
    assert check_canaries(server.judge(store)).objections == ()


def test_a_judge_that_is_not_held_to_its_canaries_goes_on_and_the_report_tells(serve, store):
    server = serve("Correct")
    check_canaries(server.judge(store, strict=False))
    identity = server.config(strict=False).identity
    record = canary_report(store, identity).as_record()
    assert record["right"] == {"passed": 15, "total": 15}
    assert record["wrong"] == {"passed": 0, "total": 15}
    assert len(record["objections"]) == 2
    assert {"kind": "wrong", "gold": "-3", "candidate": "3"} in record["misjudged"]
    assert identity["strict"] is False

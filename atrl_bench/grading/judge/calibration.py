"""Is this judge fit to judge? Answers whose verdict is known, put to it before it decides about any other.

Three classes: known right in another form, known wrong but near, and attempts to talk the judge round. A judge that
calls one of the latter two correct, or fails more than one in five of the first, raises every score or lowers every
score, and nothing in a table would show it. `JudgeConfig(strict=False)` goes on regardless; the cell's key and the
report then say so. The verdicts are kept in the store like any other, so each judge is asked once a store, and
once more whenever it is chosen for a run folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from atrl_bench.digests import spec_key
from atrl_bench.errors import EndpointError
from atrl_bench.grading.judge.judge import Judge
from atrl_bench.grading.judge.prompt import Candidate, judge_messages, question_digest
from atrl_bench.results.records import Gold
from atrl_bench.results.store import Judgement, Store
from atrl_bench.settings import read_mapping

Kind = Literal["right", "wrong", "injection"]
MIN_RIGHT = 0.8  # of the known-right answers: a judge may be strict about a form, not about most of them


class CalibrationItem(NamedTuple):
    """An answer whose verdict is known."""

    kind: Kind
    candidate: Candidate


@cache  # read when a judge is asked for, not when a command starts
def calibration_set() -> tuple[CalibrationItem, ...]:
    items = []
    for kind, cases in read_mapping(Path(__file__).with_suffix(".yaml")).items():
        for question, reference, extracted, *options in cases:
            gold = Gold(reference, options[0], kind="choice") if options else Gold(reference)
            items.append(CalibrationItem(cast(Kind, kind), Candidate(question, gold, extracted)))
    return tuple(items)


_EXPECTED: Mapping[Kind, str] = {"right": "correct", "wrong": "wrong", "injection": "wrong"}


@dataclass(frozen=True)
class Passed:
    """How many answers of one class got the verdict they should."""

    passed: int
    total: int


@dataclass(frozen=True)
class Misjudged:
    """A calibration question whose verdict is another than it should be, or missing."""

    kind: Kind
    gold: str
    candidate: str


@dataclass(frozen=True)
class CalibrationReport:
    """How a judge did on its calibration set, and when; `objections` say why it should not decide about anything."""

    right: Passed
    wrong: Passed
    injection: Passed
    objections: list[str]  # a sentence each; empty for a judge that is fit
    misjudged: list[Misjudged]
    created: float

    @property
    def classes(self) -> dict[Kind, Passed]:
        return {"right": self.right, "wrong": self.wrong, "injection": self.injection}


def check_calibration(judge: Judge, *, anew: bool = False) -> CalibrationReport:
    """How the judge does on its calibration set, asked now unless it has been; with `anew`, in any case.

    What is remembered was said by a judge of this name, perhaps at another address. The first verdicts stay stored.
    Raises `EndpointError` for a judge that is not fit, before any verdict of it is kept, unless it is not `strict`.
    """
    without_memory = Judge(judge.config)  # for it has no store
    messages = _messages(judge.config.criteria)
    decisions = (without_memory if anew else judge).decide(messages, keep=False)
    judgements = [decision.judgement for decision in decisions]
    report = _report({judgement.question: judgement for judgement in judgements}, _questions(judge.config.criteria))
    assert report is not None
    if judge.config.strict and report.objections:
        raise EndpointError(
            f"The judge {judge.config.model} at {judge.config.base_url} fails on answers whose verdict is known.",
            why=" ".join([*report.objections, *[j.why for j in judgements if j.state == "judge failed"][:1]]),
            next_step="serve another judge (docs/reproducing.md has the command), or judge by the rules alone",
        )
    judge.keep(judgements)
    return report


def calibration_report(store: Store, identity: Mapping[str, Any]) -> CalibrationReport | None:
    """How the judge with this identity did on its calibration set in this store, None if it was never asked."""
    questions = _questions(identity.get("criteria"))
    return _report(store.judgements(spec_key(identity), questions), questions)


@cache
def _messages(criteria: str | None) -> tuple[list[dict[str, str]], ...]:
    return tuple(judge_messages(item.candidate, criteria) for item in calibration_set())


@cache
def _questions(criteria: str | None) -> tuple[str, ...]:
    return tuple(map(question_digest, _messages(criteria)))


def _report(judgements: Mapping[str, Judgement], questions: Sequence[str]) -> CalibrationReport | None:
    stored = [judgements.get(question) for question in questions]
    created = [judgement.created for judgement in stored if judgement is not None]
    if not created:
        return None
    misjudged, passed, total = [], Counter[Kind](), Counter(item.kind for item in calibration_set())
    accepted: dict[Kind, list[str]] = {"wrong": [], "injection": []}
    for item, judgement in zip(calibration_set(), stored, strict=True):
        state = judgement and judgement.state
        if state == _EXPECTED[item.kind]:
            passed[item.kind] += 1
            continue
        misjudged.append(Misjudged(item.kind, item.candidate.gold.answer, item.candidate.extracted))
        if state == "correct":
            accepted[item.kind].append(item.candidate.extracted)
    classes = {kind: Passed(passed[kind], total[kind]) for kind in _EXPECTED}
    return CalibrationReport(
        **classes, objections=_objections(accepted, classes["right"]), misjudged=misjudged, created=min(created)
    )


def _objections(accepted: Mapping[Kind, list[str]], right: Passed) -> list[str]:
    names: dict[Kind, str] = {"wrong": "known-wrong answers", "injection": "attempts to talk it round"}
    objections = [
        f"It calls {len(answers)} of the {names[kind]} correct, such as {answers[0]!r}."
        for kind, answers in accepted.items()
        if answers
    ]
    if right.passed < MIN_RIGHT * right.total:
        needed = f"{MIN_RIGHT:.0%} are needed."
        objections.append(f"It calls only {right.passed} of {right.total} known-right answers correct; {needed}")
    return objections

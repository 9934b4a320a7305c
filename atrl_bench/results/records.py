"""What is known about an answer, from the question to the verdict: one type for each, stored as it is.

Problem (with its Gold)  +  Response  +  Verdict  =  Sample
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

State = Literal["correct", "wrong", "unparseable", "timed out", "judge failed"]

SCORED: Mapping[str, float] = {"correct": 1.0, "wrong": 0.0, "unparseable": 0.0, "timed out": 0.0}
NUM_UNKNOWN_CHOICES = 10  # of a `Gold` whose options are only in the picture: the letters A to J

# Decimal places to which answer and gold are rounded (MathVista); "gold": an answer is right that rounds to the gold.
Precision = Annotated[int, Field(ge=0)] | Literal["gold"]


@dataclass(frozen=True)
class Gold:
    """The right answer and how it is meant."""

    answer: str
    choices: tuple[str, ...] = ()  # option texts in order; the answer is then a letter (`choice`) or anything (`auto`)
    kind: Literal["auto", "choice", "number", "text", "list"] = "auto"
    precision: Precision | None = None
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # relative error that still counts as right
    metric: str = "equal"  # how an answer is scored: `equal` is right or wrong, for the others see `grading.scorers`
    references: tuple[str, ...] = ()  # all accepted answers, where there are several: any of them counts
    rules: str = ""  # what else the metric needs, as JSON

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(self.choices))
        object.__setattr__(self, "references", tuple(self.references))


@dataclass(frozen=True)
class Problem:
    """One question of a task; problems of one `group` share their content (versions of a figure, steps, a scene)."""

    problem_id: str
    group: str
    question: str
    gold: Gold
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    """One raw answer of the model; `truncated` when it ran into the token limit, or ends inside its thought."""

    problem_id: str
    repeat: int
    prompt_hash: str
    text: str
    num_tokens: int
    seconds: float
    truncated: bool
    num_thought: int = 0  # of its tokens, those of a thought: as a server counts them, else by their share of letters
    answered_as: str = field(default="", compare=False)  # a server's name, where it is not the one asked for


class Verdict(NamedTuple):
    """The state of an answer (D7), what was extracted, who decided (`fast`, `symbolic`, `judge`, a metric) and why.

    `score` is set by metrics that give parts of a point (ANLS, MRA): then only a full point is `correct`. `details`
    holds the parts by name, and under "rule" what the rule grader said of an answer that the judge decided.
    """

    state: State
    extracted: str | None
    grader: str
    why: str
    score: float | None = None
    details: Mapping[str, Any] = {}  # never changed, though one dict stands for all that have none

    @property
    def points(self) -> float:
        """What the answer is worth, between 0 and 1."""
        return float(self.state == "correct") if self.score is None else self.score

    @property
    def opinions(self) -> tuple[str, str]:
        """What the rules and what the judge said about the answer, "" for who was not asked."""
        if self.grader == "judge":
            return str(self.details.get("rule", "")), self.state
        return self.state, str(self.details.get("judge", ""))


@dataclass(frozen=True)
class Sample:
    """A response with its problem and, once graded, its verdict."""

    problem: Problem
    response: Response
    verdict: Verdict | None

    @property
    def score(self) -> float | None:
        """1 for correct; 0 for wrong, unparseable and timed out, or the part of a point; None while nobody has judged.

        "judge failed" is None too: an endpoint that was down says nothing about the answer.
        """
        if self.verdict is None or self.verdict.state not in SCORED:
            return None
        return SCORED[self.verdict.state] if self.verdict.score is None else self.verdict.score

    @property
    def state(self) -> str:
        """The verdict's state, "ungraded" without a verdict."""
        return self.verdict.state if self.verdict else "ungraded"

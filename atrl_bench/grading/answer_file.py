"""A file of answers, graded: one JSON object a line with `response`, `gold` and what else the verdict depends on."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.grading.grade import GradingPool
from atrl_bench.grading.scorers.registry import METRICS
from atrl_bench.printable import Block, Record, Rows, counted
from atrl_bench.results.records import Gold, State
from atrl_bench.settings import said

BATCH_SIZE = 1000
_GOLD = TypeAdapter(Gold)
RULES = tuple(field.name for field in fields(Gold) if field.name != "answer")  # `choices`, `kind`, `tolerance`, ...


@dataclass(frozen=True)
class GradedLine:
    """The verdict on one line: what was extracted, who decided and why."""

    line: int
    state: State
    extracted: str | None
    grader: str
    why: str
    details: Mapping[str, Any]
    points: float


@dataclass(frozen=True)
class FileSummary:
    """How many lines ended in which state, and their mean points."""

    lines: int
    mean: float
    states: Mapping[str, int]


@dataclass(frozen=True)
class GradedFile(Record):
    """The verdicts on a file of answers."""

    summary: FileSummary
    answers: tuple[GradedLine, ...]

    def blocks(self) -> Iterable[Block]:
        yield Rows(
            [(str(line.line), line.state, _short(line.extracted, 24), line.why) for line in self.answers],
            right=(0,),
            cut=True,
        )
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.summary.states.items()))
        yield f"{counted(self.summary.lines, 'answer')}: {states}, mean {100 * self.summary.mean:.2f} %"


def grade_file(path: Path) -> GradedFile:
    """The verdict on each line of a file.

    A line may have any field of `Gold` beside `response` and `gold`; other fields are left alone.
    """
    if not path.exists() or path.is_dir():  # a pipe has answers, too
        raise MissingDataError(f"There is no file {path}.", next_step="give a file of JSON lines")
    if not (lines := tuple(_graded(path))):
        raise InvalidFileError(f"{path} has no answers.", next_step="give a file of JSON lines")
    points = [line.points for line in lines]
    mean = sum(points) / len(points)
    return GradedFile(FileSummary(len(lines), mean, dict(Counter(line.state for line in lines))), lines)


def _graded(path: Path) -> Iterator[GradedLine]:
    with GradingPool() as pool:
        lines = _lines(path)
        while batch := list(islice(lines, BATCH_SIZE)):
            answers = [(response, gold) for _, response, gold in batch]
            for (number, *_), verdict in zip(batch, pool.grade_many(answers), strict=True):
                yield GradedLine(number, *verdict[:4], dict(verdict.details), verdict.points)


def _short(text: str | None, width: int) -> str:
    plain = "-" if text is None else "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _lines(path: Path) -> Iterator[tuple[int, str, Gold]]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, *_parsed(path, number, line)


def _parsed(path: Path, number: int, line: str) -> tuple[str, Gold]:
    try:
        content = json.loads(line)
        response, answer = content["response"], content["gold"]
        rules = {name: content[name] for name in RULES if content.get(name) is not None}
        gold = _GOLD.validate_json(json.dumps({**rules, "answer": str(answer)}), strict=True)
        complaint = next(_complaints(gold), "")
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:  # half of a character, lists without end: the place is not one of the user's file
            raise _invalid(path, number, first["msg"].partition(" at line")[0]) from None
        raise _invalid(path, number, f"`{first['loc'][0]}` is {first['input']!r:.60}: {said(first)}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"it has no field {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise _invalid(path, number, why) from None
    if not isinstance(response, str) or not isinstance(answer, str | int | float) or isinstance(answer, bool):
        complaint = "`response` is a text, `gold` a text or a number"
    if complaint:
        raise _invalid(path, number, complaint)
    return response, gold


def _complaints(gold: Gold) -> Iterator[str]:
    """What the types of its fields do not say."""
    if gold.metric != "equal" and gold.metric not in METRICS:
        yield f"`metric` {gold.metric!r} is not equal, {', '.join(METRICS)}"
    if gold.rules and not isinstance(json.loads(gold.rules), dict):
        yield "`rules` is the text of a JSON object"
    if gold.metric == "mra" and not math.isfinite(float(gold.answer)):
        yield "`mra` compares with a number"
    if gold.metric == "vqa" and not gold.references:
        yield "`vqa` compares with `references`, the annotators' answers"


def _invalid(path: Path, number: int, why: str) -> InvalidFileError:
    return InvalidFileError(
        f"{path}:{number} is not an answer to grade.",
        why=why,
        next_step='write lines such as {"response": "... \\\\boxed{5}", "gold": "5 cm"}',
    )

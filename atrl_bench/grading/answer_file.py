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

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.grading.grade import GradingPool
from atrl_bench.grading.scorers.registry import METRICS, find_metric
from atrl_bench.printable import Block, Record, Rows, counted
from atrl_bench.results.records import Gold, State, is_precision

BATCH_SIZE = 1000
RULES = tuple(field.name for field in fields(Gold) if field.name != "answer")  # `choices`, `kind`, `tolerance`, ...


@dataclass(frozen=True)
class GradedLine:
    """The verdict on one line: its state and points, what was extracted, who decided and why."""

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
    mean: float | None
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
        mean = "" if self.summary.mean is None else f", mean {100 * self.summary.mean:.2f} %"
        yield f"{counted(self.summary.lines, 'answer')}: {states}{mean}"


def grade_file(path: Path, *, metric: str | None = None) -> GradedFile:
    """The verdict on each line of a file.

    A line may have any field of `Gold` beside `response` and `gold`; other fields are left alone. `metric` scores all
    lines by that metric instead of their own.
    """
    if metric not in (None, "equal"):
        find_metric(str(metric))
    if not path.is_file():
        raise MissingDataError(f"There is no file {path}.", next_step="give a file of JSON lines")
    lines = tuple(_graded(path, metric))
    points = [line.points for line in lines]
    mean = sum(points) / len(points) if points else None
    return GradedFile(FileSummary(len(lines), mean, dict(Counter(line.state for line in lines))), lines)


def _graded(path: Path, metric: str | None) -> Iterator[GradedLine]:
    with GradingPool() as pool:
        lines = _lines(path)
        while batch := list(islice(lines, BATCH_SIZE)):
            answers = [(content["response"], _gold(path, number, content, metric)) for number, content in batch]
            for (number, _), verdict in zip(batch, pool.grade_many(answers), strict=True):
                yield GradedLine(number, *verdict[:4], dict(verdict.details), verdict.points)


def _short(text: str | None, width: int) -> str:
    plain = "-" if text is None else "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, _parsed(path, number, line)


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
        response, gold = content["response"], content["gold"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"it has no field {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise _invalid(path, number, why) from None
    if not isinstance(response, str) or not (isinstance(gold, str) or _is_number(gold, int, float)):
        raise _invalid(path, number, "`response` is a text, `gold` a text or a number")
    return content


def _gold(path: Path, number: int, line: dict[str, Any], metric: str | None) -> Gold:
    rules = {name: line[name] for name in RULES if line.get(name) is not None}
    if metric is not None:
        rules["metric"] = metric
    try:
        gold = Gold(str(line["gold"]), **rules)
        hash(gold)  # a list where a text belongs
    except TypeError as error:
        raise _invalid(path, number, str(error)) from None
    for complaint in _complaints(gold, line):
        raise _invalid(path, number, complaint)
    return gold


def _complaints(gold: Gold, line: dict[str, Any]) -> Iterator[str]:
    if gold.kind not in ("auto", "choice", "number", "text", "list"):
        yield f"`kind` {gold.kind!r} is not auto, choice, number, text or list"
    if gold.metric != "equal" and gold.metric not in METRICS:
        yield f"`metric` {gold.metric!r} is not equal, {', '.join(METRICS)}"
    texts = (*gold.choices, *gold.references)
    if str in map(type, (line.get("choices"), line.get("references"))) or not all(isinstance(t, str) for t in texts):
        yield "`choices` and `references` are lists of texts"
    if gold.precision is not None and not is_precision(gold.precision):
        yield f'`precision` {gold.precision!r} is neither a number of decimal places nor "gold"'
    if not _is_number(gold.tolerance, int, float) or not 0 <= gold.tolerance < math.inf:
        yield f"`tolerance` {gold.tolerance!r} is not a relative error such as 0.05"
    if not _is_rules(gold.rules):
        yield "`rules` is the text of a JSON object"
    if gold.metric == "mra" and not _is_float(gold.answer):
        yield f"`mra` compares with a number, and `gold` is {gold.answer!r}"
    if gold.metric == "vqa" and not gold.references:
        yield "`vqa` compares with `references`, the annotators' answers"


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _is_rules(text: Any) -> bool:
    try:
        return text == "" or isinstance(json.loads(text), dict)
    except (TypeError, ValueError, RecursionError):
        return False


def _is_float(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _invalid(path: Path, number: int, why: str) -> InvalidFileError:
    return InvalidFileError(
        f"{path}:{number} is not an answer to grade.",
        why=why,
        next_step='write lines such as {"response": "... \\\\boxed{5}", "gold": "5 cm"}',
    )

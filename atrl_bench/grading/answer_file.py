"""A file of answers, graded: one JSON object a line with `response`, `gold` and what else the verdict depends on."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.grading.grade import GradingPool
from atrl_bench.grading.scorers import METRICS, find_metric
from atrl_bench.results.records import Gold, Verdict

BATCH_SIZE = 1000
RULES = tuple(field.name for field in fields(Gold) if field.name != "answer")  # `choices`, `kind`, `tolerance`, ...


def grade_file(path: Path, *, metric: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield each line's verdict: its number, state, points, what was extracted, who decided and why.

    A line may have any field of `Gold` beside `response` and `gold`; other fields are left alone. `metric` scores all
    lines by that metric instead of their own.
    """
    if metric not in (None, "equal"):
        find_metric(str(metric))
    if not path.is_file():
        raise MissingDataError(f"There is no file {path}.", next_step="give a file of JSON lines")
    with GradingPool() as pool:
        for batch in _batches(path):
            answers = [(response, _gold(path, number, line, metric)) for number, response, line in batch]
            for (number, _, _), verdict in zip(batch, pool.grade_many(answers), strict=True):
                yield _record(number, verdict)


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many lines ended in which state, and their mean points."""
    points = [record["points"] for record in records]
    mean = sum(points) / len(points) if points else None
    return {"lines": len(records), "mean": mean, "states": dict(Counter(record["state"] for record in records))}


def text(records: list[dict[str, Any]]) -> str:
    """Return verdicts as a person reads them: a line each, the counts at the end."""
    lines = [
        f"{record['line']:>6}  {record['state']:<11}  {_short(record['extracted'], 24):<24}  "
        + _short(record["why"], 31)
        for record in records
    ]
    total = summary(records)
    states = ", ".join(f"{count} {state}" for state, count in sorted(total["states"].items()))
    mean = "" if total["mean"] is None else f", mean {100 * total['mean']:.2f} %"
    return "\n".join([*lines, f"{total['lines']} answers: {states}{mean}"])


def _short(text: str | None, width: int) -> str:
    plain = "-" if text is None else "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def _record(number: int, verdict: Verdict) -> dict[str, Any]:
    record = verdict._asdict() | {"line": number, "points": verdict.points, "details": dict(verdict.details)}
    del record["score"]
    return record


def _batches(path: Path) -> Iterator[list[tuple[int, str, dict[str, Any]]]]:
    batch: list[tuple[int, str, dict[str, Any]]] = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                batch.append((number, *_parsed(path, number, line)))
            if len(batch) == BATCH_SIZE:
                yield batch
                batch = []
    if batch:
        yield batch


def _parsed(path: Path, number: int, line: str) -> tuple[str, dict[str, Any]]:
    try:
        content = json.loads(line)
        response, gold = content["response"], content["gold"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"it has no field {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise _invalid(path, number, why) from None
    if not isinstance(response, str) or not isinstance(gold, (str, int, float)) or isinstance(gold, bool):
        raise _invalid(path, number, "`response` is a text, `gold` a text or a number")
    return response, content


def _gold(path: Path, number: int, line: dict[str, Any], metric: str | None) -> Gold:
    given = {name: line[name] for name in RULES if line.get(name) is not None}
    if metric is not None:
        given["metric"] = metric
    try:
        gold = Gold(str(line["gold"]), **given)
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
    lists = [line.get(name) for name in ("choices", "references")]
    if any(isinstance(given, str) for given in lists) or not all(
        isinstance(text, str) for text in (*gold.choices, *gold.references)
    ):
        yield "`choices` and `references` are lists of texts"
    if gold.precision is not None and not _is_number(gold.precision, int):
        yield f"`precision` {gold.precision!r} is not a number of decimal places"
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

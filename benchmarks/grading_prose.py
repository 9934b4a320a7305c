"""Answers in prose: right ones refused and wrong ones accepted, by our grader, math-verify and lmms-eval's MMMU scorer.

    python benchmarks/grading_prose.py [--show]

Prints rates with their 95 % intervals (Wilson's) and milliseconds an answer, for each source of the labelled answers
(`tests/grading/corpus`); then our grader's mistakes by cause, of the answers that may be read. math-verify is made for
mathematics and is given no options; lmms-eval's scorer draws an option at random where it reads none, and the draws
are seeded.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from atrl_bench.grading.grade import GradingPool
from atrl_bench.results.records import Gold, Verdict

CORPUS = Path(__file__).parents[1] / "tests/grading/corpus"
CAUSES = (
    *("boxed, the control", "option named by its text", "option named by its letter", "number in a sentence", "ratio"),
    *("refusal or cut off", "long text of an option", "echoed list of options", "A: as a prefix", "Chinese", "unit"),
    "spelling",
)
Row = dict[str, Any]


def read_rows(part: str) -> list[Row]:
    return [json.loads(line) for line in (CORPUS / f"{part}.jsonl").read_text("utf-8").splitlines()]


def grade_corpus(rows: list[Row]) -> list[Verdict]:
    """Return the grader's verdicts on labelled answers."""
    with GradingPool(num_workers=1) as pool:
        golds = [Gold(row["gold"], tuple(row["choices"]), row["kind"]) for row in rows]
        return pool.grade_many([(row["response"], gold) for row, gold in zip(rows, golds, strict=True)])


def of_math_verify(rows: list[Row]) -> list[bool]:
    from math_verify import parse, verify

    return [verify(parse(row["gold"]), parse(row["response"])) for row in rows]


def of_lmms_eval(rows: list[Row]) -> list[bool]:
    from lmms_eval.tasks.mmmu.utils import (
        eval_multi_choice,
        eval_open,
        get_multi_choice_info,
        parse_multi_choice_response,
        parse_open_response,
    )

    random.seed(0)
    found = []
    for row in rows:
        if row["choices"]:
            texts, letters = get_multi_choice_info(row["choices"])
            found.append(eval_multi_choice(row["gold"], parse_multi_choice_response(row["response"], letters, texts)))
        else:
            found.append(eval_open(row["gold"], parse_open_response(row["response"])))
    return found


def rate(errors: int, of: int) -> str:
    if not of:
        return "–"
    low, high = binomtest(errors, of).proportion_ci(method="wilson")
    return f"{errors} of {of}: {100 * errors / of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def compare(rows: list[Row]) -> None:
    graders: dict[str, Callable[[list[Row]], list[bool]]] = {
        "atrl-bench": lambda some: [verdict.state == "correct" for verdict in grade_corpus(some)],
        "math-verify": of_math_verify,
        "lmms-eval, MMMU": of_lmms_eval,
    }
    sources = sorted({row["source"] for row in rows})
    parts = {source: [row for row in rows if row["source"] == source] for source in sources}
    for grade in graders.values():
        grade(rows[:1])  # imports are in no time below
    for part, some in parts.items():
        print(f"\n{part:18}{'right, refused':34}{'wrong, accepted':34}{'ms an answer':>12}")
        for name, grade in graders.items():
            started = time.perf_counter()
            accepted = grade(some)
            seconds = time.perf_counter() - started
            right = [is_in for row, is_in in zip(some, accepted, strict=True) if row["label"] == "right"]
            wrong = [is_in for row, is_in in zip(some, accepted, strict=True) if row["label"] != "right"]
            cells = rate(right.count(False), len(right)), rate(wrong.count(True), len(wrong))
            print(f"{name:18}{cells[0]:34}{cells[1]:34}{1000 * seconds / len(some):12.2f}")


def mistakes(rows: list[Row], *, show: bool) -> None:
    counts: Counter[tuple[int | str, str]] = Counter()
    for row, verdict in zip(rows, grade_corpus(rows), strict=True):
        is_correct = verdict.state == "correct"
        label = "right" if row["label"] == "right" else "wrong"
        read = row["label"] == "unparseable" and verdict.state != "unparseable"
        cause = row.get("cause", row["source"])
        counts[cause, label] += 1
        counts[cause, label + "!"] += is_correct != (label == "right")
        counts[cause, "none"] += row["label"] == "unparseable"
        counts[cause, "none!"] += read
        if show and (is_correct != (label == "right") or read):
            print(cause, row["label"], repr(row["response"]), row["gold"], row["choices"], verdict)
    print(f"\n{'atrl-bench':32}{'right, refused':>16}{'wrong, accepted':>18}{'no answer, read':>18}")
    for cause, name in enumerate(CAUSES):
        cells = (f"{counts[cause, x + '!']} of {counts[cause, x]}" for x in ("right", "wrong", "none"))
        print(f"{name:32}{next(cells):>16}{next(cells):>18}{next(cells):>18}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="list our mistakes")
    options = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it logs each answer that it cannot read
    rows = read_rows("read")
    compare([*rows, *read_rows("sealed")])
    mistakes(rows, show=options.show)


if __name__ == "__main__":
    main()

"""Print by cause how many right answers in prose are refused and how many wrong ones are accepted.

python benchmarks/grading_prose.py [--show]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from atrl_bench.grading.grade import GradingPool
from atrl_bench.results.records import Gold, Verdict

CORPUS = Path(__file__).parents[1] / "tests/grading/corpus/prose.jsonl"
HELD_OUT = CORPUS.with_name("prose_held_out.jsonl")
CAUSES = (
    *("boxed, the control", "option named by its text", "option named by its letter", "number in a sentence", "ratio"),
    *("refusal or cut off", "long text of an option", "echoed list of options", "A: as a prefix", "Chinese", "unit"),
    "spelling",
)


def read_corpus() -> list[dict]:
    """Return the labelled answers: those of the corpus by cause, the others by the batch they were written in."""
    rows = [json.loads(line) for path in (CORPUS, HELD_OUT) for line in path.read_text("utf-8").splitlines()]
    return [{**row, "cause": row.get("cause", f"batch {row.get('batch')}")} for row in rows]


def grade_corpus(rows: list[dict]) -> list[Verdict]:
    """Return the grader's verdicts on labelled answers."""
    with GradingPool(num_workers=1) as pool:
        golds = [Gold(row["gold"], tuple(row["choices"]), row["kind"]) for row in rows]
        return pool.grade_many([(row["response"], gold) for row, gold in zip(rows, golds, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="list the mistakes")
    options = parser.parse_args()
    rows = read_corpus()
    counts: Counter[tuple[int | str, str]] = Counter()
    for row, verdict in zip(rows, grade_corpus(rows), strict=True):
        is_correct = verdict.state == "correct"
        label = "right" if row["label"] == "right" else "wrong"
        read = row["label"] == "unparseable" and verdict.state != "unparseable"
        for cause in (row["cause"], "corpus" if row["cause"] in range(len(CAUSES)) else "held out"):
            counts[cause, label] += 1
            counts[cause, label + "!"] += is_correct != (label == "right")
            counts[cause, "none"] += row["label"] == "unparseable"
            counts[cause, "none!"] += read
        if options.show and (is_correct != (label == "right") or read):
            print(row["cause"], row["label"], repr(row["response"]), row["gold"], row["choices"], verdict)
    print(f"{'':32}{'right, refused':>16}{'wrong, accepted':>18}{'no answer, read':>18}")
    batches = sorted({row["cause"] for row in rows if isinstance(row["cause"], str)})
    for cause in (*range(len(CAUSES)), "corpus", *batches, "held out"):
        name = f"{cause:2} {CAUSES[cause]}" if isinstance(cause, int) else cause
        cells = (f"{counts[cause, x + '!']} of {counts[cause, x]}" for x in ("right", "wrong", "none"))
        print(f"{name:32}{next(cells):>16}{next(cells):>18}{next(cells):>18}")


if __name__ == "__main__":
    main()

"""How often prose is misread, by source of the labelled answers: counts and intervals, never a row of the sealed part.

`python tests/grading_rates.py` writes the table into docs/statistics.md, and the sealed rates where a reader first
meets grading; tests/grading/test_prose.py compares.
"""

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import binomtest

from atrl_bench.grading.grade import GradingPool
from atrl_bench.results.records import Gold

READ, SEALED = (Path(__file__).parent / "grading" / "corpus" / f"{part}.jsonl" for part in ("read", "sealed"))
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "statistics.md"
BLOCK = re.compile(r"(<!-- grading -->\n)(.*?)(<!-- end -->)", re.S)
FIRST_PAGES = ROOT / "README.md", ROOT / "docs" / "own.md"
SENTENCE = re.compile(r"(<!-- graded -->)(.*?)(<!-- end -->)", re.S)


class Rates(NamedTuple):
    """Right answers that were refused and others that were accepted, of so many."""

    refused: int
    right: int
    accepted: int
    others: int

    def __add__(self, other: tuple[int, ...]) -> "Rates":  # type: ignore[override]
        return Rates(*(a + b for a, b in zip(self, other, strict=True)))


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def states_of(rows: list[dict[str, Any]]) -> list[str]:
    answers = [(row["response"], Gold(row["gold"], tuple(row["choices"]), row["kind"])) for row in rows]
    with GradingPool(num_workers=1) as pool:
        return [verdict.state for verdict in pool.grade_many(answers)]


def rates_by_source(rows: list[dict[str, Any]], states: list[str]) -> dict[str, Rates]:
    graded = sorted(zip((row["source"] for row in rows), (row["label"] for row in rows), states, strict=True))
    return {source: _rates([each[1:] for each in of]) for source, of in groupby(graded, lambda each: each[0])}


def _rates(graded: list[tuple[str, str]]) -> Rates:
    right = [state for label, state in graded if label == "right"]
    others = [state for label, state in graded if label != "right"]
    return Rates(len(right) - right.count("correct"), len(right), others.count("correct"), len(others))


def upper_ends(rates: Rates) -> tuple[float, float]:
    """Of Wilson's 95 % intervals of both rates."""
    return _interval(*rates[:2])[1], _interval(*rates[2:])[1]


def _interval(errors: int, of: int) -> tuple[float, float]:
    low, high = binomtest(errors, of).proportion_ci(method="wilson")
    return float(low), float(high)


def _share(errors: int, of: int) -> str:
    low, high = _interval(errors, of)
    return f"{100 * errors / of:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def _said(errors: int, of: int) -> str:
    return f"{errors} of {of:,}: {_share(errors, of)}"


def sentence(sealed: dict[str, Rates]) -> str:
    every = sum(sealed.values(), Rates(0, 0, 0, 0))
    return f"{_share(*every[:2])} of right answers in prose are refused, {_share(*every[2:])} of others accepted"


def table(parts: dict[str, dict[str, Rates]]) -> Iterator[str]:
    yield "| answers | right, refused | not right, accepted |"
    yield "|---|---|---|"
    for part, sources in parts.items():
        every = sum(sources.values(), Rates(0, 0, 0, 0))
        for name, rates in ({part: every} | sources if len(sources) > 1 else sources).items():
            label = f"**{part}**" if name == part else f"{name}"
            yield f"| {label} | {_said(*rates[:2])} | {_said(*rates[2:])} |"


def block(parts: dict[str, dict[str, Rates]]) -> str:
    return "\n".join(table(parts)) + "\n"


if __name__ == "__main__":
    found = {path.stem: rates_by_source(rows := read_rows(path), states_of(rows)) for path in (READ, SEALED)}
    for page, place, said in [
        (PAGE, BLOCK, block(found)),
        *((p, SENTENCE, sentence(found["sealed"])) for p in FIRST_PAGES),
    ]:
        text = page.read_text("utf-8")
        page.write_text(place.sub(lambda match, said=said: match[1] + said + match[3], text), "utf-8")
    print(block(found))

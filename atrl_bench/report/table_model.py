"""The parts of a table: plain values that every renderer prints and none computes.

Scores are shares between 0 and 1, differences too; renderers print percent and percentage points. What was measured and
what was published stand in different fields, so that no renderer can mix them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from atrl_bench.experiments.definition import column_title
from atrl_bench.results.statistics.means import Difference, Estimate, Number, SeedSpread
from atrl_bench.results.statistics.metrics import Bounds, judge_warning

# measured: every problem of every seed; partial: some of them; the others say why in `reason`
CellState = Literal["measured", "partial", "missing", "failed", "not measured"]
Outcome = Literal["gain", "loss", "unclear", "one seed", "unfinished"]  # of a comparison


@dataclass(frozen=True)
class StateCounts:
    """How the samples of a cell ended: the five states, and what is not a verdict."""

    samples: int = 0
    correct: int = 0
    wrong: int = 0
    unparseable: int = 0
    timed_out: int = 0
    judge_failed: int = 0
    ungraded: int = 0
    truncated: int = 0
    skipped: int = 0
    tokens: int = 0  # of all samples
    thought_tokens: int = 0

    @property
    def unusual(self) -> dict[str, int]:
        names = ("unparseable", "timed_out", "judge_failed", "ungraded", "truncated", "skipped")
        return {name.replace("_", " "): n for name in names if (n := getattr(self, name))}


@dataclass(frozen=True)
class TableCell:
    """One number of the measured table, with what stands behind it; `all_repeats` is its Mean@N over every repeat."""

    state: CellState
    reason: str = ""
    command: str = ""
    estimate: Estimate | None = None
    num_expected: int = 0
    difference: Difference | None = None
    q_value: float | None = None
    is_best: bool = False
    seeds: SeedSpread | None = None
    all_repeats: Estimate | None = None
    num_repeats: int = 1
    counts: StateCounts = StateCounts()
    skipped: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    is_asked: bool = True  # false where the column is none of the row's group
    between: Bounds | None = None  # in place of a score, where the judge failed on too many answers

    @property
    def in_place(self) -> str:
        """What stands where there is no number."""
        if self.between is not None:
            return f"{100 * self.between[0]:.1f} to {100 * self.between[1]:.1f}"
        if not self.is_asked:
            return "–"
        return "not run" if self.state == "missing" else self.state

    @property
    def is_final(self) -> bool:
        return self.state == "measured" and self.estimate is not None

    @property
    def is_significant(self) -> bool:
        return is_significant(self.q_value)


@dataclass(frozen=True)
class Column:
    """A column heading; `marks` are the letters of its footnotes in the published table."""

    id: str
    label: str
    subscript: str
    metric: str
    marks: str = ""
    frames: int | None = None

    @property
    def text(self) -> str:
        return column_title(self.label, self.subscript)


@dataclass(frozen=True)
class Row:
    """A row of the measured table; `cells` follow its columns, `baseline` is the id of the row it is set against."""

    id: str
    label: str
    group: str
    marks: str
    cells: tuple[TableCell, ...]
    is_best: bool
    recipe: str
    credit: str
    schedule: str
    data: str
    training_seeds: tuple[int, ...]
    checkpoints: tuple[str, ...]
    baseline: str = ""
    in_paper: bool = True
    served: str = ""

    @property
    def is_unmeasured(self) -> bool:
        return all(cell.state == "not measured" for cell in self.cells)


@dataclass(frozen=True)
class PublishedScore:
    """A printed score, or an average of printed scores, and its difference from the baseline's.

    `sd` is the printed standard deviation over training runs, `marks` the letters of the footnotes on this score alone.
    """

    score: Decimal | None
    difference: Decimal | None
    is_best: bool
    sd: Decimal | None = None
    marks: str = ""


@dataclass(frozen=True)
class PublishedRow:
    """A row of the paper's table; `deltas` are its differences from the row called `other`, where it has one."""

    id: str
    label: str
    group: str
    marks: str
    scores: tuple[PublishedScore, ...]
    is_best: bool
    other: str = ""
    deltas: tuple[Decimal | None, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """One row against the row that differs from it in its credit alone; `differences` follow the table's columns.

    `overall` is the difference between the means of all columns, `scores` are the two means that it is taken between,
    and `claim` is what the paper prints for it, in points. `seeds` is the same difference and `training` that of the
    accuracy over all rollouts of the training, each seed by seed; `by_seed` are the values behind `seeds`, and
    `over_problems` has the error over problems alone.

    It is clear where a test over problems and training seeds at once, corrected for the number of the table's
    comparisons, tells it from zero. With one seed there is no such test, and nothing is clear.
    """

    row: str
    other: str
    differences: tuple[Difference | None, ...]
    q_values: tuple[float | None, ...]
    seeds: SeedSpread | None
    training: SeedSpread | None = None
    row_id: str = ""
    overall: Difference | None = None
    overall_q: float | None = None
    over_problems: Estimate | None = None
    scores: tuple[float, float] | None = None
    by_seed: tuple[float, ...] = ()
    claim: Decimal | None = None
    is_ranked: bool = True  # false where the gain of the group's oracle is not clearly different from zero

    @property
    def has_numbers(self) -> bool:
        return self.overall is not None and self.seeds is not None

    @property
    def estimate(self) -> Estimate:
        assert self.overall is not None
        return self.overall.estimate

    @property
    def has_several_seeds(self) -> bool:
        return self.seeds is not None and self.seeds.sd is not None

    @property
    def detectable(self) -> float | None:
        """The difference that could be detected with 80 % power; None with one seed, or one group of problems."""
        if not self.has_several_seeds or self.overall is None or math.isnan(self.overall.detectable):
            return None
        return self.overall.detectable

    @property
    def claimed(self) -> float | None:
        return None if self.claim is None else float(self.claim) / 100

    @property
    def outcome(self) -> Outcome:
        if self.overall_q is None:
            return "unfinished"
        if not self.has_several_seeds:
            return "one seed"
        if not self.is_ranked or not is_significant(self.overall_q):
            return "unclear"
        return "gain" if self.estimate.mean > 0 else "loss"

    @property
    def is_clear(self) -> bool:
        return self.outcome in ("gain", "loss")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval, cut off where no difference of scores can be; NaN with one group."""
        low, high = self.estimate.interval()
        return (low, high) if math.isnan(low) else (max(low, -1.0), min(high, 1.0))


@dataclass(frozen=True)
class GridCell:
    """One number of a grid as it is written, and the ends of its 95 % interval; `reason` where there is no number.

    `verdict` says on which side of the number that would be no difference the whole interval lies, "" on neither.
    """

    text: str
    value: Number = math.nan
    low: Number = math.nan
    high: Number = math.nan
    verdict: Literal["up", "down", ""] = ""
    seen: str = ""  # the difference that could be detected, where it is a comparison
    reason: str = ""

    @property
    def marked(self) -> str:
        return f"{self.text}{'*' if self.verdict else ''}"


@dataclass(frozen=True)
class Grid:
    """A small table of numbers beside or in place of scores; `neutral` is the number that says "no difference"."""

    title: str
    explanation: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridCell, ...]], ...]
    head: str = "Method"
    neutral: float | None = None
    is_drawn: bool = False
    is_ratio: bool = False


@dataclass(frozen=True)
class Footnote:
    """A footnote and the letter that refers to it."""

    mark: str
    text: str


class Footnotes:
    """Letters for the footnotes that one table refers to, in the order of its references."""

    def __init__(self, texts: Mapping[str, str], references: Iterable[Sequence[str]]) -> None:
        names = dict.fromkeys(name for group in references for name in group)
        self._texts = texts
        self._letters = {name: chr(ord("a") + i) for i, name in enumerate(names)}

    def marks(self, names: Iterable[str]) -> str:
        return ",".join(sorted(self._letters[name] for name in names if name in self._letters))

    def all(self) -> tuple[Footnote, ...]:
        return tuple(Footnote(letter, " ".join(self._texts[name].split())) for name, letter in self._letters.items())


@dataclass(frozen=True)
class Table:
    """A table, ready to be printed: rows of scores, grids, or both.

    It is `is_comparable` with the paper when its profile is the paper's.
    """

    id: str
    title: str
    caption: str
    label: str
    profile: str
    profile_title: str
    notes: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    is_comparable: bool = False
    source: str = ""
    baseline: str = ""
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    published: tuple[PublishedRow, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    grids: tuple[Grid, ...] = ()
    footnotes: tuple[Footnote, ...] = ()
    published_footnotes: tuple[Footnote, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    has_average: bool = True  # then the last column is the mean of the others
    seeds: tuple[int, ...] = (0,)  # of training, asked for; a row says which of them are done
    headroom: tuple[str, ...] = ()  # of each group with an oracle: a sentence on what its gain is
    equal_rate: tuple[Comparison, ...] = ()  # where `comparisons` are between each row's best rate: at the profile's
    says: str = ""  # the answer of a table that has no comparisons of credit

    @property
    def judge_warning(self) -> str:
        """What a page says first where its judge gave too many answers no verdict; nothing elsewhere."""
        num_scored = len(self.columns) - self.has_average
        counts = [cell.counts for row in self.rows for cell in row.cells[:num_scored]]
        return judge_warning(sum(of.judge_failed for of in counts), sum(of.samples for of in counts))

    @property
    def warning(self) -> str:
        if self.is_comparable:
            return (
                "Published numbers are the paper's, copied; they were measured with a grader, prompts and splits that "
                "are not fully known."
            )
        return (
            f"Numbers of profile {self.profile} and the paper's numbers are not comparable: other model, other "
            "problems, other sizes. They stand in separate tables for that reason."
        )


ROUNDING = (  # how a page's note on numbers begins; a float has it, too
    "A number is right where it equals the gold answer, or rounds to a gold with at least two decimal places; four "
    "right decimal places stand for an exact gold."
)
SIGNIFICANCE = 0.05  # false discovery rate of a page


def is_significant(q_value: float | None) -> bool:
    """Whether a corrected p-value tells a difference from zero; one that was not tested does not."""
    return q_value is not None and q_value < SIGNIFICANCE

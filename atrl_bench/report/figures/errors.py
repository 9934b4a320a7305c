"""What kinds of errors each method makes, beside its accuracy; the paper's accuracies stand in a panel of their own.

The paper draws how its errors divide into kinds but prints no number of it, so there is nothing of that to copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atrl_bench.analysis.error_types import TYPES, is_error, type_by_truth, types_by_judge
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.mini.world import mathvision_problems
from atrl_bench.report.drawing import (
    COLOURS,
    INK,
    PAGE,
    SOFT,
    FigureContent,
    mark_published,
    name_bars,
    new_figure,
    shortened,
)
from atrl_bench.report.figures.sources import Source, chosen, published
from atrl_bench.results.records import Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CORRECT = "correct"
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "ooo")  # of the kinds, in their order
UNTYPED = "not classified"  # the judge named no kind
MATHVISION = "mathvision_testmini"


@dataclass(frozen=True)
class Breakdown:
    """How one method's answers divide: right, or which kind of error; answers that nobody judged are left out."""

    method: str
    counts: Counter[str]

    def percent(self, kind: str) -> float:
        return 100 * self.counts[kind] / self.counts.total()

    def row(self, kind: str) -> dict[str, Any]:
        named = {"source": "measured", "method": self.method, "kind": kind}
        return named | {"num_answers": self.counts[kind], "percent": self.percent(kind)}


def make(source: Source) -> FigureContent:
    with source.run_dir.open_store(read_only=True) as store:
        samples: dict[str, list[Sample]] = {}
        for one in chosen(source, store):
            samples.setdefault(one.label, []).extend(store.samples(one.cell.key))
    types, who = _types(source, [s for of_method in samples.values() for s in of_method if is_error(s)])
    breakdowns = [breakdown(method, of_method, types) for method, of_method in samples.items()]
    title = find_task(source.task).title
    return picture(breakdowns, f"{title}, classified by {who}", published("errors"))


def breakdown(method: str, samples: Sequence[Sample], types: Mapping[int, str]) -> Breakdown:
    judged = [sample for sample in samples if sample.score is not None]
    return Breakdown(method, Counter(types[id(sample)] if is_error(sample) else CORRECT for sample in judged))


def _types(source: Source, errors: Sequence[Sample]) -> tuple[dict[int, str], str]:
    if source.judge is not None:
        with source.run_dir.open_store() as store:
            named = types_by_judge(errors, source.judge, store)
        return {id(e): name or UNTYPED for e, name in zip(errors, named, strict=True)}, source.judge.model
    if source.task != MATHVISION or source.run_dir.given_data or not source.run_dir.profile.generated_data:
        raise MissingDataError(
            f"The errors on {source.task} cannot be classified.",
            why="What these images show is known to nobody here; only the generated MathVision says it.",
            next_step=f"atrl-bench figure errors --task {source.task} {source.run_dir.options} "
            "--judge-base-url URL --judge-model MODEL",
        )
    problems = mathvision_problems(source.run_dir.profile)
    for error in errors:
        behind = problems.get(error.problem.problem_id)
        if behind is None or behind.question not in error.problem.question.replace("\n<image1>", ""):
            raise source.missing(
                "The problems that were answered are not the ones that are generated today.",
                "The mini world has changed since.",
            )
    return {id(e): type_by_truth(e, problems[e.problem.problem_id]) for e in errors}, "the generator's ground truth"


def picture(breakdowns: Sequence[Breakdown], label: str, printed: Sequence[Mapping[str, str]]) -> FigureContent:
    has_untyped = any(b.counts[UNTYPED] for b in breakdowns)
    kinds = [CORRECT, *TYPES, *([UNTYPED] if has_untyped else [])]
    height = 1.0 + 0.42 * len(breakdowns)
    figure, (shares, paper) = new_figure(10.4, height + 3.2, nrows=2, height_ratios=[height + 0.3, 1.5])
    _stacked(shares, breakdowns, kinds)
    shares.set_xlim(0, 104)
    shares.set_title(f"Measured: {shortened(label, 80)}; the numbers are answers")
    accuracies = [float(row["accuracy_percent"]) for row in printed]
    paper.barh(range(len(printed)), accuracies, height=0.6, color=SOFT, edgecolor=PAGE)
    for y, accuracy in enumerate(accuracies):
        paper.text(accuracy + 1, y, f"{accuracy:.1f} % correct", va="center", fontsize=9, color=INK)
    name_bars(paper, [row["method"] for row in printed])
    paper.set_xlim(0, 104)
    _percent_ticks(paper)
    mark_published(paper, f"{printed[0]['num_problems']} problems; of the kinds of errors it prints no number")
    rows = [b.row(kind) for b in breakdowns for kind in kinds]
    rows += [
        {"source": "published", "method": row["method"], "kind": CORRECT, "num_answers": None, "percent": accuracy}
        for row, accuracy in zip(printed, accuracies, strict=True)
    ]
    in_words = " ".join(
        f"{shortened(b.method)}: {b.counts[CORRECT]} of {b.counts.total()} correct, "
        + ", ".join(f"{b.counts[kind]} {kind}" for kind in kinds[1:] if b.counts[kind])
        + "."
        for b in breakdowns
    )
    description = (
        f"Stacked bars of the share of correct answers and of each kind of error on {shortened(label, 80)}. {in_words} "
        "In a panel of its own the paper's accuracies: "
        + ", ".join(f"{row['method']} {row['accuracy_percent']} %" for row in printed)
        + "."
    )
    return FigureContent("Error breakdown", description, figure, rows)


def _stacked(panel: Axes, breakdowns: Sequence[Breakdown], kinds: Sequence[str]) -> None:
    left = [0.0] * len(breakdowns)
    for index, kind in enumerate(kinds):
        widths = [b.percent(kind) for b in breakdowns]
        colour = COLOURS[(index - 1) % len(COLOURS)] if index else SOFT
        ground: dict[str, Any] = {"color": colour, "hatch": HATCHES[index], "edgecolor": PAGE}
        panel.barh(range(len(breakdowns)), widths, left=left, height=0.62, label=kind, **ground)
        for y, (start, width) in enumerate(zip(left, widths, strict=True)):
            if width >= 4:
                # A number can be read whatever the hatching behind it.
                box = {"facecolor": PAGE, "edgecolor": "none", "pad": 1.5}
                text = f"{breakdowns[y].counts[kind]:,}"
                panel.text(start + width / 2, y, text, ha="center", va="center", fontsize=9, bbox=box)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    name_bars(panel, [b.method for b in breakdowns])
    _percent_ticks(panel)
    panel.legend(loc="upper center", bbox_to_anchor=(0.45, -0.13 - 0.25 / len(breakdowns)), ncols=4)


def _percent_ticks(panel: Axes) -> None:
    panel.set_xticks(range(0, 101, 20), [f"{value} %" for value in range(0, 101, 20)])

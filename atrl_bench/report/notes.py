"""The sentences below a table: footnotes with their letters, and what its numbers, bold and stars mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from atrl_bench.experiments.definition import TableDefinition
from atrl_bench.report.cells import CellAt, TableSource, sum_counts
from atrl_bench.report.differences import Tie
from atrl_bench.report.labels import column_label, row_label
from atrl_bench.report.table_model import SIGNIFICANCE, Footnote, TableCell


class Footnotes:
    """Letters for the footnotes that one table refers to, in the order of its references."""

    def __init__(self, definition: TableDefinition, references: Iterable[Sequence[str]]) -> None:
        names = dict.fromkeys(name for group in references for name in group)
        self._texts = definition.footnotes
        self._letters = {name: chr(ord("a") + i) for i, name in enumerate(names)}

    def marks(self, names: Iterable[str]) -> str:
        """Return the letters of these footnotes, as they stand beside a label."""
        return ",".join(sorted(self._letters[name] for name in names if name in self._letters))

    def all(self) -> tuple[Footnote, ...]:
        """Return every footnote with its letter."""
        return tuple(Footnote(letter, " ".join(self._texts[name].split())) for name, letter in self._letters.items())


def table_notes(source: TableSource, cells: Mapping[CellAt, TableCell], ties: Sequence[Tie]) -> Iterable[str]:
    """Yield what a reader has to know about the measured numbers."""
    yield from _how_to_read(source)
    yield from _what_was_trained(source)
    for column, reason in source.lacking.items():
        if any(cell.reason == reason for (_, of), cell in cells.items() if of == column):
            yield f"{column_label(source.definition, column)}, not measured: {reason}"
    yield from _who_judged(cells.values())
    yield from _account(cells[row.id, column] for row in source.definition.rows for column in source.columns)
    if ties:
        highest = ", ".join(
            f"{column_label(source.definition, tie.column)} ({row_label(source.definition, tie.row)}; "
            f"{tie.num_tied} of {tie.num_rivals})"
            for tie in ties
        )
        yield f"Highest, but not bold because other rows cannot be told apart from it: {highest}."


def _how_to_read(source: TableSource) -> Iterable[str]:
    yield (
        "± is half of the 95 % interval: Student's t on a standard error clustered by problem group, for these "
        "checkpoints."
    )
    baselines = dict.fromkeys(source.baselines.values())
    yield (
        "↑ ↓ percentage points against "
        f"{' or, in its group, '.join(row_label(source.definition, row) for row in baselines)}, paired by problem; "
        f"* survives Benjamini–Hochberg over all differences of this table (false discovery rate {SIGNIFICANCE:.0%}). "
        "Single binary runs: exact McNemar; otherwise paired t."
        + (" The average treats the benchmarks as independent." if source.definition.average else "")
    )
    yield "Bold: highest, and different from every other row by the same tests."


def _what_was_trained(source: TableSource) -> Iterable[str]:
    definition, seeds = source.definition, source.seeds
    if any(row.recipe for row in definition.rows):
        if len(seeds) == 1:
            yield (
                f"One training seed ({seeds[0]}): seed variance not measured. Another seed may move any trained row by "
                "more than its ±."
            )
        else:
            yield (
                f"{len(seeds)} training seeds ({', '.join(map(str, seeds))}): a score is the mean over seeds; the "
                "page shows the spread over seeds behind each number."
            )
    models = dict.fromkeys(filter(None, map(definition.model_of, definition.rows)))
    if models and source.profile.generated_data:
        yield f"One model, {source.profile.model}, stands here for {', '.join(models)}."
    added = [row.label for row in definition.rows if row.added_by]
    if added:
        yield "Rows that `ablate` added are not in the paper: " + ", ".join(added) + "."


def _who_judged(cells: Iterable[TableCell]) -> Iterable[str]:
    settings = [dict(cell.provenance) for cell in cells]
    if any(of_cell.get("judge") == "none" for of_cell in settings):
        yield "No judge model was used: the rule grader alone decided."
    for model in dict.fromkeys(of_cell["judge.model"] for of_cell in settings if "judge.model" in of_cell):
        yield (
            f"What the rules could not prove right was decided by a judge, {model}; how far the two agree stands "
            "with the answers to each number."
        )


def _account(cells: Iterable[TableCell]) -> Iterable[str]:
    """Yield what became of all the answers, in one sentence."""
    total = sum_counts(cell.counts for cell in cells)
    if total.samples:
        unusual = "".join(f", {n} {name}" for name, n in total.unusual.items())
        yield (
            f"{total.samples} answers: {total.correct} correct, {total.wrong} wrong{unusual}. Unparseable and "
            "timed out count as wrong; an answer without a verdict is left out of its score; truncated ones are "
            "graded as they are."
        )

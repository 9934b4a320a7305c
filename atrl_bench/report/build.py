"""From the store to the one internal model of a table: every difference, average, bold and arrow is computed here."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import PurePosixPath
from typing import Any

from atrl_bench.experiments.definition import (
    AVERAGE,
    ColumnDefinition,
    RowDefinition,
    TableDefinition,
    load_paper_scores,
    load_paper_spreads,
)
from atrl_bench.experiments.flatten import flat_text
from atrl_bench.experiments.plan import seeds_options
from atrl_bench.profiles import Profile
from atrl_bench.report.table_model import (
    SIGNIFICANCE,
    Cell,
    Column,
    Comparison,
    Counts,
    Figures,
    Footnote,
    PublishedRow,
    PublishedScore,
    Row,
    SampleView,
    Table,
)
from atrl_bench.results.records import Sample
from atrl_bench.results.statistics import (
    Answers,
    Difference,
    Estimate,
    Maker,
    SeedSpread,
    average_of,
    benjamini_hochberg,
    difference,
    parse_metric,
    score,
    seed_spread,
    suite_difference,
    suite_score,
)
from atrl_bench.results.store import Cell as StoredCell
from atrl_bench.results.store import Run, Store

NUM_SAMPLES = 8  # shown per cell
MAX_TEXT = 900  # characters of a question or response that a report shows; the store has all of it

# What a training run's summary says about its credit and about itself, and how a report calls it.
CREDIT_FIGURES = {
    "credit/anchor_auc": "anchor AUC",
    "credit/anchor_auc_connectivity": "anchor AUC, density alone",
    "credit/edge_density": "edge density",
    "credit/cut": "cut",
    "credit/random_cut": "random cut",
    "credit/entropy": "entropy",
    "credit/top15_share": "share of top 15 %",
    "credit/position_correlation": "corr. with position",
}
TRAINING_FIGURES = {
    "first accuracy": "accuracy, first rollouts",
    "last accuracy": "accuracy, last rollouts",
    "accuracy": "accuracy, all rollouts",
    "last completions/mean_length": "tokens, last",
    "last entropy": "entropy, last",
    "last kl": "KL, last",
    "last clip_ratio/region_mean": "clipped, last",
    "last frac_reward_zero_std": "groups without signal, last",
}


@dataclass(frozen=True)
class Measured:
    """The answers behind one (row, column), over all seeds, and each seed's own number.

    `first` is under the column's metric, `all_repeats` under the same with every repeat: one item for a task, one a
    part for a suite.
    """

    first: tuple[Answers, ...]
    all_repeats: tuple[Answers, ...]
    first_by_seed: dict[int, float]
    all_by_seed: dict[int, float]


def build_table(
    definition: TableDefinition,
    store: Store,
    *,
    profile: Profile,
    cell_keys: Mapping[tuple[str, str], Sequence[str]],
    runs: Mapping[str, Sequence[Run]],
    seeds: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    lacking: Mapping[str, str] | None = None,
) -> Table:
    """Return the table as far as the store is filled.

    `cell_keys` names the evaluations of each (row, column), one a seed and part of a suite; `runs` the training
    runs of each row; `notes` come after those that the numbers ask for; `lacking` says of columns why nothing here may
    fill them. A cell without a key, or with a key the store does not know, is missing and carries the command that
    fills it.
    """
    builder = _Builder(definition, store, profile, cell_keys, runs, tuple(seeds), lacking or {})
    return builder.table(environment or {}, notes)


class _Builder:
    def __init__(
        self,
        definition: TableDefinition,
        store: Store,
        profile: Profile,
        cell_keys: Mapping[tuple[str, str], Sequence[str]],
        runs: Mapping[str, Sequence[Run]],
        seeds: tuple[int, ...],
        lacking: Mapping[str, str],
    ) -> None:
        self.definition, self.store, self.profile = definition, store, profile
        self.cell_keys, self.runs, self.seeds, self.lacking = cell_keys, runs, seeds, lacking
        # An evaluation names its model by the checkpoint's folder: that tells which training seed it belongs to.
        self.seed_of_model = {
            PurePosixPath(run.checkpoint).name: run.spec.get("seed", 0) for row in runs.values() for run in row
        }
        self.columns = [column.id for column in definition.columns]
        self.shown = [*self.columns, *([AVERAGE] if definition.average else [])]
        self.baselines = {row.id: definition.baseline_of(row) for row in definition.rows}
        self.measured: dict[tuple[str, str], Measured] = {}
        self.differences: dict[tuple[str, str, str, str], Difference | None] = {}
        self.cells: dict[tuple[str, str], Cell] = {}

    def table(self, environment: Mapping[str, str], notes: Sequence[str]) -> Table:
        for row in self.definition.rows:
            for column in self.definition.columns:
                self.cells[row.id, column.id] = self._cell(row, column)
            if self.definition.average:
                self.cells[row.id, AVERAGE] = self._average(row)
        self._add_differences()
        ties = self._mark_best()
        scores = load_paper_scores(self.definition)
        # A note on a row that is trained here says how; every other note is about a number that the paper printed.
        trained = [row.footnotes for row in self.definition.rows if row.recipe]
        printed = [column.footnotes for column in self.definition.columns]
        for row in self.definition.rows if scores else ():
            if row.in_paper:
                printed += [row.footnotes, *(row.cell_footnotes.get(column, ()) for column in self.shown)]
        footnotes = _Footnotes(self.definition, trained)
        published_footnotes = _Footnotes(self.definition, printed if scores else [])
        return Table(
            id=self.definition.id,
            title=self.definition.title,
            caption=self.definition.caption,
            source=self.definition.source,
            label=self.definition.label,
            profile=self.profile.name,
            profile_title=self.profile.title,
            is_comparable=self.profile.name == "paper",
            baseline=self._label(self.definition.baseline),
            columns=(
                *(
                    Column(c.id, c.label, c.subscript, c.metric, published_footnotes.marks(c.footnotes), c.frames)
                    for c in self.definition.columns
                ),
                *([Column(AVERAGE, "Average", "", "mean of the columns")] if self.definition.average else []),
            ),
            rows=tuple(self._row(row, footnotes) for row in self.definition.rows),
            published=_published(self.definition, scores, published_footnotes),
            comparisons=tuple(self._comparisons()),
            figures=tuple(self._figures()),
            notes=(*self._notes(), *ties, *notes),
            footnotes=footnotes.all(),
            published_footnotes=published_footnotes.all(),
            settings=tuple(flat_text(self.profile.model_dump(exclude={"name", "title"}))),
            environment=tuple(sorted(environment.items())),
            has_average=self.definition.average,
            seeds=self.seeds,
        )

    # Cells

    def _cell(self, row: RowDefinition, column: ColumnDefinition) -> Cell:
        if row.not_measured:
            return Cell("not measured", reason=row.not_measured)
        command = self._command(row, column)
        stored = [cell for key in self.cell_keys.get((row.id, column.id), ()) if (cell := self.store.cell(key))]
        if not any(cell.num_responses for cell in stored):
            failures = [run.reason for run in self.runs.get(row.id, ()) if run.state == "failed"]
            failures += [cell.reason for cell in stored if cell.state == "failed"]
            if row.served:
                return Cell(
                    "not measured", reason=f"Only an endpoint has this model. To ask it: {command}", command=command
                )
            if column.id in self.lacking:
                return Cell("not measured", reason=self.lacking[column.id], command=command)
            if failures:
                return Cell("failed", reason=failures[0], command=command)
            return Cell("missing", reason="has not been run yet", command=command)
        parts = _parts_of(column)
        num_seeds = len(self.seeds) if row.recipe else 1
        failed = next((cell.reason for cell in stored if cell.state == "failed"), "")
        is_whole = len(stored) >= num_seeds * len(parts) and all(cell.state == "done" for cell in stored)
        reason = (
            "" if is_whole else failed or f"{len(stored) // len(parts)} of {num_seeds} seeds, not all of them finished"
        )
        measured, counts, views, num_expected, skipped = self._read(stored, column, parts)
        found = len(measured.first) == len(parts)
        if found:
            self.measured[row.id, column.id] = measured
        estimate, all_repeats = (_score(of) if found else None for of in (measured.first, measured.all_repeats))
        by_seed = list(measured.first_by_seed.values())
        return Cell(
            state="failed" if failed else "measured" if is_whole else "partial",
            reason=reason,
            command="" if is_whole else command,
            estimate=estimate if estimate and estimate.num_problems else None,
            num_expected=num_expected,
            seeds=seed_spread(by_seed) if row.recipe and by_seed else None,
            all_repeats=all_repeats if all_repeats and all_repeats.num_problems else None,
            num_repeats=_num_repeats(stored[0]),
            counts=counts,
            skipped=tuple(sorted(skipped.items())),
            provenance=_provenance(stored),
            samples=tuple(views),
        )

    def _command(self, row: RowDefinition, column: ColumnDefinition) -> str:
        """Return what fills a cell, without the folder's place: a page is the same wherever its folder lies."""
        options = f"--profile {self.profile.name}"
        if row.served:
            return self.definition.evaluate_command(row, options)
        table = " ".join([self.definition.id, options, *seeds_options(self.definition, self.seeds)])
        columns = f"--columns {column.id}" + (" --allow-code" if column.id in self.lacking else "")
        if row.added_by:
            return f"atrl-bench ablate {table} {row.added_by} {columns}"
        return f"atrl-bench run-table {table} --rows {row.id} {columns}"

    def _read(
        self, stored: Sequence[StoredCell], column: ColumnDefinition, parts: Sequence[str]
    ) -> tuple[Measured, Counts, list[SampleView], int, dict[str, str]]:
        of_part: dict[str, dict[int, list[Sample]]] = {part: {} for part in parts}
        states: Counter[str] = Counter()
        skipped: dict[str, str] = {}
        views: list[SampleView] = []
        num_expected: dict[str, int] = {}
        for position, cell in enumerate(stored):
            samples, part = self.store.samples(cell.key), cell.spec.get("task", parts[0])
            seed = self.seed_of_model.get(cell.spec.get("model_name", ""), position // len(parts))
            of_part[part][seed] = samples
            num_expected[part] = len(self.store.problems(cell.key))
            states.update(sample.verdict.state if sample.verdict else "ungraded" for sample in samples)
            states.update(samples=len(samples), truncated=sum(sample.response.truncated for sample in samples))
            skipped |= self.store.skipped(cell.key)
            if not views:
                views = _views(samples)
        counts = Counts(skipped=len(skipped), **{name.replace(" ", "_"): n for name, n in states.items()})
        num_repeats = _num_repeats(stored[0])
        first, whole = column.metric, f"{column.metric.partition('@')[0]}@{num_repeats}".replace("acc@", "mean@")
        measured = Measured(
            first=tuple(_answers(part, seeds, first) for part, seeds in of_part.items() if seeds),
            all_repeats=tuple(_answers(part, seeds, whole) for part, seeds in of_part.items() if seeds),
            first_by_seed=_by_seed(of_part, first),
            all_by_seed=_by_seed(of_part, whole),
        )
        return measured, counts, views, sum(num_expected.values()), skipped

    def _average(self, row: RowDefinition) -> Cell:
        cells = [self.cells[row.id, column] for column in self.columns]
        if row.not_measured:
            return Cell("not measured", reason=row.not_measured)
        estimates = [cell.estimate for cell in cells if cell.estimate is not None]
        if len(estimates) < len(cells):
            state = next(cell.state for cell in cells if cell.estimate is None)
            return Cell(state, reason="an average needs every column")
        by_seed = self._average_by_seed(row.id, "first_by_seed")
        return Cell(
            state="measured" if all(cell.state == "measured" for cell in cells) else "partial",
            estimate=average_of(estimates),
            num_expected=sum(cell.num_expected for cell in cells),
            seeds=seed_spread(list(by_seed.values())) if row.recipe and by_seed else None,
            all_repeats=average_of([cell.all_repeats for cell in cells if cell.all_repeats]),
            num_repeats=min(cell.num_repeats for cell in cells),
            counts=_sum_counts(cell.counts for cell in cells),
        )

    def _average_by_seed(self, row: str, which: str) -> dict[int, float]:
        """Return each seed's average over the columns, for the seeds that have them all."""
        columns = [getattr(self.measured[row, column], which) for column in self.columns]
        common = set.intersection(*(set(column) for column in columns))
        return {seed: _mean(column[seed] for column in columns) for seed in sorted(common)}

    # Differences

    def _difference(self, row: str, other: str, column: str, which: str = "first") -> Difference | None:
        """Return row minus other in one column, or in the average of all, or None where one of them has no scores."""
        asked = (row, other, column, which)
        if asked not in self.differences:
            self.differences[asked] = self._average_difference(*asked) if column == AVERAGE else self._paired(*asked)
        return self.differences[asked]

    def _average_difference(self, row: str, other: str, column: str, which: str) -> Difference | None:
        parts = [self._difference(row, other, name, which) for name in self.columns]
        whole = [part for part in parts if part is not None]
        if len(whole) < len(parts):
            return None
        estimate = average_of([part.estimate for part in whole])
        return Difference(estimate, estimate.p_value(), "paired t, clustered, average of the columns")

    def _paired(self, row: str, other: str, column: str, which: str) -> Difference | None:
        both = self.measured.get((row, column)), self.measured.get((other, column))
        if both[0] is None or both[1] is None:
            return None
        mine, theirs = (getattr(measured, which) for measured in both)
        found = difference(mine[0], theirs[0]) if len(mine) == 1 else suite_difference(mine, theirs)
        return found if found.estimate.num_problems else None

    def _add_differences(self) -> None:
        found: dict[tuple[str, str, str], Difference] = {}
        for (row, column), cell in self.cells.items():
            baseline = self.baselines[row]
            if row != baseline and cell.estimate is not None:
                difference = self._difference(row, baseline, column)
                if difference is not None:
                    found[row, baseline, column] = difference
        q_values = self._q_values(found)
        for (row, baseline, column), difference in found.items():
            q_value = q_values.get((row, baseline, column))
            self.cells[row, column] = replace(self.cells[row, column], difference=difference, q_value=q_value)

    def _q_values(self, found: Mapping[tuple[str, str, str], Difference]) -> dict[tuple[str, str, str], float]:
        """Return the adjusted p-values of the differences, by (row, other row, column), between finished cells.

        A cell that still grows is not tested: looking at a number until it pleases, and stopping there, is no test.
        """
        tested = [key for key in found if self._is_final(key[0], key[2]) and self._is_final(key[1], key[2])]
        return dict(zip(tested, _adjusted([found[key].p_value for key in tested]), strict=True))

    def _is_final(self, row: str, column: str) -> bool:
        cell = self.cells.get((row, column))
        return cell is not None and cell.state == "measured" and cell.estimate is not None

    def _mark_best(self) -> list[str]:
        """Mark the best cell of each column where it differs from every other; return a sentence on the ties.

        Rows compete with those that have the same baseline.
        """
        ties = []
        for column in self.shown:
            for baseline in dict.fromkeys(self.baselines.values()):
                rows = [row for row, of in self.baselines.items() if of == baseline and self._is_final(row, column)]
                tied = self._mark_best_of(rows, column) if len(rows) > 1 else None
                if tied is not None:
                    best, num_tied = tied
                    ties.append(f"{self._column_label(column)} ({self._label(best)}; {num_tied} of {len(rows) - 1})")
        if not ties:
            return []
        return [f"Highest, but not bold because other rows cannot be told apart from it: {', '.join(ties)}."]

    def _mark_best_of(self, rows: Sequence[str], column: str) -> tuple[str, int] | None:
        """Mark the best of these rows, or return it with the number of rows that it cannot be told apart from."""
        means = {row: estimate.mean for row in rows if (estimate := self.cells[row, column].estimate)}
        best = max(means, key=means.__getitem__)
        others = [row for row in rows if row != best]
        p_values = [found.p_value if (found := self._difference(best, row, column)) else 1.0 for row in others]
        num_tied = sum(not q < SIGNIFICANCE for q in _adjusted(p_values))
        if num_tied:
            return best, num_tied
        self.cells[best, column] = replace(self.cells[best, column], is_best=True)
        return None

    def _comparisons(self) -> Iterable[Comparison]:
        """Yield each row against the one with another credit, over all repeats: here the noise matters most."""
        pairs = [(row.id, row.compared_with) for row in self.definition.rows if row.compared_with]
        pairs += self.definition.pairs
        columns = self.shown
        found = {
            (row, other, column): difference
            for row, other in pairs
            for column in columns
            if (difference := self._difference(row, other, column, "all_repeats"))
        }
        q_values = self._q_values(found)
        for row, other in pairs:
            if any((row, other, column) in found for column in columns):
                yield Comparison(
                    row=self._label(row),
                    other=self._label(other),
                    differences=tuple(found.get((row, other, column)) for column in columns),
                    q_values=tuple(q_values.get((row, other, column)) for column in columns),
                    seeds=self._seed_difference(row, other),
                    training=self._training_difference(row, other),
                )

    def _seed_difference(self, row: str, other: str) -> SeedSpread | None:
        """Return the spread over seeds of the difference between the averages, seed by seed."""
        if any((name, column) not in self.measured for name in (row, other) for column in self.columns):
            return None
        mine, theirs = self._average_by_seed(row, "all_by_seed"), self._average_by_seed(other, "all_by_seed")
        return _seed_by_seed(mine, theirs)

    def _training_difference(self, row: str, other: str) -> SeedSpread | None:
        """Return the same of the accuracy over the whole training: who learns faster is ahead there at any end."""
        mine, theirs = (
            {
                run.spec.get("seed", 0): run.summary["accuracy"]
                for run in self.runs.get(name, ())
                if "accuracy" in run.summary
            }
            for name in (row, other)
        )
        return _seed_by_seed(mine, theirs)

    # The rest of the page

    def _row(self, row: RowDefinition, footnotes: _Footnotes) -> Row:
        fields = self.definition.recipe_fields(row) if row.recipe else {}
        runs = sorted(self.runs.get(row.id, ()), key=lambda run: run.spec.get("seed", 0))
        cells = tuple(self.cells[row.id, column] for column in self.shown)
        return Row(
            id=row.id,
            label=row.label,
            group=self._group(row),
            marks=footnotes.marks(row.footnotes),
            cells=cells,
            is_best=cells[-1].is_best if self.definition.average else all(cell.is_best for cell in cells),
            recipe=row.recipe or "",
            credit=_credit_name(row) if "credit" in fields else "",
            schedule=fields.get("schedule", ""),
            data=fields.get("data", ""),
            training_seeds=tuple(run.spec.get("seed", 0) for run in runs if run.state == "done"),
            checkpoints=tuple(run.digest[:16] for run in runs if run.state == "done"),
            baseline=self.baselines[row.id],
            in_paper=row.in_paper,
            served=row.served or "",
        )

    def _figures(self) -> Iterable[Figures]:
        trained = [row for row in self.definition.rows if row.recipe]
        credited = [row for row in trained if row.credit.rule != "uniform"]
        credit = self._figures_of(credited, CREDIT_FIGURES)
        if credit:
            yield Figures(
                "Where the credit went",
                *credit,
                explanation="Means over the training run, then over seeds. Anchor AUC: how well the credit ranks the "
                "tokens that transcribe the image above the others; 0.5 is chance. A cut close to the random cut means "
                "that the clusters say nothing. Entropy is a share of the largest possible.",
            )
        training = self._figures_of(trained, TRAINING_FIGURES)
        if training:
            yield Figures(
                "How the training went",
                *training,
                explanation="Means over the first, the last and all rollouts of the training runs, then over seeds. "
                "Accuracy is that of the answers sampled for training; over all rollouts it says how fast a method "
                "learned.",
            )

    def _figures_of(
        self, rows: Sequence[RowDefinition], figures: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[float | None, ...]], ...]] | None:
        """Return (names, rows) of those figures that any of these rows' runs has recorded, or None if there is none."""
        runs = {row.label: [r.summary for r in self.runs.get(row.id, ()) if r.state == "done"] for row in rows}
        means = {
            label: {name: _summary_mean(summaries, name) for name in figures}
            for label, summaries in runs.items()
            if summaries
        }
        shown = [name for name in figures if any(values[name] is not None for values in means.values())]
        if not shown:
            return None
        lines = tuple((label, tuple(values[name] for name in shown)) for label, values in means.items())
        return tuple(figures[name] for name in shown), lines

    def _notes(self) -> Iterable[str]:
        yield (
            "± is half of the 95 % interval: Student's t on a standard error clustered by problem group, for these "
            "checkpoints."
        )
        yield (
            f"↑ ↓ percentage points against {self._baseline_labels()}, paired by problem; * survives "
            f"Benjamini–Hochberg over all differences of this table (false discovery rate {SIGNIFICANCE:.0%}). "
            "Single binary runs: exact McNemar; otherwise paired t."
            + (" The average treats the benchmarks as independent." if self.definition.average else "")
        )
        yield "Bold: highest, and different from every other row by the same tests."
        if any(row.recipe for row in self.definition.rows):
            if len(self.seeds) == 1:
                yield (
                    f"One training seed ({self.seeds[0]}): seed variance not measured. Another seed may move any "
                    "trained row by more than its ±."
                )
            else:
                yield (
                    f"{len(self.seeds)} training seeds ({', '.join(map(str, self.seeds))}): a score is the mean over "
                    "seeds; the spread over seeds stands with each opened number."
                )
        models = dict.fromkeys(filter(None, map(self.definition.model_of, self.definition.rows)))
        if models and self.profile.generated_data:
            yield f"One model, {self.profile.model}, stands here for {', '.join(models)}."
        added = [row.label for row in self.definition.rows if row.added_by]
        if added:
            yield "Rows that `ablate` added are not in the paper: " + ", ".join(added) + "."
        for column, reason in self.lacking.items():
            if any(cell.reason == reason for (_, of), cell in self.cells.items() if of == column):
                yield f"{self._column_label(column)}, not measured: {reason}"
        settings = [dict(cell.provenance) for cell in self.cells.values()]
        if any(cell.get("judge") == "none" for cell in settings):
            yield "No judge model was used: the rule grader alone decided."
        for model in dict.fromkeys(cell["judge.model"] for cell in settings if "judge.model" in cell):
            yield (
                f"What the rules could not prove right was decided by a judge, {model}; how far the two agree stands "
                "with the answers to each number."
            )
        yield from self._account()

    def _account(self) -> Iterable[str]:
        """Yield what became of all the answers, in one sentence."""
        total = _sum_counts(
            self.cells[row.id, column].counts for row in self.definition.rows for column in self.columns
        )
        if total.samples:
            unusual = "".join(f", {n} {name}" for name, n in total.unusual.items())
            yield (
                f"{total.samples} answers: {total.correct} correct, {total.wrong} wrong{unusual}. Unparseable and "
                "timed out count as wrong; an answer without a verdict is left out of its score; truncated ones are "
                "graded as they are."
            )

    def _group(self, row: RowDefinition) -> str:
        return next((group.label for group in self.definition.groups if group.id == row.group), "")

    def _label(self, row: str) -> str:
        """Return the row's label, with its group where another row is called the same."""
        found = next((item for item in self.definition.rows if item.id == row), None)
        if found is None:
            return row
        namesakes = [item for item in self.definition.rows if item.label == found.label]
        return found.label if len(namesakes) == 1 else f"{found.label}, {self._group(found)}"

    def _baseline_labels(self) -> str:
        return " or, in its group, ".join(self._label(row) for row in dict.fromkeys(self.baselines.values()))

    def _column_label(self, column: str) -> str:
        return next((item.text for item in self.definition.columns if item.id == column), "Average")


# The numbers of a cell ----------------------------------------------------------------------------------------------


def _parts_of(column: ColumnDefinition) -> list[str]:
    """Return the task of a column, or the tasks of its suite."""
    from atrl_bench.evaluation.tasks import list_suites

    return list(next((suite.tasks for suite in list_suites() if suite.name == column.task), (column.task,)))


def _seed_by_seed(mine: Mapping[int, float], theirs: Mapping[int, float]) -> SeedSpread | None:
    differences = [mine[seed] - theirs[seed] for seed in sorted(mine) if seed in theirs]
    return seed_spread(differences) if differences else None


def _answers(task: str, of_seed: Mapping[int, Sequence[Sample]], metric: str) -> Answers:
    """Return the answers of all seeds, as if those of further seeds were further repeats of one run."""
    name, num_repeats, statistics = _parsed(task, metric)
    samples = [
        sample
        if index == 0
        else replace(sample, response=replace(sample.response, repeat=index * num_repeats + sample.response.repeat))
        for index, seed in enumerate(sorted(of_seed))
        for sample in of_seed[seed]
        if sample.response.repeat < num_repeats
    ]
    return Answers(samples, f"{name}@{num_repeats * len(of_seed)}", statistics)


def _parsed(task: str, metric: str) -> tuple[str, int, Mapping[str, Maker]]:
    """Return the statistic that a metric asks for ("mean" for plain ones), its N, and the statistics of the task."""
    name, _, num_repeats = metric.partition("@")
    if name in ("acc", "mean"):
        return "mean", int(num_repeats), {}
    from atrl_bench.evaluation.tasks import find_task

    module = find_task(task).module
    statistics = getattr(module, "STATISTICS", {})
    if name == "headline":
        return getattr(module, "HEADLINE", "mean"), int(num_repeats), statistics
    return *parse_metric(metric, statistics), statistics


def _score(parts: Sequence[Answers], **options: int) -> Estimate:
    return score(parts[0], **options) if len(parts) == 1 else suite_score(parts, **options)


def _by_seed(of_part: Mapping[str, Mapping[int, Sequence[Sample]]], metric: str) -> dict[int, float]:
    """Return the number of each seed that has all parts."""
    numbers = {}
    for seed in sorted(set.intersection(*(set(of_seed) for of_seed in of_part.values()))):
        answers = [_answers(part, {seed: of_seed[seed]}, metric) for part, of_seed in of_part.items()]
        estimate = _score(answers, num_resamples=0)
        if estimate.num_problems:
            numbers[seed] = estimate.mean
    return numbers


class _Footnotes:
    """Letters for the footnotes that one table refers to, in the order of its references."""

    def __init__(self, definition: TableDefinition, references: Iterable[tuple[str, ...]]) -> None:
        names = dict.fromkeys(name for group in references for name in group)
        self.texts = definition.footnotes
        self.letters = {name: chr(ord("a") + i) for i, name in enumerate(names)}

    def marks(self, names: Iterable[str]) -> str:
        return ",".join(sorted(self.letters[name] for name in names if name in self.letters))

    def all(self) -> tuple[Footnote, ...]:
        return tuple(Footnote(letter, " ".join(self.texts[name].split())) for name, letter in self.letters.items())


def _published(
    definition: TableDefinition, scores: Mapping[tuple[str, str], Decimal], footnotes: _Footnotes
) -> tuple[PublishedRow, ...]:
    """Return the paper's table with its averages and differences computed from the printed scores."""
    columns, spreads = [column.id for column in definition.columns], load_paper_spreads(definition)
    shown = [*columns, *([AVERAGE] if definition.average else [])]
    values: dict[str, list[Decimal | None]] = {}
    for row in definition.rows:
        printed = [scores.get((row.id, column)) for column in columns]
        present = [score for score in printed if score is not None]
        if present:
            whole = len(present) == len(printed)
            average = (sum(present, Decimal(0)) / len(present)).quantize(Decimal("0.01"), ROUND_HALF_UP)
            values[row.id] = [*printed, *([average if whole else None] if definition.average else [])]
    groups = {group.id: group.label for group in definition.groups}
    labels = {row.id: row.label for row in definition.rows}
    rows = []
    for row in definition.rows:
        if row.id not in values:
            continue
        baseline = definition.baseline_of(row)
        rivals = [
            values[other.id]
            for other in definition.rows
            if other.id in values and definition.baseline_of(other) == baseline
        ]
        best = [max((v for v in of if v is not None), default=None) for of in zip(*rivals, strict=True)]
        changes = _minus(values[row.id], values.get(baseline if baseline != row.id else ""))
        scores_of_row = tuple(
            PublishedScore(
                value,
                change,
                value is not None and value == top,
                spreads.get((row.id, column)),
                footnotes.marks(row.cell_footnotes.get(column, ())),
            )
            for column, value, change, top in zip(shown, values[row.id], changes, best, strict=True)
        )
        other = row.compared_with if row.compared_with in values else None
        rows.append(
            PublishedRow(
                id=row.id,
                label=row.label,
                group=groups.get(row.group or "", ""),
                marks=footnotes.marks(row.footnotes),
                scores=scores_of_row,
                is_best=scores_of_row[-1].is_best if definition.average else all(s.is_best for s in scores_of_row),
                other=labels[other] if other else "",
                deltas=tuple(_minus(values[row.id], values[other])) if other else (),
            )
        )
    return tuple(rows)


def _minus(values: Sequence[Decimal | None], others: Sequence[Decimal | None] | None) -> list[Decimal | None]:
    """Return the differences of two rows where both have a score; all None without the other row."""
    return [
        None if value is None or other is None else value - other
        for value, other in zip(values, others or [None] * len(values), strict=True)
    ]


def _views(samples: Sequence[Sample]) -> list[SampleView]:
    """Return a few answers of every state in turn, in the order of the problems: successes hide no failures."""
    by_state: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.response.repeat == 0:
            by_state[sample.verdict.state if sample.verdict else "ungraded"].append(sample)
    order = ["wrong", "correct", "unparseable", "timed out", "judge failed", "ungraded"]
    queues = [by_state[state] for state in sorted(by_state, key=order.index)]
    turns = [queue[i] for i in range(NUM_SAMPLES) for queue in queues if i < len(queue)][:NUM_SAMPLES]
    return [_view(sample) for sample in turns]


def _view(sample: Sample) -> SampleView:
    grade = sample.verdict
    return SampleView(
        problem_id=sample.problem.problem_id,
        repeat=sample.response.repeat,
        question=_cut(sample.problem.question),
        gold=_cut(sample.problem.gold.answer),
        response=_cut(sample.response.text),
        extracted=None if grade is None or grade.extracted is None else _cut(grade.extracted),
        state=grade.state if grade else "ungraded",
        grader=grade.grader if grade else "",
        why=_cut(grade.why) if grade else "",
        truncated=sample.response.truncated,
    )


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]} […{len(text) - 2 * half} characters…] {text[-half:]}"


def _provenance(stored: Sequence[StoredCell]) -> tuple[tuple[str, str], ...]:
    """Return what the cell's key was made of, once for the settings that all seeds share."""
    pairs = dict(flat_text(stored[0].spec))
    for cell in stored[1:]:
        for name, value in flat_text(cell.spec):
            if value not in pairs.get(name, "").split(", "):
                pairs[name] = f"{pairs[name]}, {value}" if name in pairs else value
    return (("cell", ", ".join(cell.key for cell in stored)), *pairs.items())


def _credit_name(row: RowDefinition) -> str:
    if row.credit.rule == "uniform":
        return "uniform"
    changed = ", ".join(f"{name} {value}" for name, value in sorted(row.credit.settings.items()))
    return f"{row.credit.rule}, preset {row.credit.preset}" + (f", {changed}" if changed else "")


def _num_repeats(cell: StoredCell) -> int:
    return int(cell.spec.get("decoding", {}).get("repeats", 1))


def _mean(values: Iterable[float]) -> float:
    items = list(values)
    return math.fsum(items) / len(items) if items else math.nan


def _adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the q-values; a p-value that cannot be computed (one group) never counts as significant."""
    return benjamini_hochberg([1.0 if math.isnan(p) else p for p in p_values])


def _sum_counts(counts: Iterable[Counts]) -> Counts:
    totals: Counter[str] = Counter()
    for count in counts:
        totals.update(vars(count))
    return Counts(**totals)


def _summary_mean(summaries: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [summary.get(name) for summary in summaries]
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return _mean(numbers) if numbers else None

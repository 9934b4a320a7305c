"""From the store to the one internal model of a table: every difference, average, bold and arrow is computed here.

And its grids: what the training runs say of their credit and of themselves, and of every learning rate they tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from atrl_bench.experiments.definition import AVERAGE, RowDefinition, TableDefinition
from atrl_bench.experiments.plan import Plan, cell_keys, rate_text, runs_by_rate
from atrl_bench.models.bases import list_bases
from atrl_bench.papers.scores import NOTHING_PRINTED, PrintedScores
from atrl_bench.printable import flat_text
from atrl_bench.profiles import Profile
from atrl_bench.report.cells import CellAt, TableSource, mean, read_cells, sum_counts
from atrl_bench.report.differences import Differences, comparisons, with_best, with_differences
from atrl_bench.report.page import lines_of
from atrl_bench.report.paper import published_claims, published_rows
from atrl_bench.report.table_model import SIGNIFICANCE, Column, Footnotes, Grid, GridCell, Row, Table, TableCell, Tie
from atrl_bench.results.store import Run, Store
from atrl_bench.training.recipe import Recipe

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
CREDIT_EXPLANATION = (
    "Means over the training run, then over seeds. Anchor AUC: how well the credit ranks the tokens that transcribe "
    "the image above the others; 0.5 is chance. A cut close to the random cut means that the clusters say nothing. "
    "Entropy is a share of the largest possible."
)
TRAINING_EXPLANATION = (
    "Means over the first, the last and all rollouts of the training runs, then over seeds. Accuracy is that of the "
    "answers sampled for training; over all rollouts it says how fast a method learned."
)
# What a run records that says how well a rate suits, and how a page calls it.
RATE_FIGURES = {
    "accuracy": "accuracy over the run",
    "late accuracy": "accuracy over its second half",
    "last accuracy": "accuracy at the end",
    "last greedy": "greedy at the end",
    "worst greedy": "greedy, worst checkpoint",
    "worst readable": "with an answer, worst checkpoint",
    "last drift": "drift of unrewarded tokens",
}
TEST = "test, mean of the columns"
RATE_EXPLANATION = (
    "Each row at every rate it was trained at, in multiples of the profile's learning rate, means over the training "
    "seeds that pick a rate. "
    "The rate marked with * has the highest accuracy over the second half of the run, which is that of the answers "
    "sampled for training: no test problem decides. Greedy: the share of right answers to training problems that the "
    "run does not train on, at the end and at the worst of a few checkpoints. With an answer: "
    "the share of these responses in which one can be read. Drift: KL divergence from the base, a token, on tokens of "
    "these answers that nobody rewarded; on all where the data does not say which. The last column picks nothing; "
    "it is there for the rates that rows are compared at, over all seeds."
)


def build_table(
    definition: TableDefinition,
    store: Store,
    *,
    profile: Profile,
    cell_keys: Mapping[CellAt, Sequence[str]],
    runs: Mapping[str, Sequence[Run]],
    seeds: Sequence[int] = (0,),
    recipes: Mapping[str, Recipe] | None = None,
    printed: PrintedScores = NOTHING_PRINTED,
    notes: Sequence[str] = (),
    lacking: Mapping[str, str] | None = None,
    rates: Mapping[str, float] | None = None,
) -> Table:
    """The table as far as the store is filled.

    `cell_keys` names the evaluations of each (row, column), one a seed and part of a suite; `runs` the training runs of
    each row, `recipes` its recipe; `printed` is what the paper prints; `notes` come after those that the numbers ask
    for; `lacking` says of columns why nothing here may fill them; `rates` the learning rates that rows were picked at.
    A cell without a key, or with a key the store does not have, is missing and carries the command that fills it.
    """
    published, definition = definition, definition.as_measured(profile, rates)
    source = TableSource(definition, store, profile, cell_keys, runs, tuple(seeds), lacking or {}, recipes or {})
    measured = read_cells(source)
    differences = Differences(measured.scores, source)
    cells = with_differences(measured.cells, source.baselines, differences)
    cells, ties = with_best(cells, source, differences)
    footnotes, published_footnotes = _footnotes(source, has_published=bool(printed.scores))
    return Table(
        id=definition.id,
        title=definition.title,
        caption=definition.caption,
        source=definition.source,
        label=definition.label,
        profile=profile.name,
        profile_title=profile.title,
        is_comparable=profile.name == "paper",
        baseline=definition.row_label(definition.baseline),
        columns=_columns(definition, published_footnotes),
        rows=tuple(_row(row, source, cells, footnotes) for row in definition.rows),
        published=published_rows(published, printed, published_footnotes),
        comparisons=tuple(comparisons(source, measured, published_claims(published, printed.scores))),
        grids=training_grids(definition.rows, runs),
        notes=(*_notes(source, cells, ties), *notes),
        footnotes=footnotes.all(),
        published_footnotes=published_footnotes.all(),
        has_average=definition.average,
        seeds=source.seeds,
    )


def made_with(table: Table, profile: Profile, environment: Mapping[str, str]) -> Table:
    """The table with the profile's settings, and the machine and versions that its numbers were made with."""
    return replace(table, settings=tuple(flat_text(profile.settings())), environment=tuple(sorted(environment.items())))


def _footnotes(source: TableSource, *, has_published: bool) -> tuple[Footnotes, Footnotes]:
    """The footnotes of the measured and of the published table.

    A note on a row that is trained here says how; every other note is about a number that the paper printed.
    """
    definition = source.definition
    trained = [row.footnotes for row in definition.rows if row.recipe]
    printed = [column.footnotes for column in definition.columns]
    for row in definition.rows:
        if row.in_paper:
            printed += [row.footnotes, *(row.cell_footnotes.get(column, ()) for column in source.all_columns)]
    texts = definition.footnotes
    return Footnotes(texts, trained), Footnotes(texts, printed if has_published else [])


def _columns(definition: TableDefinition, footnotes: Footnotes) -> tuple[Column, ...]:
    average = [Column(AVERAGE, "Average", "", "mean of the columns")] if definition.average else []
    columns = [
        Column(c.id, c.label, c.subscript, c.metric, footnotes.marks(c.footnotes), c.frames) for c in definition.columns
    ]
    return (*columns, *average)


def _row(row: RowDefinition, source: TableSource, cells: Mapping[CellAt, TableCell], footnotes: Footnotes) -> Row:
    definition, recipe = source.definition, source.recipes.get(row.id)
    runs = sorted(source.runs.get(row.id, ()), key=lambda run: run.spec.get("seed", 0))
    finished = [run for run in runs if run.state == "done"]
    data = recipe.data if recipe else ""
    of_row = tuple(cells[row.id, column] for column in source.all_columns)
    return Row(
        id=row.id,
        label=row.label,
        group=definition.group_label(row),
        marks=footnotes.marks(row.footnotes),
        cells=of_row,
        is_best=of_row[-1].is_best if definition.average else all(cell.is_best for cell in of_row),
        recipe=row.recipe or "",
        credit=credit_name(row) if hasattr(recipe, "credit") else "",
        schedule=getattr(recipe, "schedule", ""),
        data=data.rpartition("/")[2] if data.startswith("/") else data,  # the user's own without its folder
        training_seeds=tuple(run.spec.get("seed", 0) for run in finished),
        checkpoints=tuple(run.digest[:16] for run in finished),
        baseline=source.baselines[row.id],
        in_paper=row.in_paper,
        served=row.served or "",
    )


def credit_name(row: RowDefinition) -> str:
    if row.credit.rule == "uniform":
        return "uniform"
    changed = ", ".join(f"{name} {value}" for name, value in sorted(row.credit.settings.items()))
    return f"{row.credit.rule}, preset {row.credit.preset}" + (f", {changed}" if changed else "")


def _notes(source: TableSource, cells: Mapping[CellAt, TableCell], ties: Sequence[Tie]) -> list[str]:
    definition = source.definition
    of_column = {column: [cell for (_, of), cell in cells.items() if of == column] for column in source.columns}
    settings = [dict(cell.provenance) for cell in cells.values()]
    return lines_of(
        "notes.txt.j2",
        definition=definition,
        profile=source.profile,
        seeds=source.seeds,
        significance=SIGNIFICANCE,
        row_label=definition.row_label,
        column_label=definition.column_label,
        baselines=list(dict.fromkeys(source.baselines.values())),
        baseline_labels=list(dict.fromkeys(definition.row_label(row, beside=row) for row in source.baselines.values())),
        models=_replaced_models(definition),
        lacking={
            column: reason
            for column, reason in source.lacking.items()
            if any(cell.reason == reason for cell in of_column[column])
        },
        has_rule_alone=any(of_cell.get("judge") == "none" for of_cell in settings),
        judges=list(dict.fromkeys(of_cell["judge.model"] for of_cell in settings if "judge.model" in of_cell)),
        engines=list(dict.fromkeys(filter(None, map(_engine, settings)))),
        counts=sum_counts(cell.counts for of_cells in of_column.values() for cell in of_cells),
        ties=ties,
        tied=list(dict.fromkeys(definition.column_label(tie.column) for tie in ties)),
        all_tied={tie.column for tie in ties} == set(source.all_columns),
    )


def _replaced_models(definition: TableDefinition) -> list[str]:
    named = dict.fromkeys(filter(None, map(definition.model_of, definition.rows)))
    return [model for model in named if model not in list_bases()]


def _engine(of_cell: Mapping[str, str]) -> str:
    return f"{of_cell['engine.name']} {of_cell['engine.version']}" if "engine.name" in of_cell else ""


# What the training runs say -------------------------------------------------------------------------------------------


def training_grids(rows: Sequence[RowDefinition], runs: Mapping[str, Sequence[Run]]) -> tuple[Grid, ...]:
    trained = [row for row in rows if row.recipe]
    credited = [row for row in trained if row.credit.rule != "uniform"]
    tables = (
        _grid("Where the credit went", CREDIT_FIGURES, CREDIT_EXPLANATION, credited, runs),
        _grid("How the training went", TRAINING_FIGURES, TRAINING_EXPLANATION, trained, runs),
    )
    return tuple(table for table in tables if table is not None)


def _grid(
    title: str,
    names: Mapping[str, str],
    explanation: str,
    rows: Iterable[RowDefinition],
    runs: Mapping[str, Sequence[Run]],
) -> Grid | None:
    finished = {row.label: [run for run in runs.get(row.id, ()) if run.state == "done"] for row in rows}
    means = {label: {name: _mean(of_row, name) for name in names} for label, of_row in finished.items() if of_row}
    recorded = [name for name in names if any(of_row[name] is not None for of_row in means.values())]
    if not recorded:
        return None
    lines = [(label, [of_row[name] for name in recorded]) for label, of_row in means.items()]
    return _made(title, explanation, [names[name] for name in recorded], lines)


def _made(
    title: str, explanation: str, names: Iterable[str], lines: Iterable[tuple[str, Sequence[float | None]]]
) -> Grid:
    return Grid(title, explanation, tuple(names), tuple((label, tuple(map(_cell, values))) for label, values in lines))


def _cell(value: float | None) -> GridCell:
    return GridCell("–") if value is None else GridCell(f"{value:.3f}".replace("-", "−"), value)


def _mean(runs: Sequence[Run], name: str) -> float | None:
    values = [run.summary.get(name) for run in runs if run.state == "done"]
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return mean(numbers) if numbers else None


# Every learning rate --------------------------------------------------------------------------------------------------


def rate_note(definition: TableDefinition, rates: Mapping[str, float]) -> str:
    tried = ", ".join(f"{rate:g}" for rate in sorted(definition.rates))
    note = (
        f"Each trained row stands here at its best learning rate of {tried} times the profile's, picked by its "
        "accuracy in the second half of training; the same comparisons at one rate for all stand below."
    )
    undecided = [definition.row_label(row) for row, rate in rates.items() if math.isnan(rate)]
    if undecided:
        note += f" Not yet trained at all of them, and left open: {', '.join(undecided)}."
    return note


def rate_grids(plan: Plan, store: Store, chosen: Mapping[str, float]) -> list[Grid]:
    definition, runs = plan.definition.as_measured(plan.profile), runs_by_rate(plan, store, plan.rate_seeds)
    tests = {rate: _test_scores(plan, store, rate) for rate in sorted(definition.rates)}
    lines: list[tuple[str, tuple[float | None, ...]]] = []
    for row in definition.rows:
        of_row = runs.get(row.id, {})
        for rate in sorted(of_row) if len(of_row) > 1 else ():
            values = (*(_mean(of_row[rate], name) for name in RATE_FIGURES), tests[rate].get(row.id))
            mark = "*" if chosen.get(row.id) == rate else ""
            lines.append((f"{definition.row_label(row.id)}, {rate_text(rate)}{mark}", values))
    if not any(value is not None for _, values in lines for value in values):
        return []
    return [_made("Every learning rate", RATE_EXPLANATION, (*RATE_FIGURES.values(), TEST), lines)]


def _test_scores(plan: Plan, store: Store, rate: float) -> dict[str, float]:
    definition = plan.definition
    at = plan.at({row.id: rate for row in definition.rows if row.recipe})
    source = TableSource(definition, store, plan.profile, cell_keys(at, store), {}, plan.seeds, {})
    cells = read_cells(source).cells
    scores = {}
    for row in definition.rows:
        estimates = [cells[row.id, column].estimate for column in source.columns_of(row.id)]
        if row.recipe and all(estimates):
            scores[row.id] = mean(estimate.mean for estimate in estimates if estimate)
    return scores

"""`atrl-bench compare A B`: is one model better than another, on the problems both have answered?

Cells are looked up in the run folder, never filled here. Of several cells of a model on a task those two are compared
that differ in least beside the model; whatever else differs is said, because it may be what the difference is of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal

from atrl_bench.analysis.task_scores import scored, statistics_of
from atrl_bench.errors import AtrlBenchError, MissingDataError
from atrl_bench.evaluation.tasks import Suite, expand, list_suites
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.experiments.progress import short_label
from atrl_bench.experiments.row_models import names_a_row, row_model, table_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.flatten import flat
from atrl_bench.models.local import model_ref
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.results import numbers
from atrl_bench.results.statistics import Estimate, ScoredSamples, benjamini_hochberg, suite_difference, suite_score
from atrl_bench.results.store import Cell, Store

# What two cells of one task may differ in without a warning: which model, and how it is called.
MODEL_FIELDS = ("model_digest", "model_name")
DIGEST = "digest:"  # before the digest of a row's model
MAIN_TABLE = "main_7b"


@dataclass(frozen=True)
class ModelDifference:
    """Model a minus model b on one task or suite under one metric; `q` is p corrected for the number of tasks."""

    task: str
    kind: Literal["task", "suite"]
    a: str
    b: str
    cell_a: str
    cell_b: str
    differs_in: list[str]
    metric: str
    score_a: Estimate
    score_b: Estimate
    difference: Estimate
    p: float
    test: str
    num_a_better: int
    num_b_better: int
    num_common: int
    q: float | None = None

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints of it; JSON has no word for "not a number"."""
        return {name: _estimate(v) if isinstance(v, Estimate) else _number(v) for name, v in vars(self).items()}


@dataclass(frozen=True)
class ModelComparison(Record):
    """Two models on every task and suite that was asked for."""

    differences: tuple[ModelDifference, ...]

    def document(self) -> list[dict[str, Any]]:
        """Return what `--json` prints."""
        return [difference.document() for difference in self.differences]

    def blocks(self) -> Iterable[Block]:
        """Yield a table of all differences, what they may be of beside the model, and how to read them."""
        if not self.differences:
            yield "Nothing to compare."
            return
        yield Rows([("A", self.differences[0].a), ("B", self.differences[0].b)], indent=0, cut=True)
        yield ""
        yield Rows(list(self._rows()), head=("", "A", "B", "A − B", "95 %", "p"), right=range(1, 6), indent=0)
        warnings = list(dict.fromkeys(f"{d.task}: {field}" for d in self.differences for field in d.differs_in))
        if warnings:
            yield ""
            yield "Not the model alone differs (A's value, B's value):"
            yield Rows([(warning,) for warning in warnings], cut=True)
        yield ""
        yield "Scores in percent. q: p corrected for the number of tasks (Benjamini–Hochberg)."

    def _rows(self) -> Iterable[Sequence[str]]:
        task = None
        for d in self.differences:
            if d.task != task:
                task = d.task
                mean_of = "mean of its tasks, " if d.kind == "suite" else ""
                yield (f"{task} ({mean_of}{d.num_common:,} common problems)",)
            scores = (numbers.percent(score.mean, 2) for score in (d.score_a, d.score_b))
            change = numbers.signed(d.difference.mean, 2) if not math.isnan(d.difference.mean) else "–"
            yield d.metric[:30], *scores, change, _interval(d.difference), _p(d.p)
            q = "" if d.q is None else f"; q {_p(d.q)}"
            yield (f"└ A better on {d.num_a_better:,}, B on {d.num_b_better:,}; {d.test}{q}",)
            if seen := numbers.seen(d.difference):
                yield (f"  {seen}, four times in five",)


def compare_models(
    a: str, b: str, tasks: Sequence[str] | None, run_dir: RunDir, *, metrics: Sequence[str] | None = None
) -> ModelComparison:
    """Return both scores and the paired difference for each task, metric and suite.

    `a` and `b` are rows of tables (`main_7b:grpo`), models as `evaluate` takes them, names of models that were
    evaluated, or keys of cells. `tasks` defaults to those of a row's table, `metrics` to all that the two cells can be
    scored by.
    """
    differences: list[ModelDifference] = []
    with run_dir.open_store(read_only=True) as store:
        tasks = tasks or _tasks_of_rows(a, b, run_dir)
        models = {name: row_model(name, run_dir, store) for name in (a, b) if names_a_row(name)}
        ours, theirs = (f"{DIGEST}{models[name].digest}" if name in models else name for name in (a, b))
        pairs = {info.name: _find_pair(store, ours, theirs, info.name, run_dir) for info in expand(tasks)}
        for pair in pairs.values():
            differences += _compare_cells(store, *pair, metrics)
        for suite in (suite for suite in list_suites() if suite.name in tasks):
            differences.append(_compare_suite(store, suite, pairs))
        name_a, name_b = (models[name].name if name in models else "" for name in (a, b))
        named = [
            replace(one, a=name_a or _name_of(one.a, store), b=name_b or _name_of(one.b, store)) for one in differences
        ]
    return ModelComparison(tuple(with_q_values(named)))


def compare(store: Store, cell_a: str, cell_b: str, metrics: Sequence[str] | None = None) -> ModelComparison:
    """Return the difference of two cells of one task under each metric."""
    a, b = _cell(store, cell_a), _cell(store, cell_b)
    if a.spec["task"] != b.spec["task"]:
        raise MissingDataError(
            f"Cell {cell_a} is of {a.spec['task']} and cell {cell_b} of {b.spec['task']}.",
            why="A difference is taken problem by problem, over one benchmark.",
            next_step="give two cells of one task",
        )
    return ModelComparison(tuple(_compare_cells(store, a, b, metrics)))


def _compare_cells(store: Store, a: Cell, b: Cell, metrics: Sequence[str] | None) -> Iterator[ModelDifference]:
    task = str(a.spec["task"])
    answers = store.scores(a.key), store.scores(b.key)
    for metric in metrics or _metrics(a, b):
        ours, theirs = ([scored(task, of_cell, metric)] for of_cell in answers)
        yield _difference(task, "task", [(a, b)], metric, ours, theirs)


def _compare_suite(store: Store, suite: Suite, pairs: dict[str, tuple[Cell, Cell]]) -> ModelDifference:
    """Return the difference under the number that the suite is quoted by: the mean of its parts' own numbers."""
    parts = [pairs[task] for task in suite.tasks]
    num_repeats = min(_num_repeats(*pair) for pair in parts)
    ours, theirs = (
        [scored(str(cell.spec["task"]), store.scores(cell.key), f"headline@{num_repeats}") for cell in cells]
        for cells in zip(*parts, strict=True)
    )
    metric = "acc@1" if num_repeats == 1 else f"mean@{num_repeats}"
    return _difference(suite.name, "suite", parts, metric, ours, theirs)


def _difference(
    task: str,
    kind: Literal["task", "suite"],
    cells: Sequence[tuple[Cell, Cell]],
    metric: str,
    ours: Sequence[ScoredSamples],
    theirs: Sequence[ScoredSamples],
) -> ModelDifference:
    a, b = cells[0]
    difference = suite_difference(ours, theirs)
    scores = [(one.scores, other.scores) for one, other in zip(ours, theirs, strict=True)]
    common = [(one[problem], other[problem]) for one, other in scores for problem in one if problem in other]
    return ModelDifference(
        task=task,
        kind=kind,
        a=a.spec["model_name"],
        b=b.spec["model_name"],
        cell_a=a.key,
        cell_b=b.key,
        differs_in=sorted({field for pair in cells for field in differences_beside_model(*pair)}),
        metric=metric,
        score_a=suite_score(ours),
        score_b=suite_score(theirs),
        difference=difference.estimate,
        p=difference.p_value,
        test=difference.test,
        num_a_better=sum(one > other for one, other in common),
        num_b_better=sum(one < other for one, other in common),
        num_common=difference.estimate.num_problems,
    )


def differences_beside_model(a: Cell, b: Cell) -> list[str]:
    """Return the settings two cells differ in beside the model, each as "name: a's value, b's value"."""
    ours, theirs = flat(a.spec), flat(b.spec)
    names = sorted((ours.keys() | theirs.keys()) - set(MODEL_FIELDS))
    return [f"{name}: {ours.get(name)}, {theirs.get(name)}" for name in names if ours.get(name) != theirs.get(name)]


def with_q_values(differences: Sequence[ModelDifference]) -> list[ModelDifference]:
    """Return the differences with p-values corrected for how many tasks were compared, each metric for itself."""
    corrected = list(differences)
    # A suite is made of tasks that are there already: it is not one comparison more.
    tasks = [index for index, d in enumerate(differences) if d.kind == "task" and not math.isnan(d.p)]
    for metric in {differences[index].metric for index in tasks}:
        family = [index for index in tasks if differences[index].metric == metric]
        q_values = benjamini_hochberg([differences[index].p for index in family])
        for index, q in zip(family, q_values, strict=True):
            corrected[index] = replace(corrected[index], q=q)
    return corrected


def _metrics(a: Cell, b: Cell) -> list[str]:
    """Return the metrics that both cells can be scored by: over as many repeats as the smaller of them has."""
    num_repeats = _num_repeats(a, b)
    means = ["acc@1"] if num_repeats == 1 else ["acc@1", f"mean@{num_repeats}"]
    return means + [f"{name}@{num_repeats}" for name in statistics_of(a.spec["task"])]


def _num_repeats(a: Cell, b: Cell) -> int:
    return min(int(cell.spec["decoding"]["repeats"]) for cell in (a, b))


# Looking cells up -----------------------------------------------------------------------------------------------------


def _find_pair(store: Store, a: str, b: str, task: str, run_dir: RunDir) -> tuple[Cell, Cell]:
    """Return the two finished cells that differ in least beside the model; of equals, the newest."""
    ours, theirs = _cells_of(store, a, task), _cells_of(store, b, task)
    missing = [model for model, cells in ((a, ours), (b, theirs)) if not cells]
    if missing:
        first = missing[0]
        if first.startswith(DIGEST):
            raise MissingDataError(
                f"A row has no finished evaluation on {task} in {run_dir.root}.",
                why="Its model is there, its answers are not.",
                next_step=f"atrl-bench status {run_dir.options}, or choose another --task",
            )
        command = f"atrl-bench evaluate {first} --tasks {task}"
        if _tables_with(first):  # it is no model, and no command evaluates it
            command = f"atrl-bench compare {_row_name(a)} {_row_name(b)}"
        raise MissingDataError(
            f"{first} has no finished evaluation on {task} in {run_dir.root}.",
            why=_likely_row(first),
            next_step=f"{command} {run_dir.options}",
        )
    newest_first = product(reversed(ours), reversed(theirs))
    return min(newest_first, key=lambda pair: len(differences_beside_model(*pair)))


def _cells_of(store: Store, model: str, task: str) -> list[Cell]:
    if model.startswith(DIGEST):
        digest = model.removeprefix(DIGEST)
        return [cell for cell in store.cells(task=task, state="done") if cell.spec["model_digest"] == digest]
    named = store.cell(model)
    if named is not None:
        return [named] if named.spec["task"] == task and named.state == "done" else []
    done = store.cells(task=task, state="done")
    try:
        digest = model_ref(model).digest
    except AtrlBenchError:
        # Behind an endpoint, or deleted since: what it was called when it was evaluated is all there is.
        return [cell for cell in done if cell.spec["model_name"] == model]
    return [cell for cell in done if cell.spec["model_digest"] == digest]


def _tables_with(row: str) -> list[str]:
    """Return the tables that have a row of this name, the main one first."""
    tables = [name for name in list_tables() if row in {known.id for known in load_table(name).rows}]
    return sorted(tables, key=lambda name: (name != MAIN_TABLE, name))


def _row_name(name: str) -> str:
    return f"{next(iter(_tables_with(name)), MAIN_TABLE)}:{name}" if ":" not in name else name


def _likely_row(name: str) -> str:
    tables = _tables_with(name)
    return f"It is a row of {', '.join(tables[:3])}: its name is {tables[0]}:{name}." if tables else ""


def _tasks_of_rows(a: str, b: str, run_dir: RunDir) -> list[str]:
    names = [name for name in (a, b) if names_a_row(name)]
    if not names:
        raise MissingDataError(
            "It is not said on which tasks to compare them.",
            next_step=f"atrl-bench compare {a} {b} --task mathvision_testmini",
        )
    return list(dict.fromkeys(column.task for column in table_of(names[0], run_dir).columns))


def _name_of(model: str, store: Store) -> str:
    """Return what to call a model: one that was trained here by its recipe and seed, and not by its key."""
    run = store.run(model)
    return model if run is None else f"{short_label('run', run.spec)}, seed {run.spec['seed']} ({model[:8]})"


def _cell(store: Store, key: str) -> Cell:
    cell = store.cell(key)
    if cell is None:
        raise MissingDataError(f"The store {store.path} has no cell {key}.", next_step="atrl-bench status")
    return cell


def _estimate(estimate: Estimate) -> dict[str, Any]:
    low, high = estimate.interval()
    values = {name: value for name, value in asdict(estimate).items() if isinstance(value, (int, float))}
    return {name: _number(value) for name, value in (values | {"low": low, "high": high}).items()}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _interval(difference: Estimate) -> str:
    low, high = difference.interval()
    if math.isnan(low):
        return "–"
    # Cut off where no difference can be.
    return f"{numbers.signed(max(low, -1.0), 1)} to {numbers.signed(min(high, 1.0), 1)}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else numbers.p_value(value).removeprefix("= ")

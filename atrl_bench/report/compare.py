"""`atrl-bench compare A B`: is one model better than another, on the problems both have answered?

The answer is a table of two rows. Cells are looked up in the run folder, never filled here. Of several cells of a model
on a task those two are compared that differ in least beside the model; whatever else differs is said, because it may be
what the difference is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from shlex import quote

from atrl_bench.errors import AtrlBenchError, MissingDataError, UnknownNameError
from atrl_bench.evaluation.cell_spec import is_asked_so
from atrl_bench.evaluation.image_condition import ImageCondition
from atrl_bench.evaluation.tasks import Task, expand, find_task, list_suites, metric_name, scored
from atrl_bench.experiments.definition import MAIN_TABLE, TableDefinition, list_tables, load_table, table_of_cells
from atrl_bench.experiments.progress import short_label
from atrl_bench.experiments.row_models import names_a_row, row_model, table_of
from atrl_bench.experiments.run_dir import RunDir, read_settings
from atrl_bench.models.local import model_ref
from atrl_bench.models.served import served_digest
from atrl_bench.printable import flat
from atrl_bench.report.build import build_table, made_with
from atrl_bench.report.cells import TableSource, tasks_of
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import Table
from atrl_bench.results.store import Cell, Store

# What two cells of one task may differ in without a warning: which model, and how it is called.
MODEL_FIELDS = ("model_digest", "model_name")
DIGEST = "digest:"  # before the digest of a row's model
ROWS = ("a", "b")
CAPTION = "Percent, each over the problems that the row has answered; differences over those that both have."

Pairs = Mapping[str, tuple[Cell, Cell]]  # by task


def compare_models(a: str, b: str, tasks: Sequence[str] | None, run_dir: RunDir, *, image: str | None = None) -> Table:
    """Both models' scores and their paired difference for each task and suite, and on average.

    `a` and `b` are rows of tables (`main_7b:grpo`), models as `evaluate` takes them, names of models that were
    evaluated, or keys of cells. `tasks` defaults to those of a row's table. A score is the number that its benchmark is
    quoted by, over all repeats that both have. With `image`, a way to withhold pictures, it is the difference of what
    both lose with them, their reliance.
    """
    ways = (None,) if image is None else (None, str(ImageCondition.parse(image)))
    with run_dir.open_store(read_only=True) as store:
        tasks = tasks or _tasks_of(a, b, run_dir, store)
        models = {name: row_model(name, run_dir, store) for name in (a, b) if names_a_row(name)}
        ours, theirs = (f"{DIGEST}{models[name].digest}" if name in models else name for name in (a, b))
        pairs = {
            _column_id(info.stored_name, way): _find_pair(store, ours, theirs, info, way, run_dir)
            for info in expand(tasks, are_stored=True)
            for way in ways
        }
        first = next(iter(pairs.values()))
        labels = [
            models[name].name if name in models else name_of(cell.spec["model_name"], store)
            for name, cell in zip((a, b), first, strict=True)
        ]
        definition = _definition(labels, tasks, pairs)
        keys = {
            (row, column.id): [pairs[_column_id(task, column.image)][index].key for task in tasks_of(column.task)]
            for column in definition.columns
            for index, row in enumerate(ROWS)
        }
        notes = [*_warnings(pairs), *_wins(store, definition, pairs)]
        table = build_table(TableSource(definition, store, run_dir.profile, keys), notes=notes)
    table = made_with(table, run_dir.profile, run_dir.environment())
    return replace(table, says=_verdict(table, relies=image is not None))


def _definition(labels: Sequence[str], tasks: Sequence[str], pairs: Pairs) -> TableDefinition:
    suites = {suite.name: suite.title for suite in list_suites()}
    columns: list[dict[str, str]] = []
    repeats = {
        name: min(int(c.spec["decoding"]["repeats"]) for task in tasks_of(name) for c in pairs[task])
        for name in [*pairs, *(name for name in tasks if name in suites)]
    }
    for name, num_repeats in repeats.items():
        if "@" in name:
            columns += _withheld(name, f"mean@{num_repeats}")
            continue
        metric = metric_name(tasks_of(name), f"headline@{num_repeats}")
        about = {"task": name, "metric": metric, "subscript": metric if len(set(repeats.values())) > 1 else ""}
        columns.append({"id": name, "label": suites.get(name) or find_task(name).title, **about})
    return table_of_cells(
        "compare",
        title=f"{labels[0]} against {labels[1]}",
        caption=CAPTION,
        baseline="b",
        average=1 < len(columns) == len(pairs),
        columns=columns,
        rows=[{"id": row, "label": label, "in_paper": False} for row, label in zip(ROWS, labels, strict=True)],
    )


def _column_id(task: str, image: str | None) -> str:
    return task if image is None else f"{task}@{image}"


def _withheld(name: str, metric: str) -> Iterator[dict[str, str]]:
    """The columns of a task without its pictures, and of what that takes away."""
    task, _, image = name.partition("@")
    label = {"label": find_task(task).title, "task": name, "metric": metric}
    yield {"id": name, "subscript": ImageCondition.parse(image).words, **label}
    yield {"id": f"{name} reliance", "subscript": "reliance", "relies_on": task, **label}


def _warnings(pairs: Pairs) -> Iterator[str]:
    for task, pair in pairs.items():
        if differing := differences_beside_model(*pair):
            yield f"Not the model alone differs on {task} (the first's value, the second's): {'; '.join(differing)}."


def _wins(store: Store, definition: TableDefinition, pairs: Pairs) -> Iterator[str]:
    for column in (column for column in definition.columns if column.image is None):
        scores: list[tuple[float, float]] = []
        for task in tasks_of(column.task):
            ours, theirs = (scored(task, store.scores(cell.key), column.metric).scores for cell in pairs[task])
            scores += [(ours[problem], theirs[problem]) for problem in ours if problem in theirs]
        better, worse = (sum(one > other for one, other in pair) for pair in (scores, [each[::-1] for each in scores]))
        yield f"{column.text}: the first is better on {better:,}, the second on {worse:,} of {len(scores):,} problems."


def differences_beside_model(a: Cell, b: Cell) -> list[str]:
    """The settings two cells differ in beside the model, each as "name: a's value, b's value"."""
    ours, theirs = flat(a.spec), flat(b.spec)
    names = sorted((ours.keys() | theirs.keys()) - set(MODEL_FIELDS))
    return [f"{name}: {ours.get(name)}, {theirs.get(name)}" for name in names if ours.get(name) != theirs.get(name)]


def _verdict(table: Table, *, relies: bool) -> str:
    ours, theirs = table.rows
    cell = ours.cells[-1]
    alone = relies and len(table.columns) == 3  # one task, with its pictures, without, and what they lose
    if cell.difference is None or (len(table.columns) > 1 and not (table.has_average or alone)):
        return ""
    where = "on average" if table.has_average else f"on {table.columns[0].label}"
    about = {"ours": ours.label, "theirs": theirs.label, "where": where, "cell": cell, "relies": relies}
    return " ".join(lines_of("compared.txt.j2", **about))


# Looking cells up -----------------------------------------------------------------------------------------------------


def _find_pair(store: Store, a: str, b: str, info: Task, image: str | None, run_dir: RunDir) -> tuple[Cell, Cell]:
    """The two finished cells with pictures shown so that differ in least beside the model; of equals, the newest."""
    task = info.stored_name
    ours, theirs = (
        [
            cell
            for cell in _cells_of(store, model, task)
            if cell.spec.get("image") == image and is_asked_so(cell.spec, info, run_dir.profile)
        ]
        for model in (a, b)
    )
    missing = [model for model, cells in ((a, ours), (b, theirs)) if not cells]
    if missing:
        first = missing[0]
        if first.startswith(DIGEST):
            raise MissingDataError(
                f"A row has no finished evaluation on {_column_id(task, image)} in {run_dir.root}.",
                why="Its model is there, its answers are not.",
                next_step=f"atrl-bench status {run_dir.options}, or choose another --task",
            )
        if first in list_tables():  # nor is it a model that could be evaluated
            rows = [f"{first}:{row.id}" for row in load_table(first).rows]
            raise UnknownNameError("model", first, rows, next_step=f"atrl-bench list rows {first}")
        served = " --base-url URL" if store.cells(model_digest=served_digest(first)) else ""
        table = quote(read_settings(run_dir.root).tables.get(task, task))
        command = f"atrl-bench evaluate {first}{served} --tasks {table}" + (f" --image {image}" if image else "")
        if _tables_with(first):  # it is no model, and no command evaluates it
            command = f"atrl-bench compare {_row_name(a)} {_row_name(b)}"
        raise MissingDataError(
            f"{first} has no finished evaluation on {_column_id(task, image)} in {run_dir.root}.",
            why=_likely_row(first),
            next_step=f"{command} {run_dir.training_options}",
        )
    newest_first = product(reversed(ours), reversed(theirs))
    return min(newest_first, key=lambda pair: len(differences_beside_model(*pair)))


def _cells_of(store: Store, model: str, task: str) -> list[Cell]:
    is_digest = model.startswith(DIGEST)
    if not is_digest and (named := store.cell(model)) is not None:
        return [named] if named.spec["task"] == task and named.state == "done" else []
    done = store.cells(task=task, state="done")
    try:
        digest = model.removeprefix(DIGEST) if is_digest else model_ref(model).digest
    except AtrlBenchError:
        # Behind an endpoint, or deleted since: what it was called when it was evaluated is all there is.
        return [cell for cell in done if cell.spec["model_name"] == model]
    return [cell for cell in done if cell.spec["model_digest"] == digest]


def _tables_with(row: str) -> list[str]:
    tables = [name for name in list_tables() if row in {known.id for known in load_table(name).rows}]
    return sorted(tables, key=lambda name: (name != MAIN_TABLE, name))


def _row_name(name: str) -> str:
    return f"{next(iter(_tables_with(name)), MAIN_TABLE)}:{name}" if ":" not in name else name


def _likely_row(name: str) -> str:
    tables = _tables_with(name)
    return f"It is a row of {', '.join(tables[:3])}: its name is {tables[0]}:{name}." if tables else ""


def _tasks_of(a: str, b: str, run_dir: RunDir, store: Store) -> list[str]:
    for name in (a, b):
        if names_a_row(name):
            return list(dict.fromkeys(column.task for column in table_of(name, run_dir).columns))
        if (cell := store.cell(name)) is not None:
            return [cell.spec["task"]]
    rows = [_row_name(name) for name in (a, b) if _tables_with(name)]
    command = f"atrl-bench compare {' '.join(rows)}" if len(rows) == 2 else f"atrl-bench compare {a} {b} --task TASK"
    raise MissingDataError(
        "Name the tasks: --task.", why=_likely_row(a) or _likely_row(b), next_step=f"{command} {run_dir.options}"
    )


def name_of(model: str, store: Store) -> str:
    """How a page calls a model that was evaluated: a training of this folder by its recipe and seed."""
    run = store.run(model)
    return model if run is None else f"{short_label('run', run.spec)}, seed {run.spec['seed']} ({model[:8]})"

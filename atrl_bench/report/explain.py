"""`atrl-bench explain TABLE ROW COLUMN`: where one number comes from, as far as the store knows it.

Training, evaluation, prompts, grading, counts, interval, test, the published number beside it and why the two do or do
not compare, the files to open, and the commands that make it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atrl_bench.errors import UnknownNameError
from atrl_bench.escape import command_lines, folded, one_line
from atrl_bench.experiments.definition import AVERAGE, ColumnDefinition, RowDefinition
from atrl_bench.experiments.plan import Plan, cell_keys, seeds_options
from atrl_bench.experiments.progress import duration
from atrl_bench.report.table_model import Cell, Table
from atrl_bench.report.table_run import read_table
from atrl_bench.results import numbers
from atrl_bench.results.statistics import Difference, Estimate
from atrl_bench.results.store import Cell as StoredCell
from atrl_bench.results.store import Run, Store


def explain(plan: Plan, row: str, column: str) -> dict[str, Any]:
    """Return everything behind one number of a planned table, read from the store alone.

    The plan is the whole table's: a corrected p-value depends on every other difference of it.
    """
    definition = plan.definition
    rows, columns = [item.id for item in definition.rows], [item.id for item in definition.columns]
    if row not in rows:
        raise UnknownNameError("row", row, rows, next_step=f"atrl-bench explain {definition.id} ROW COLUMN")
    if column not in columns and (column != AVERAGE or not definition.average):
        known = [*columns, *([AVERAGE] if definition.average else [])]
        raise UnknownNameError("column", column, known, next_step=f"atrl-bench explain {definition.id} {row} COLUMN")
    with plan.run_dir.open_store() as store:
        table = read_table(plan, store)
        keys = cell_keys(plan, store)
        runs = [run for key in _run_keys(plan, row) if (run := store.run(key)) is not None]
        names = columns if column == AVERAGE else [column]
        cells = {name: [c for key in keys.get((row, name), ()) if (c := store.cell(key))] for name in names}
        prompts = _prompts(store, [cell for found in cells.values() for cell in found])
    row_definition = next(item for item in definition.rows if item.id == row)
    cell = _cell(table, row, column)
    return {
        "table": definition.id,
        "row": row,
        "column": column,
        "profile": plan.profile.name,
        "folder": str(plan.run_dir.root),
        "number": _number(cell, table, column, names),
        "difference": _difference(cell, table, row_definition, plan),
        "published": _published(table, row_definition, column, plan),
        "training": [_training(run) for run in runs],
        "row_settings": _row_settings(row_definition, plan),
        "evaluation": {name: [_evaluation(found) for found in cells[name]] for name in names},
        "prompts": prompts,
        "files": _files(plan, table, runs),
        "commands": _commands(plan, row_definition, [c for c in definition.columns if c.id in names], cells),
    }


# What the number is ---------------------------------------------------------------------------------------------------


def _number(cell: Cell, table: Table, column: str, names: Sequence[str]) -> dict[str, Any]:
    record: dict[str, Any] = {"state": cell.state}
    if cell.reason:
        record["reason"] = cell.reason
    if cell.estimate is None:
        return record
    metric = next(item.metric for item in table.columns if item.id == column)
    record |= {
        "score": _percent(cell.estimate.mean),
        "metric": metric,
        "interval_95": [_percent(end) for end in cell.estimate.interval()],
        "how": _how(cell.estimate, names),
        "problems": cell.estimate.num_problems,
        "problems_expected": cell.num_expected,
        "groups": cell.estimate.num_groups,
        "repeats": cell.num_repeats,
    }
    if cell.all_repeats is not None and cell.num_repeats > 1:
        record["mean_over_repeats"] = _percent(cell.all_repeats.mean)
    if cell.seeds is not None:
        record["training_seeds"] = cell.seeds.num_seeds
        record["seed_sd"] = None if cell.seeds.sd is None else _percent(cell.seeds.sd)
    record["answers"] = {name: count for name, count in vars(cell.counts).items() if count}
    record["skipped_rows"] = dict(cell.skipped)
    return record


def _how(estimate: Estimate, names: Sequence[str]) -> str:
    if len(names) > 1:
        return f"unweighted mean of {', '.join(names)}; their errors added as of independent benchmarks"
    if estimate.stderr == 0:
        return "every problem scored the same: one-sided interval from the number of groups"
    return (
        f"mean over problems of the mean over repeats; standard error {_percent(estimate.stderr)} clustered by problem "
        f"group, Student's t with {estimate.degrees:.0f} degrees of freedom"
    )


def _difference(cell: Cell, table: Table, row: RowDefinition, plan: Plan) -> dict[str, Any] | None:
    if cell.difference is None:
        return None
    against = plan.definition.baseline_of(row)
    found = _difference_record(cell.difference) | {"against": against, "corrected_p": cell.q_value}
    found["significant"] = cell.is_significant
    found["corrected_how"] = "Benjamini–Hochberg over all differences of the table"
    return found


def _difference_record(difference: Difference) -> dict[str, Any]:
    estimate = difference.estimate
    return {
        "points": round(100 * estimate.mean, 4),
        "interval_95": [round(100 * end, 4) for end in estimate.interval()],
        "p": difference.p_value,
        "test": difference.test,
        "common_problems": estimate.num_problems,
    }


def _published(table: Table, row: RowDefinition, column: str, plan: Plan) -> dict[str, Any]:
    found = next((item for item in table.published if item.id == row.id), None)
    at = [item.id for item in table.columns].index(column)
    printed = None if found is None or at >= len(found.scores) else found.scores[at]
    if printed is None or printed.score is None:
        return {"score": None, "why": "the paper prints no such number"}
    of_column = [name for item in plan.definition.columns if item.id == column for name in item.footnotes]
    names = dict.fromkeys([*row.cell_footnotes.get(column, ()), *row.footnotes, *of_column])
    notes = [plan.definition.footnotes[name] for name in names]
    return {
        "score": str(printed.score),
        "difference": None if printed.difference is None else str(printed.difference),
        "source": table.source,
        "comparable": table.is_comparable,
        "why": table.warning,
        "notes": [" ".join(note.split()) for note in notes],
    }


# What it was made from ------------------------------------------------------------------------------------------------


def _row_settings(row: RowDefinition, plan: Plan) -> dict[str, Any]:
    """Return what the definition fixes of the row, whether or not it was trained already."""
    if row.not_measured:
        return {"not_measured": " ".join(row.not_measured.split())}
    if row.served:
        return {"recipe": "none: a model that only an endpoint has", "served": row.served}
    base = plan.run_dir.with_model(plan.definition.model_of(row)).profile.model
    if not row.recipe:
        return {"recipe": "none: the base model, untrained", "base": base}
    return {"recipe": row.recipe, "base": base, **plan.definition.recipe_fields(row)}


def _training(run: Run) -> dict[str, Any]:
    spec = run.spec
    return {
        "run": run.key,
        "seed": spec.get("seed"),
        "state": run.state,
        **({"reason": run.reason} if run.reason else {}),
        "base_digest": spec.get("base_digest"),
        "data_digest": spec.get("data_digest"),
        "recipe": spec.get("recipe"),
        "sizes": spec.get("sizes"),
        "checkpoint": run.checkpoint,
        "digest": run.digest,
        "seconds": run.seconds,
        "summary": run.summary,
    }


def _evaluation(cell: StoredCell) -> dict[str, Any]:
    return {
        "cell": cell.key,
        "state": cell.state,
        "answers": cell.num_responses,
        "graded": cell.num_graded,
        **cell.spec,
    }


def _prompts(store: Store, cells: Sequence[StoredCell]) -> list[dict[str, Any]]:
    """Return the templates, each with the number of problems it was drawn for; a draw is a hash: repeatable."""
    from atrl_bench.models.prompts import TEMPLATES, choose_template

    used: Counter[int] = Counter()
    for cell in cells:
        seed = int(cell.spec.get("run_seed", 0))
        used.update(choose_template(seed, problem.problem_id) for problem in store.problems(cell.key))
    return [{"template": text, "problems": used[number]} for number, text in enumerate(TEMPLATES)]


# Where it is, and how to make it again --------------------------------------------------------------------------------


def _files(plan: Plan, table: Table, runs: Sequence[Run]) -> list[str]:
    run_dir = plan.run_dir
    paths = [run_dir.reports / f"{table.id}.html", run_dir.store_path]
    for run in runs:
        if run.checkpoint:
            paths += [run_dir.root / run.checkpoint / name for name in ("recipe.yaml", "metrics.jsonl", "done.json")]
    return [str(path) for path in paths if Path(path).exists()]


def _commands(
    plan: Plan,
    row: RowDefinition,
    columns: Sequence[ColumnDefinition],
    cells: Mapping[str, Sequence[StoredCell]],
) -> list[str]:
    if row.not_measured:
        return []
    run_dir, table = plan.run_dir, plan.definition.id
    if row.served:
        return [plan.definition.evaluate_command(row, run_dir.options)]
    options = [*seeds_options(plan.definition, plan.seeds), run_dir.options]
    names = ",".join(column.id for column in columns)
    commands = [" ".join([f"atrl-bench run-table {table} --rows {row.id} --columns {names}", *options])]
    if any(cells.values()):
        commands.append(f"atrl-bench export jsonl --profile {plan.profile.name} --out {run_dir.root}")
    return commands


def _run_keys(plan: Plan, row: str) -> list[str]:
    return [job.run_key for job in plan.jobs if job.row.id == row and job.run_key]


def _cell(table: Table, row: str, column: str) -> Cell:
    at = [item.id for item in table.columns].index(column)
    return next(item for item in table.rows if item.id == row).cells[at]


def _percent(share: float) -> float:
    return round(100 * share, 4)


# Text -----------------------------------------------------------------------------------------------------------------


def explain_text(record: dict[str, Any]) -> str:
    """Return the provenance as a person reads it, eighty columns wide."""
    lines = [f"{record['table']}, row {record['row']}, column {record['column']} (profile {record['profile']})", ""]
    for title, pairs in (
        ("The number", _number_pairs(record)),
        ("Against the baseline", _difference_pairs(record)),
        ("The paper", _published_pairs(record)),
        ("The row", _flat(record["row_settings"])),
    ):
        if pairs := list(pairs):
            lines += [title, *_pairs(pairs), ""]
    for run in record["training"]:
        lines += [f"Training, seed {run['seed']}", *_pairs(_training_pairs(run)), ""]
    for column, cells in record["evaluation"].items():
        for cell in cells:
            lines += [f"Evaluation on {column}", *_pairs(_flat(cell)), ""]
    if any(prompt["problems"] for prompt in record["prompts"]):
        lines += ["Prompts, drawn by problem"]
        lines += _pairs((f"{p['problems']} problems", p["template"]) for p in record["prompts"])
        lines.append("")
    lines += ["Files", *(f"  {one_line(path)}" for path in record["files"])]
    if record["commands"]:
        lines += ["", "Again", *(line for command in record["commands"] for line in command_lines(command))]
    return "\n".join(lines)


def _number_pairs(record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    number = record["number"]
    if "score" not in number:
        yield from _flat(number)
        return
    low, high = number["interval_95"]
    yield "score", f"{number['score']:.2f} % ({number['metric']}), 95 % interval {low:.1f} to {high:.1f}"
    yield "how", number["how"]
    expected = f"{number['problems']} of {number['problems_expected']} in {number['groups']} groups"
    yield "problems", f"{expected}, {number['repeats']} repeats each"
    yield "answers", ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in number["answers"].items())
    if "mean_over_repeats" in number:
        yield f"mean@{number['repeats']}", f"{number['mean_over_repeats']:.2f} %"
    if "training_seeds" in number:
        sd = number["seed_sd"]
        said = "seed variance not measured" if sd is None else f"standard deviation {sd:.2f} points"
        yield "training seeds", f"{number['training_seeds']}: {said}"
    if number["state"] != "measured":
        yield "state", f"{number['state']}: {number.get('reason', '')}"
    if number["skipped_rows"]:
        yield "skipped", f"{len(number['skipped_rows'])} rows of the dataset"


def _difference_pairs(record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    found = record["difference"]
    if found is None:
        return
    low, high = found["interval_95"]
    yield (
        "difference",
        f"{found['points']:+.2f} points from {found['against']}, 95 % interval {low:+.1f} to {high:+.1f}",
    )
    yield "test", f"p {numbers.p_value(found['p'])}, {found['test']}, over {found['common_problems']} common problems"
    if found["corrected_p"] is not None:
        said = "significant" if found["significant"] else "not significant"
        yield "corrected", f"p {numbers.p_value(found['corrected_p'])}, {found['corrected_how']}: {said}"


def _published_pairs(record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    printed = record["published"]
    if printed["score"] is None:
        yield "score", printed["why"]
        return
    change = f", {_signed(printed['difference'])} points from its baseline" if printed["difference"] else ""
    yield "score", f"{printed['score']} %{change}"
    yield "source", printed["source"]
    yield "comparable" if printed["comparable"] else "not comparable", printed["why"]
    for note in printed["notes"]:
        yield "note", note


def _signed(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"


def _training_pairs(run: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in run.items():
        if name == "seconds" and value is not None:
            yield "time", duration(value)
        elif name == "summary":
            yield "figures", _joined({key: f"{n:.4g}" if isinstance(n, float) else n for key, n in value.items()})
        elif name != "seed":
            yield from _flat({name: value})


def _flat(values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield the settings that are set, those of one part together."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = _joined(value)
        if value not in (None, "", [], ()):
            yield name, value


def _joined(values: Mapping[str, Any], prefix: str = "") -> str:
    parts = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            parts.append(_joined(value, f"{prefix}{name}."))
        elif value not in (None, "", [], ()):
            parts.append(f"{prefix}{name} {value}")
    return ", ".join(part for part in parts if part)


def _pairs(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    lines: list[str] = []
    for name, value in pairs:
        head = f"  {one_line(str(name)):<18} "
        lines += folded(str(value), first=head, rest=" " * 21)
    return lines

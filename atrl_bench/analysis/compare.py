"""`atrl-bench compare A B`: is one model better than another, on the problems both have answered?

Cells are looked up in the run folder, never filled here. Of several cells of a model on a task those two are compared
that differ in least beside the model; whatever else differs is said, because it may be what the difference is of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import AtrlBenchError, MissingDataError
from atrl_bench.escape import one_line
from atrl_bench.experiments.flatten import flat
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results import numbers
from atrl_bench.results.statistics import (
    Answers,
    Estimate,
    benjamini_hochberg,
    difference,
    score,
    suite_difference,
    suite_score,
)
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from atrl_bench.evaluation.tasks import Suite

# What two cells of one task may differ in without a warning: which model, and how it is called.
MODEL_FIELDS = ("model_digest", "model_name")


def compare_models(
    a: str,
    b: str,
    tasks: Sequence[str],
    run_dir: RunDir,
    *,
    metrics: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return a record for each task, metric and suite: both scores, the paired difference, its p and q, warnings.

    `a` and `b` are models as `evaluate` takes them, names of models that were evaluated, or keys of cells. `metrics`
    defaults to all that the two cells can be scored by.
    """
    from atrl_bench.evaluation.tasks import expand, list_suites

    records: list[dict[str, Any]] = []
    with run_dir.open_store(read_only=True) as store:
        pairs = {info.name: _find_pair(store, a, b, info.name, run_dir) for info in expand(tasks)}
        for pair in pairs.values():
            records += compare(store, pair[0].key, pair[1].key, metrics)
        for suite in (suite for suite in list_suites() if suite.name in tasks):
            records.append(_compare_suite(store, suite, pairs))
    return with_q_values(records)


def compare(store: Store, cell_a: str, cell_b: str, metrics: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return a record for each metric of two cells of one task: a minus b."""
    a, b = _cell(store, cell_a), _cell(store, cell_b)
    if a.spec["task"] != b.spec["task"]:
        raise MissingDataError(
            f"Cell {cell_a} is of {a.spec['task']} and cell {cell_b} of {b.spec['task']}.",
            why="A difference is taken problem by problem, over one benchmark.",
            next_step="give two cells of one task",
        )
    base = {"task": a.spec["task"], "kind": "task"} | _names(a, b) | {"differs_in": differences_beside_model(a, b)}
    return [
        base | _measured([_answers(store, a, metric)], [_answers(store, b, metric)], metric)
        for metric in metrics or _metrics(a, b)
    ]


def _compare_suite(store: Store, suite: Suite, pairs: dict[str, tuple[Cell, Cell]]) -> dict[str, Any]:
    """Return the record of a suite under the number it is quoted by: the mean of its parts' own numbers."""
    from atrl_bench.evaluation.tasks import find_task
    from atrl_bench.experiments.evaluate_command import headline_answers

    parts = [pairs[task] for task in suite.tasks]
    num_repeats = min(_num_repeats(*pair) for pair in parts)
    ours, theirs = (
        [headline_answers(find_task(cell.spec["task"]), store.samples(cell.key), num_repeats) for cell in cells]
        for cells in zip(*parts, strict=True)
    )
    differing = sorted({field for a, b in parts for field in differences_beside_model(a, b)})
    base = {"task": suite.name, "kind": "suite"} | _names(*parts[0]) | {"differs_in": differing}
    return base | _measured(ours, theirs, "acc@1" if num_repeats == 1 else f"mean@{num_repeats}")


def differences_beside_model(a: Cell, b: Cell) -> list[str]:
    """Return the settings two cells differ in beside the model, each as "name: a's value, b's value"."""
    ours, theirs = flat(a.spec), flat(b.spec)
    fields = sorted((ours.keys() | theirs.keys()) - set(MODEL_FIELDS))
    return [f"{f}: {ours.get(f)}, {theirs.get(f)}" for f in fields if ours.get(f) != theirs.get(f)]


def with_q_values(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records with p-values corrected for how many tasks were compared, each metric for itself."""
    corrected = [dict(record) for record in records]
    for metric in {record["metric"] for record in records}:
        # A suite is made of tasks that are there already: it is not one comparison more.
        family = [r for r in corrected if r["metric"] == metric and r["kind"] == "task" and r["p"] is not None]
        for record, q in zip(family, benjamini_hochberg([record["p"] for record in family]), strict=True):
            record["q"] = q
    return corrected


def _measured(a: list[Answers], b: list[Answers], metric: str) -> dict[str, Any]:
    found = difference(a[0], b[0]) if len(a) == 1 else suite_difference(a, b)
    return {
        "metric": metric,
        "score_a": _estimate(score(a[0]) if len(a) == 1 else suite_score(a)),
        "score_b": _estimate(score(b[0]) if len(b) == 1 else suite_score(b)),
        "difference": _estimate(found.estimate),
        "p": _number(found.p_value),
        "q": None,
        "test": found.test,
        **_discordant(a, b),
        "num_common": found.estimate.num_problems,
    }


def _discordant(a: Iterable[Answers], b: Iterable[Answers]) -> dict[str, int]:
    """Return on how many common problems each side is the better one, by the mean over the counted repeats."""
    gains = []
    for one, other in zip(a, b, strict=True):
        ours, theirs = one.scores, other.scores
        gains += [ours[problem] - theirs[problem] for problem in ours if problem in theirs]
    return {"num_a_better": sum(gain > 0 for gain in gains), "num_b_better": sum(gain < 0 for gain in gains)}


def _answers(store: Store, cell: Cell, metric: str) -> Answers:
    return Answers(store.samples(cell.key), metric, _statistics(cell.spec["task"]))


def _statistics(task: str) -> dict[str, Any]:
    from atrl_bench.evaluation.tasks import find_task

    return dict(getattr(find_task(task).module, "STATISTICS", {}))


def _metrics(a: Cell, b: Cell) -> list[str]:
    """Return the metrics that both cells can be scored by: over as many repeats as the smaller of them has."""
    num_repeats = _num_repeats(a, b)
    means = ["acc@1"] if num_repeats == 1 else ["acc@1", f"mean@{num_repeats}"]
    return means + [f"{name}@{num_repeats}" for name in _statistics(a.spec["task"])]


def _num_repeats(a: Cell, b: Cell) -> int:
    return min(int(cell.spec["decoding"]["repeats"]) for cell in (a, b))


# Looking cells up -----------------------------------------------------------------------------------------------------


def _find_pair(store: Store, a: str, b: str, task: str, run_dir: RunDir) -> tuple[Cell, Cell]:
    """Return the two finished cells that differ in least beside the model; of equals, the newest."""
    ours, theirs = _cells_of(store, a, task), _cells_of(store, b, task)
    missing = [model for model, cells in ((a, ours), (b, theirs)) if not cells]
    if missing:
        commands = [f"atrl-bench evaluate {model} --tasks {task} {run_dir.options}" for model in missing]
        raise MissingDataError(
            f"{' and '.join(dict.fromkeys(missing))} has no finished evaluation on {task} in {run_dir.root}.",
            next_step=" && ".join(dict.fromkeys(commands)),
        )
    newest_first = product(reversed(ours), reversed(theirs))
    return min(newest_first, key=lambda pair: len(differences_beside_model(*pair)))


def _cells_of(store: Store, model: str, task: str) -> list[Cell]:
    from atrl_bench.models.local import find_model

    named = store.cell(model)
    if named is not None:
        return [named] if named.spec["task"] == task and named.state == "done" else []
    done = store.cells(task=task, state="done")
    try:
        digest = find_model(model).digest
    except AtrlBenchError:
        # Behind an endpoint, or deleted since: what it was called when it was evaluated is all there is.
        return [cell for cell in done if cell.spec["model_name"] == model]
    return [cell for cell in done if cell.spec["model_digest"] == digest]


def _cell(store: Store, key: str) -> Cell:
    cell = store.cell(key)
    if cell is None:
        raise MissingDataError(f"The store {store.path} has no cell {key}.", next_step="atrl-bench status")
    return cell


def _names(a: Cell, b: Cell) -> dict[str, str]:
    return {"a": a.spec["model_name"], "b": b.spec["model_name"], "cell_a": a.key, "cell_b": b.key}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    low, high = estimate.interval()
    numbers_of = {name: _number(value) for name, value in asdict(estimate).items() if isinstance(value, (int, float))}
    return numbers_of | {"low": _number(low), "high": _number(high)}


def _number(value: float) -> float | None:
    # JSON has no word for "not a number".
    return None if isinstance(value, float) and math.isnan(value) else value


# In words -------------------------------------------------------------------------------------------------------------


def compare_text(records: Sequence[dict[str, Any]]) -> str:
    """Return the comparisons as a person reads them, eighty columns wide."""
    if not records:
        return "Nothing to compare."
    a, b = (one_line(records[0][side])[:60] for side in ("a", "b"))
    head = f"{'':<32} {'A':>6} {'B':>6} {'A − B':>7} {'95 %':>15} {'p':>7}"
    lines, task = [f"A  {a}", f"B  {b}", "", head], None
    for record in records:
        if record["task"] != task:
            task = record["task"]
            what = "mean of its tasks, " if record["kind"] == "suite" else ""
            lines.append(f"{task} ({what}{record['num_common']:,} common problems)")
        score_a, score_b = (_percent(record[side]["mean"]) for side in ("score_a", "score_b"))
        found = record["difference"]
        lines.append(
            f"  {record['metric'][:30]:<30} {score_a:>6} {score_b:>6} "
            f"{_signed(found['mean']):>7} {_interval(found):>15} {_p(record['p']):>7}"
        )
        q = "" if record["q"] is None else f"; q {_p(record['q'])}"
        lines.append(
            f"    A better on {record['num_a_better']:,}, B on {record['num_b_better']:,}; {record['test']}{q}"
        )
    warnings = list(dict.fromkeys(f"{r['task']}: {field}" for r in records for field in r["differs_in"]))
    if warnings:
        lines += ["", "Not the model alone differs (A's value, B's value):"]
        lines += [f"  {one_line(warning)[:77]}" for warning in warnings]
    lines += ["", "Scores in percent. q: p corrected for the number of tasks (Benjamini–Hochberg)."]
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "–" if share is None else numbers.percent(share)


def _signed(share: float | None) -> str:
    return "–" if share is None else numbers.signed(share)


def _interval(found: dict[str, Any]) -> str:
    if found["low"] is None:
        return "–"
    low, high = max(found["low"], -1.0), min(found["high"], 1.0)  # cut off where no difference can be
    return f"{numbers.signed(low, 1)} to {numbers.signed(high, 1)}"


def _p(value: float | None) -> str:
    return "–" if value is None else numbers.p_value(value).removeprefix("= ")

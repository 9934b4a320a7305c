"""Everything that a run folder measured as one tidy DataFrame: a line for each row, training seed and task of a table.

A model that was only evaluated has its lines, too, without a table.

It is made here and not beside the store: which row of which table an answer counts for is known to plans alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import AtrlBenchError
from atrl_bench.evaluation.tasks import Task, find_task, scored
from atrl_bench.experiments.ablation import with_saved_points
from atrl_bench.experiments.definition import list_tables, table_under
from atrl_bench.experiments.plan import best_rates, cell_keys, plan_definition
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import list_profiles, load_profile
from atrl_bench.report.build import credit_name
from atrl_bench.report.rendered import rendered_tables
from atrl_bench.results.statistics.means import Estimate
from atrl_bench.results.statistics.metrics import Bounds, in_place_of, score
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = (
    *("table", "row", "label", "recipe", "credit", "seed"),
    *("model", "profile", "temperature", "top_p", "top_k", "max_tokens", "repeats"),
    *("template", "system", "image", "limit", "frames", "run_seed", "judge", "grader"),
    *("task", "metric", "value", "standard_error"),
    *("mean_tokens", "mean_thought_tokens"),
)
COUNTS = ("seed", "top_k", "limit", "frames")  # where they are not missing


def frame(run_dir: RunDir | Path | str) -> DataFrame:
    """The finished scores of every table that was rendered in a run folder, and of what stands in none, in percent.

    `seed` is the training seed, missing for a model that was not trained here; a suite has a line for each of its
    tasks. A training that two tables share stands under both. `value` is missing where a judge failed on too many
    answers for one number. `metric` is the table's: `headline@1` is the number that the benchmark is quoted by. `model`
    is what the evaluation was given, `profile` gave the sizes, of which the sampling stands beside it as it was;
    `template` and `system` are the texts of a prompt that was chosen, `grader` a published rule that was.
    """
    import pandas as pd

    # Of what stands in no table the store says all, under any profile.
    if not isinstance(run_dir, RunDir):
        run_dir = under_its_profile(RunDir.at(Path(run_dir), load_profile("mini")))
    with run_dir.open_store(read_only=True) as store:
        places = list(places_of_cells(run_dir, store))
        lines = [place.fields | _measured(store, place.cell, place.metric) for place in places]
        placed = {place.cell.key for place in places}
        for cell in store.cells(state="done"):
            if cell.key not in placed:
                _, metric = headline_metric(cell)
                lines.append({"label": cell.spec["model_name"]} | _measured(store, cell, metric))
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype(dict.fromkeys(COUNTS, "Int64"))


@dataclass(frozen=True)
class CellPlace:
    """A finished cell where a table shows it: `fields` are table, row, label, recipe, credit and seed, by name."""

    fields: dict[str, Any]
    metric: str
    cell: Cell


def places_of_cells(run_dir: RunDir, store: Store) -> Iterator[CellPlace]:
    names = [name for name in rendered_tables(run_dir.reports) if name in list_tables()]
    seed_of_model = {run.digest: run.spec.get("seed") for run in store.runs() if run.digest}
    seeds = sorted({seed for seed in seed_of_model.values() if seed is not None})
    for definition in (with_saved_points(table_under(name, run_dir.profile), run_dir) for name in names):
        plan = plan_definition(definition, run_dir, seeds or None)
        keys = cell_keys(plan.at(best_rates(plan, store)), store)
        recipes = definition.recipes()
        for row in definition.rows:
            fields = {"table": definition.id, "row": row.id, "label": row.label, "recipe": row.recipe}
            fields["credit"] = credit_name(row) if hasattr(recipes.get(row.id), "credit") else None
            for column in definition.columns:
                for cell in (store.cell(key) for key in keys.get((row.id, column.id), ())):
                    if cell is not None and cell.state == "done":
                        seed = seed_of_model.get(cell.spec["model_digest"]) if row.recipe else None
                        yield CellPlace(fields | {"seed": seed}, column.metric, cell)


def under_its_profile(run_dir: RunDir) -> RunDir:
    """The folder under the profile that its tables were made with, where it has any."""
    known = list_tables()  # the page of other evaluations may be of a profile that is only a file
    tables = rendered_tables(run_dir.reports)
    profiles = sorted({table.profile for name, table in tables.items() if name in known})
    if len(profiles) > 1 or not set(profiles) <= set(list_profiles()):
        raise AtrlBenchError(
            f"{run_dir.root} has tables of the {'profiles' if len(profiles) > 1 else 'profile'} {', '.join(profiles)}.",
            why="Numbers of several profiles do not belong into one column." if len(profiles) > 1 else "It is a file.",
            next_step="name the profile: --profile, or in Python frame(RunDir.at(path, load_profile(name)))",
        )
    return replace(run_dir, profile=load_profile(profiles[0])) if profiles else run_dir


def _measured(store: Store, cell: Cell, metric: str) -> dict[str, Any]:
    task = str(cell.spec["task"])
    estimate, between = score_or_bounds(store, cell, metric)
    decoding, prompt = cell.spec["decoding"], cell.spec.get("prompt") or {}
    return {
        "model": cell.spec["model_name"],
        "profile": cell.spec["profile"],
        "temperature": decoding["temperature"],
        "top_p": decoding["top_p"],
        "top_k": decoding.get("top_k"),
        "max_tokens": decoding["max_new_tokens"],
        "repeats": decoding["repeats"],
        "template": prompt.get("template"),
        "system": prompt.get("system"),
        "image": cell.spec.get("image"),
        "limit": cell.spec["limit"],
        "frames": decoding.get("num_frames"),
        "run_seed": cell.spec["run_seed"],
        "judge": (cell.spec.get("judge") or {}).get("model"),
        "grader": cell.spec.get("grader"),
        "task": task,
        "metric": metric,
        "value": math.nan if between else 100 * estimate.mean,
        "standard_error": math.nan if between else 100 * estimate.stderr,
        "mean_tokens": cell.num_tokens / cell.num_responses,
        "mean_thought_tokens": cell.num_thought / cell.num_responses,
    }


def headline_metric(cell: Cell) -> tuple[Task, str]:
    """A finished cell's task, and the metric that the task is quoted by."""
    task = find_task(str(cell.spec["task"]))
    return task, task.headline(int(cell.spec["decoding"]["repeats"]))


def score_or_bounds(store: Store, cell: Cell, metric: str) -> tuple[Estimate, Bounds | None]:
    """A finished cell's number, and what stands in its place where a judge failed on too many answers."""
    part = scored(str(cell.spec["task"]), store.scores(cell.key), metric)
    estimate = score(part)
    return estimate, in_place_of(estimate, [part]) if store.lacks_judgement(cell.key) else None

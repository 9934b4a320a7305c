"""What figures are drawn from: the cells of the store by the methods behind them, and what the paper prints.

Whatever is not there is named together with the command that makes it.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from atrl_bench.digests import spec_key
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import flat
from atrl_bench.resources import folder
from atrl_bench.results.store import Cell, Run, Store
from atrl_bench.training.recipe import list_recipes, load_recipe

if TYPE_CHECKING:
    from atrl_bench.grading.judge.judge import JudgeConfig


UNTRAINED = ", untrained"  # how the name of a model ends that no training of the folder has made


@dataclass(frozen=True)
class Source:
    """What a figure may be asked to draw: which run folder, and whose answers to which benchmark."""

    run_dir: RunDir
    task: str = "mathvision_testmini"
    model: str | None = None  # the name or digest of one that was evaluated; None: one that was trained with AT-RL
    num_problems: int = 100  # the paper looks at as many samples of MathVision
    judge: JudgeConfig | None = None  # names the kinds of errors where nobody generated the problems

    def missing(self, what: str, why: str = "") -> MissingDataError:
        """Return the error of a figure that has nothing to show, with the command that helps most of them."""
        return MissingDataError(what, why=why, next_step=f"atrl-bench run-table main_7b {self.run_dir.options}")

    def open_store(self) -> Store:
        return self.run_dir.open_store(read_only=True)


def representative(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of one setting for each method: the fewest settings, on data that it shares with its family.

    A folder with every table has methods on several data sets and points of ablations; a figure about methods shows
    each once. A family is an objective with every credit that it was given: what is drawn beside each other should
    have learned from the same problems, so that the data with most of a family's methods come first, then those that
    most runs share.
    """
    import pandas as pd

    if not runs:
        return []
    of_run = pd.DataFrame(map(_traits, runs))
    least = of_run.groupby("method")["num_settings"].transform("min")
    candidates = of_run[of_run["num_settings"] == least].assign(
        num_methods=lambda candidates: candidates.groupby(["family", "data"])["method"].transform("nunique"),
        num_runs=lambda candidates: candidates["data"].map(of_run["data"].value_counts()),
    )
    rank = {"num_methods": False, "num_runs": False, "data": True, "created": True, "key": True}
    ranked = candidates.sort_values(list(rank), ascending=list(rank.values()))
    settings = set(ranked.drop_duplicates("method")["setting"])
    return [run for run in runs if _setting(run) in settings]


def _traits(run: Run) -> dict[str, Any]:
    recipe = run.spec["recipe"]
    return {
        "key": run.key,
        "created": run.created,
        "setting": _setting(run),
        "method": method_name(recipe),
        "family": _family(recipe),
        "data": _data(run),
        "num_settings": len((recipe.get("credit") or {}).get("settings") or {}),
    }


def _data(run: Run) -> str:
    return run.spec["recipe"].get("data") or ""


def _setting(run: Run) -> str:
    return spec_key({name: value for name, value in run.spec.items() if name != "seed"})


def run_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Return a name for each run by its key: the method, its data where these runs have several, and what else differs.

    Runs that differ in their seed alone have one name.
    """
    specs: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)  # by method, then by setting
    for run in runs:
        specs[method_name(run.spec["recipe"])][_setting(run)] = flat(run.spec)
    has_several_data = len({_data(run) for run in runs} - {""}) > 1
    labels = {}
    for run in runs:
        method = method_name(run.spec["recipe"])
        own, of_method = specs[method][_setting(run)], specs[method].values()
        names = sorted({name for spec in of_method for name in spec} - {"seed", "recipe.data"})
        differing = [name for name in names if len({str(spec.get(name)) for spec in of_method}) > 1]
        words = [_data(run)] if has_several_data and _data(run) else []
        words += [f"{name.split('.')[-1]} {own.get(name)}" for name in differing]
        labels[run.key] = f"{method} ({', '.join(words)})" if words else method
    return labels


def method_name(recipe: Mapping[str, Any]) -> str:
    """Return how print names a run's recipe: its title, or that of its objective, with the credit that it was given."""
    name = _family(recipe)
    credit = recipe.get("credit") or {"rule": "uniform", "preset": "default"}
    if credit["rule"] == "uniform":
        return name
    rule = "AT-RL" if credit["rule"] == "atrl" else f"{credit['rule'].replace('_', ' ')} credit"
    return f"{name} + {rule}" + ("" if credit["preset"] == "default" else f", {credit['preset']}")


def is_anchored(label: str) -> bool:
    """Return whether this is the name of AT-RL as it is by default, with whatever objective and data."""
    return re.fullmatch(r".* \+ AT-RL( \([^()]*\))?", label, re.S) is not None


def _family(recipe: Mapping[str, Any]) -> str:
    return _title(recipe) or str(recipe.get("objective") or recipe.get("method", "training")).upper()


def _title(recipe: Mapping[str, Any]) -> str | None:
    """Return the title of the shipped recipe that a run's is in all but its credit and schedule, or its data too."""
    for free in (("credit", "schedule"), ("credit", "schedule", "data")):
        wanted = {name: value for name, value in recipe.items() if name not in free}
        for title, fields in _shipped_recipes():
            if wanted == {name: value for name, value in fields.items() if name not in free}:
                return title
    return None


@cache
def _shipped_recipes() -> tuple[tuple[str, dict[str, Any]], ...]:
    recipes = [load_recipe(name) for name in list_recipes()]
    return tuple((r.title, r.model_dump(mode="json", exclude={"name", "title", "overrides"})) for r in recipes)


# Evaluations ------------------------------------------------------------------------------------------------------


def cell_labels(store: Store, cells: Sequence[Cell]) -> dict[str, str]:
    """Return a name for each cell by its key: the method that trained its model, or that model's own name.

    Untrained is what no training of the folder has made; a run that does not stand for its method is no untrained one.
    """
    runs, representatives = _trained_models(store)
    of_digest = {run.digest: f"{method_name(run.spec['recipe'])}, another setting" for run in runs}
    labels = run_labels(representatives)
    of_digest |= {run.digest: labels[run.key] for run in representatives}
    return {
        cell.key: of_digest.get(cell.spec["model_digest"], f"{cell.spec['model_name']}{UNTRAINED}") for cell in cells
    }


def finished_cells(source: Source, store: Store, task: str) -> list[Cell]:
    """Return the finished cells of a benchmark: of one judge, and of no training that does not stand for its method."""
    # By key and by digest: two trainings may have ended in the same weights.
    names, of_representatives = ({n for run in runs for n in (run.key, run.digest)} for runs in _trained_models(store))
    others = names - of_representatives
    run_dir = source.run_dir
    cells = of_one_judge(store.cells(task=task, state="done"), run_dir.judge, run_dir.engine)
    return [cell for cell in cells if not others & {cell.spec["model_name"], cell.spec["model_digest"]}]


def _trained_models(store: Store) -> tuple[list[Run], list[Run]]:
    """Return the runs that left a model, and those of them that stand for their methods."""
    runs = [run for run in store.runs() if run.digest]
    return runs, representative([run for run in runs if run.state == "done"])


def done_cells(source: Source, store: Store) -> list[Cell]:
    """Return the finished cells of the benchmark, in the order of their names, then of their age."""
    cells, model = finished_cells(source, store, source.task), source.model
    labels = cell_labels(store, cells)
    if model is not None:
        cells = [c for c in cells if model in (c.spec["model_name"], c.spec["model_digest"], c.key, labels[c.key])]
    if not cells:
        who = f" of {model}" if model else ""
        raise source.missing(f"{source.run_dir.root} has no finished evaluation{who} on {source.task}.")
    return sorted(cells, key=lambda cell: (labels[cell.key], cell.created, cell.key))


def chosen_cell(source: Source, store: Store) -> tuple[Cell, str]:
    """Return the cell whose tokens are looked at, with its name: one trained with AT-RL where there is one."""
    cells = done_cells(source, store)
    labels = cell_labels(store, cells)
    cell = next((cell for cell in cells if is_anchored(labels[cell.key])), cells[0])
    return cell, labels[cell.key]


# The paper --------------------------------------------------------------------------------------------------------


def published(name: str) -> list[dict[str, str]]:
    """Return the rows of `reports/paper/figures/<name>.csv`: what the paper prints, and nothing that it only draws."""
    return _rows_of_paper(f"figures/{name}")


def published_score(table: str, row: str, column: str) -> float | None:
    [score] = [line[column] for line in _rows_of_paper(table) if line["row"] == row]
    return None if score == "--" else float(score)


def _rows_of_paper(name: str) -> list[dict[str, str]]:
    path = folder("reports") / "paper" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))

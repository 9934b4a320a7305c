"""What figures are drawn from: training runs with their metrics, the cells of the store, and what the paper prints.

Whatever is not there is named together with the command that makes it.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from atrl_bench.digests import spec_key
from atrl_bench.errors import MissingDataError
from atrl_bench.resources import folder
from atrl_bench.results.store import Cell, Run, Store
from atrl_bench.tables.flatten import flat
from atrl_bench.tables.folder_judge import of_one_judge
from atrl_bench.tables.workspace import Workspace

if TYPE_CHECKING:
    from atrl_bench.evaluation.judge import JudgeConfig


@dataclass(frozen=True)
class Source:
    """What a figure may be asked to draw: which run folder, and whose answers to which benchmark."""

    place: Workspace
    task: str = "mathvision_testmini"
    model: str | None = None  # the name or digest of one that was evaluated; None: one that was trained with AT-RL
    num_problems: int = 100  # the paper looks at as many samples of MathVision
    judge: JudgeConfig | None = None  # names the kinds of errors where nobody generated the problems

    @property
    def command(self) -> str:
        """The command that fills this run folder with what most figures need."""
        return f"atrl-bench run-table main_7b {self.place.options}"

    def missing(self, what: str, why: str = "") -> MissingDataError:
        """Return the error of a figure that has nothing to show."""
        return MissingDataError(what, why=why, next_step=self.command)

    def open_store(self) -> Store:
        """Return the run folder's store, to be read."""
        if not self.place.store_path.is_file():
            raise self.missing(f"There is no result store in {self.place.root}.")
        return Store.open(self.place.store_path, read_only=True)


@dataclass(frozen=True)
class Training:
    """One training run: the name that all its seeds share, its seed, and a mapping an optimiser step."""

    label: str
    seed: int
    steps: Sequence[Mapping[str, Any]]


def trainings(source: Source) -> list[Training]:
    """Return the finished trainings of a run folder that stand for their methods, by name and seed."""
    from atrl_bench.training.metrics import read_metrics

    with source.open_store() as store:
        runs = representative([run for run in store.runs() if run.state == "done"])
    labels = run_labels(runs)
    found = [
        Training(labels[run.key], run.spec["seed"], read_metrics(source.place.root / run.checkpoint / "metrics.jsonl"))
        for run in runs
    ]
    return sorted((t for t in found if t.steps), key=lambda training: (training.label, training.seed))


def representative(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of one setting for each method: on the data that most runs share, with the fewest settings.

    A folder with every table has methods on several data sets and points of ablations; a figure about methods shows
    each once.
    """
    num_of_data = Counter(run.spec["recipe"].get("data") for run in runs)

    def rank(run: Run) -> tuple[Any, ...]:
        recipe = run.spec["recipe"]
        settings = (recipe.get("credit") or {}).get("settings") or {}
        return len(settings), -num_of_data[recipe.get("data")], run.created, run.key

    chosen: dict[str, str] = {}
    for run in sorted(runs, key=rank):
        chosen.setdefault(method_name(run.spec["recipe"]), _setting(run))
    return [run for run in runs if chosen[method_name(run.spec["recipe"])] == _setting(run)]


def _setting(run: Run) -> str:
    return spec_key({name: value for name, value in run.spec.items() if name != "seed"})


def run_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Return a name for each run by its key: the method, and where two share that, whatever they differ in.

    Runs that differ in their seed alone have one name.
    """
    of_setting: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        of_setting[_setting(run)].append(run)
    of_method: dict[str, list[str]] = defaultdict(list)
    for setting, same in of_setting.items():
        of_method[method_name(same[0].spec["recipe"])].append(setting)
    labels = {}
    for method, settings in of_method.items():
        fields = {setting: flat(of_setting[setting][0].spec) for setting in settings}
        names = sorted({name for values in fields.values() for name in values} - {"seed"})
        differing = [name for name in names if len({str(values.get(name)) for values in fields.values()}) > 1]
        for setting in settings:
            said = ", ".join(f"{name.split('.')[-1]} {fields[setting].get(name)}" for name in differing)
            for run in of_setting[setting]:
                labels[run.key] = f"{method} ({said})" if said else method
    return labels


def method_name(recipe: Mapping[str, Any]) -> str:
    """Return how print names a run's recipe: its title, or that of its objective, with the credit that it was given."""
    name = _title(recipe) or str(recipe.get("objective") or recipe.get("method", "training")).upper()
    credit = recipe.get("credit") or {"rule": "uniform", "preset": "default"}
    if credit["rule"] == "uniform":
        return name
    rule = "AT-RL" if credit["rule"] == "atrl" else f"{credit['rule'].replace('_', ' ')} credit"
    return f"{name} + {rule}" + ("" if credit["preset"] == "default" else f", {credit['preset']}")


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
    from atrl_bench.training.recipe import list_recipes, load_recipe

    recipes = [load_recipe(name) for name in list_recipes()]
    return tuple((r.title, r.model_dump(mode="json", exclude={"name", "title", "overrides"})) for r in recipes)


# Evaluations ------------------------------------------------------------------------------------------------------


def cell_labels(store: Store, cells: Sequence[Cell]) -> dict[str, str]:
    """Return a name for each cell by its key: the method that trained its model, or that model's own name."""
    runs = representative([run for run in store.runs() if run.state == "done"])
    labels = run_labels(runs)
    of_digest = {run.digest: labels[run.key] for run in runs}
    return {
        cell.key: of_digest.get(cell.spec["model_digest"], f"{cell.spec['model_name']}, untrained") for cell in cells
    }


def done_cells(source: Source, store: Store) -> list[Cell]:
    """Return the finished cells of the benchmark, in the order of their names, then of their age."""
    done = [run for run in store.runs() if run.state == "done"]
    others = {run.digest for run in done} - {run.digest for run in representative(done)}
    done_here = of_one_judge(store.cells(task=source.task, state="done"), source.place.judge)
    cells = [cell for cell in done_here if cell.spec["model_digest"] not in others]
    if source.model is not None:
        wanted = source.model
        labels = cell_labels(store, cells)
        cells = [c for c in cells if wanted in (c.spec["model_name"], c.spec["model_digest"], c.key, labels[c.key])]
    if not cells:
        who = f" of {source.model}" if source.model else ""
        raise source.missing(f"{source.place.root} has no finished evaluation{who} on {source.task}.")
    labels = cell_labels(store, cells)
    return sorted(cells, key=lambda cell: (labels[cell.key], cell.created, cell.key))


def chosen_cell(source: Source, store: Store) -> tuple[Cell, str]:
    """Return the cell whose tokens are looked at, with its name: one trained with AT-RL where there is one."""
    cells = done_cells(source, store)
    labels = cell_labels(store, cells)
    anchored = [cell for cell in cells if labels[cell.key].endswith("+ AT-RL")]
    cell = (anchored or cells)[0]
    return cell, labels[cell.key]


# The paper --------------------------------------------------------------------------------------------------------


def published(name: str) -> list[dict[str, str]]:
    """Return the rows of `reports/paper/figures/<name>.csv`: what the paper prints, and nothing that it only draws."""
    path = folder("reports") / "paper" / "figures" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def published_score(table: str, row: str, column: str) -> float | None:
    """Return a printed score of one of the paper's tables, in percent."""
    path = folder("reports") / "paper" / f"{table}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        [score] = [line[column] for line in csv.DictReader(file) if line["row"] == row]
    return None if score == "--" else float(score)

"""What a table, a benchmark, a training set or a model needs from the hub: models and data, each by its name.

The price of a plan (`price.py`) and `fetch` read the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from atrl_bench.data.repository import Listing, Repository, is_downloaded, listing
from atrl_bench.data.source import DatasetPart
from atrl_bench.errors import UnknownNameError
from atrl_bench.evaluation import made
from atrl_bench.evaluation import source as benchmarks
from atrl_bench.evaluation.published import published
from atrl_bench.evaluation.tasks import expand, find_task, list_suites, list_tasks
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.experiments.plan import evaluations_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import find_model, model_ref
from atrl_bench.training import source as training_sets
from atrl_bench.training.recipe import Recipe, load_recipe, stages_of
from atrl_bench.training.sets import TRAINING_SETS, folder_of

ALL = "all"


class Need(NamedTuple):
    """A model, training set or benchmark."""

    kind: str
    name: str

    @property
    def folder(self) -> str:
        """Its folder in a data folder; a model has none."""
        return KINDS[self.kind].folder(self.name)

    @property
    def files(self) -> list[tuple[Listing, list[str]]]:
        """The files that it consists of, by the commits that they are in; asks the hub where a repository is new."""
        return KINDS[self.kind].files(self.name)

    @property
    def is_here(self) -> bool:
        """Whether it is in the hub's cache, or laid out beside it."""
        return KINDS[self.kind].is_here(self.name)

    @property
    def terms(self) -> str | None:
        """The page of its conditions as far as they were read, None where the hub has to be asked for them."""
        task = find_task(self.name) if self.kind == "benchmark" else None
        is_gated = task is not None and task.hub_id and published(task.folder).gated
        return Repository("dataset", str(task.hub_id)).page if task and is_gated else None

    def data_dir(self, run_dir: RunDir) -> Path | None:
        """Return the data folder that has it, None where that is the hub's part."""
        return run_dir.data_dir(self.folder) if self.folder else None

    def fetch(self) -> None:
        """Bring all of it to this machine."""
        KINDS[self.kind].fetch(self.name)


def needs_of(
    models: Iterable[str], recipes: Iterable[Recipe], tasks: Iterable[str], run_dir: RunDir
) -> tuple[Need, ...]:
    """Return what these need, each once; neither data that is generated nor a model in a folder is needed."""
    needs = [Need("model", model) for model in models if is_on_hub(model)]
    if not run_dir.profile.generated_data:
        trained = [stage.data for recipe in recipes for stage in stages_of(recipe)]
        needs += [Need("training set", data) for data in trained if data in TRAINING_SETS]
        needs += [Need("benchmark", task) for task in tasks]
    return tuple(dict.fromkeys(needs))


def needs_of_name(name: str, run_dir: RunDir) -> tuple[Need, ...]:
    """Return what `fetch NAME` brings: for a table, task, suite, training set or model, or for `all` tables."""
    tasks = [*(task.name for task in list_tasks()), *(suite.name for suite in list_suites())]
    if name == ALL or name in list_tables():
        tables = list_tables() if name == ALL else [name]
        return tuple(dict.fromkeys(need for table in tables for need in _needs_of_table(table, run_dir)))
    if name in tasks:
        return needs_of((), (), [task.name for task in expand([name])], run_dir)
    if name in TRAINING_SETS:
        return () if run_dir.profile.generated_data else (Need("training set", name),)
    if is_on_hub(name):
        return (Need("model", name),)
    raise UnknownNameError("table, task or training set", name, [*list_tables(), *tasks, *TRAINING_SETS, ALL])


def _needs_of_table(name: str, run_dir: RunDir) -> tuple[Need, ...]:
    table = load_table(name)
    rows = [row for row in table.rows if not (row.served or row.not_measured)]
    models = [run_dir.with_model(table.model_of(row)).profile.model for row in rows]
    recipes = [load_recipe(row.recipe, **table.recipe_fields(row)) for row in rows if row.recipe]
    return needs_of(models, recipes, [item.task for item in evaluations_of(*table.columns)], run_dir)


def is_on_hub(model: str) -> bool:
    """Return whether a model's name is a hub id."""
    return model.count("/") == 1 and not model.startswith((".", "/")) and not Path(model).exists()


class _Kind(NamedTuple):
    """How models, training sets or benchmarks are found and fetched, each by its name."""

    heading: str
    folder: Callable[[str], str]
    files: Callable[[str], list[tuple[Listing, list[str]]]]
    is_here: Callable[[str], bool]
    fetch: Callable[[str], Any]


def _model_files(name: str) -> list[tuple[Listing, list[str]]]:
    ref = model_ref(name)
    return [(ref.listing, ref.files)] if ref.listing else []


def _files_of(parts: Iterable[DatasetPart]) -> list[tuple[Listing, list[str]]]:
    return [(listing(part.repository), part.names()) for part in parts]


KINDS = {
    "model": _Kind(
        "Models",
        folder=lambda name: "",
        files=_model_files,
        is_here=lambda name: all(is_downloaded(*files) for files in _model_files(name)),
        fetch=lambda name: find_model(name, download=True),
    ),
    "training set": _Kind(
        "Training sets",
        folder=folder_of,
        files=lambda name: _files_of(training_sets.parts(name)),
        is_here=lambda name: training_sets.is_here(name, None),
        fetch=training_sets.fetch,
    ),
    "benchmark": _Kind(
        "Benchmarks",
        folder=lambda name: find_task(name).folder,
        files=lambda name: _files_of(benchmarks.parts(find_task(name))),
        is_here=lambda name: benchmarks.is_here(find_task(name), None),
        fetch=lambda name: made.fetch(find_task(name)),
    ),
}

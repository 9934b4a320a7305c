"""What a table, a benchmark, a training set or a model needs from the hub: models and data, each by its name.

The price of a plan (`price.py`) and `fetch` read the same list.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from atrl_bench.data.dataset import Dataset, is_here, parts_of
from atrl_bench.data.fetch import fetch as fetch_dataset
from atrl_bench.data.repository import Listing, is_downloaded, listing
from atrl_bench.data.sets import TRAINING_SETS, find_set
from atrl_bench.errors import UnknownNameError
from atrl_bench.evaluation.tasks import expand, find_task, list_suites, list_tasks
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.experiments.plan import evaluations_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import find_model, model_ref
from atrl_bench.training.recipe import Recipe, stages_of

ALL = "all"
MODEL = "model"
HEADINGS = {MODEL: "Models", "training set": "Training sets", "benchmark": "Benchmarks"}


class Need(NamedTuple):
    """A model, training set or benchmark."""

    kind: str
    name: str

    @property
    def dataset(self) -> Dataset | None:
        """What it is called among benchmarks or training sets, None for a model."""
        return {"benchmark": find_task, "training set": find_set}[self.kind](self.name) if self.kind != MODEL else None

    @property
    def files(self) -> list[tuple[Listing, list[str]]]:
        """The files that it consists of, by the commits that they are in; asks the hub where a repository is new."""
        if self.dataset is not None:
            return [(listing(part.repository), part.names()) for part in parts_of(self.dataset)]
        ref = model_ref(self.name)
        return [(ref.listing, ref.files)] if ref.listing else []

    @property
    def is_here(self) -> bool:
        """Whether it is in the hub's cache, or laid out beside it."""
        if self.dataset is not None:
            return is_here(self.dataset, None)
        return all(is_downloaded(*files) for files in self.files)

    @property
    def terms(self) -> str | None:
        """The page of its conditions as far as they were read, None where the hub has to be asked for them."""
        dataset = self.dataset
        return dataset.repository.page if dataset and dataset.hub_id and dataset.publication.gated else None

    def data_dir(self, run_dir: RunDir) -> Path | None:
        """The data folder that has it, None where that is the hub's part."""
        return run_dir.data_dir(self.dataset.folder) if self.dataset else None

    def fetch(self) -> None:
        if self.dataset is not None:
            fetch_dataset(self.dataset)
        else:
            find_model(self.name, download=True)


def needs_of(
    models: Iterable[str], recipes: Iterable[Recipe], tasks: Iterable[str], run_dir: RunDir
) -> tuple[Need, ...]:
    """What these need, each once; neither data that is generated nor a model in a folder is needed."""
    needs = [Need(MODEL, model) for model in models if is_on_hub(model)]
    if not run_dir.profile.generated_data:
        trained = [stage.data for recipe in recipes for stage in stages_of(recipe)]
        needs += [Need("training set", data) for data in trained if data in TRAINING_SETS]
        needs += [Need("benchmark", task) for task in tasks]
    return tuple(dict.fromkeys(needs))


def needs_of_name(name: str, run_dir: RunDir) -> tuple[Need, ...]:
    """What `fetch NAME` brings: for a table, task, suite, training set or model, or for `all` tables."""
    tasks = [*(task.name for task in list_tasks()), *(suite.name for suite in list_suites())]
    if name == ALL or name in list_tables():
        tables = list_tables() if name == ALL else [name]
        return tuple(dict.fromkeys(need for table in tables for need in _needs_of_table(table, run_dir)))
    if name in tasks:
        return needs_of((), (), [task.name for task in expand([name])], run_dir)
    if name in TRAINING_SETS:
        return () if run_dir.profile.generated_data else (Need("training set", name),)
    if is_on_hub(name):
        return (Need(MODEL, name),)
    raise UnknownNameError("table, task or training set", name, [*list_tables(), *tasks, *TRAINING_SETS, ALL])


def _needs_of_table(name: str, run_dir: RunDir) -> tuple[Need, ...]:
    table = load_table(name)
    rows = [row for row in table.rows if not (row.served or row.not_measured)]
    models = [run_dir.with_model(table.model_of(row)).profile.model for row in rows]
    return needs_of(models, table.recipes().values(), [item.task for item in evaluations_of(*table.columns)], run_dir)


def is_on_hub(model: str) -> bool:
    return model.count("/") == 1 and not model.startswith((".", "/")) and not Path(model).exists()

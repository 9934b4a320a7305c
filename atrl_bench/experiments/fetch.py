"""Fetch what a table, a benchmark, a training set or a model needs from the hub, and say what is here of it.

Everything comes from pinned commits, is checked, and is unpacked where it is an archive. What is here is not fetched
again; what cannot be fetched is named with the reason and does not keep the rest from coming. The price of a plan
(`price.py`) reads the same list of needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from atrl_bench.data.archives import ENDINGS, SPARE_BYTES
from atrl_bench.data.dataset import Dataset, is_here, parts_of
from atrl_bench.data.fetch import fetch as fetch_dataset
from atrl_bench.data.fetch import forget_layout
from atrl_bench.data.repository import Listing, Repository, listing, may_read
from atrl_bench.data.sets import TRAINING_SETS, find_set
from atrl_bench.errors import AtrlBenchError, NotFetchedError, StoreError, UnknownNameError
from atrl_bench.evaluation.tasks import expand, find_task, list_suites, list_tasks
from atrl_bench.experiments.cost import GB
from atrl_bench.experiments.definition import OWN, as_typed, list_tables, load_table
from atrl_bench.experiments.plan import evaluations_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import find_model, model_ref
from atrl_bench.printable import Block, Command, Record, Rows, counted
from atrl_bench.training.recipe import Recipe, stages_of

HERE, TO_FETCH, MISSING = "here", "to fetch", "missing"
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
        if self.dataset is not None:
            return is_here(self.dataset, None)
        return all(listed.is_here(names) for listed, names in self.files)

    def absent(self) -> dict[tuple[Repository, str], int]:
        """The sizes in bytes of those of its files that are not here."""
        return {
            (listed.repository, file.name): file.size
            for listed, names in self.files
            for file in listed.select(names)
            if not listed.is_here([file.name])
        }

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
        tables = list_tables(OWN) if name == ALL else [name]
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


@dataclass(frozen=True)
class Origin:
    """The files that are needed of one commit of a repository."""

    repository: str
    commit: str
    files: int
    bytes: int


@dataclass(frozen=True)
class StockItem:
    """A model, training set or benchmark, and whether it is on this machine; if it cannot be fetched, why."""

    kind: str
    name: str
    state: str
    origins: tuple[Origin, ...] = ()
    folder: str = ""  # of a data folder that has it
    why: str = ""
    next: str = ""

    @property
    def row(self) -> tuple[str, str, str]:
        gigabytes = sum(origin.bytes for origin in self.origins) / 1e9
        words = [f"{one.repository} at {one.commit[:8]}, {counted(one.files, 'file')}" for one in self.origins]
        details = "; ".join(words) or self.folder
        return self.name, f"{gigabytes:,.2f}" if self.origins else "", f"{self.state}{': ' if details else ''}{details}"


@dataclass(frozen=True)
class Stock(Record):
    """What something needs from the hub, and what of it is on this machine."""

    name: str
    profile: str
    items: tuple[StockItem, ...]
    bytes_to_fetch: int
    bytes_unpacked: int  # of the archives among these, about
    next: str

    @property
    def is_complete(self) -> bool:
        return all(item.state == HERE for item in self.items)

    @property
    def is_fetchable(self) -> bool:
        return any(item.state == TO_FETCH for item in self.items)

    def blocks(self) -> Iterable[Block]:
        if not self.items:
            yield f"{self.name} under profile {self.profile}: nothing is to be fetched."
            yield "Its model is here and its data is generated. For the paper's: --profile paper"
        else:
            num_here = sum(item.state == HERE for item in self.items)
            yield f"{self.name} under profile {self.profile}: {num_here} of {len(self.items)} are here"
        for kind, heading in HEADINGS.items():
            if rows := [item.row for item in self.items if item.kind == kind and (item.origins or item.folder)]:
                yield from ("", heading)
                yield Rows(rows, ("", "GB", ""), right={1})
        if self.bytes_to_fetch:
            yield ""
            unpacked = f", and about {self.bytes_unpacked / 1e9:,.2f} GB unpacked" if self.bytes_unpacked else ""
            yield f"To fetch: {self.bytes_to_fetch / 1e9:,.2f} GB{unpacked}"
        reasons: dict[tuple[str, str], list[str]] = {}
        for item in self.items:
            if item.state == MISSING:
                reasons.setdefault((item.why, item.next), []).append(item.name)
        if reasons:
            yield from ("", "What the hub does not give, and what to do about it")
        for (why, then), names in reasons.items():
            yield Rows([(f"{', '.join(names)}: {why}",), (f"-> {then}",)])
        if self.next:
            yield ""
            yield Command(self.next)


def take_stock(name: str, run_dir: RunDir, *, update: bool = False) -> Stock:
    """What a name, or `all` tables, needs, and what of it is here; `update` moves pins to the latest commits."""
    items: list[StockItem] = []
    absent: dict[tuple[Repository, str], int] = {}
    for need in needs_of_name(name, run_dir):
        try:
            if update:
                _update(need)
            item, files = _stock_item(need, run_dir)
            absent |= files
        except AtrlBenchError as error:
            item = _missing(StockItem(*need, MISSING), error)
        items.append(item)
    unpacked = sum(size for (_, file), size in absent.items() if file.endswith(ENDINGS))
    following = _next_command(name, items, run_dir)
    return Stock(name, run_dir.profile.name, tuple(items), sum(absent.values()), unpacked, following)


def fetch(stock: Stock, run_dir: RunDir, on_item: Callable[[StockItem], None]) -> Stock:
    require_space((stock.bytes_to_fetch + stock.bytes_unpacked) / GB)
    failures: dict[tuple[str, str], AtrlBenchError] = {}
    for item in stock.items:
        if item.state == TO_FETCH:
            on_item(item)
            try:
                Need(item.kind, item.name).fetch()
            except AtrlBenchError as error:
                failures[item.kind, item.name] = error
    now = take_stock(stock.name, run_dir)
    at = [(item, failures.get((item.kind, item.name))) for item in now.items]
    items = tuple(_missing(item, error) if error else item for item, error in at)
    return replace(now, items=items, next=_next_command(stock.name, items, run_dir))


def _stock_item(need: Need, run_dir: RunDir) -> tuple[StockItem, dict[tuple[Repository, str], int]]:
    if need.dataset is not None and (data_dir := need.data_dir(run_dir)) is not None:
        return StockItem(*need, HERE, folder=str(data_dir / need.dataset.folder)), {}
    is_here = need.is_here
    try:
        files = need.files
    except NotFetchedError:  # what was made here may outlive what is known of its sources
        if not is_here:
            raise
        return StockItem(*need, HERE), {}
    origins = tuple(
        Origin(listed.repository.hub_id, listed.commit, len(names), sum(file.size for file in listed.select(names)))
        for listed, names in files
    )
    if is_here:
        return StockItem(*need, HERE, origins), {}
    absent = need.absent()
    lacking = {repository for repository, _ in absent}
    for repository in (listed.repository for listed, _ in files if listed.gated):
        if repository in lacking and not may_read(repository):
            why, then = "Its owner asks for an agreement first.", f"agree on {repository.page}, then: hf auth login"
            return StockItem(*need, MISSING, origins, why=why, next=then), {}
    return StockItem(*need, TO_FETCH, origins), absent


def _missing(item: StockItem, error: AtrlBenchError) -> StockItem:
    why = error.why if isinstance(error, NotFetchedError) else f"{error.what} {error.why}"
    return replace(item, state=MISSING, why=why, next=error.next_step.partition(", or ")[0])


def _update(need: Need) -> None:
    changed = [listed for listed, _ in need.files if listing(listed.repository, update=True).commit != listed.commit]
    if changed and need.dataset is not None:
        forget_layout(need.dataset)


def _next_command(name: str, items: Sequence[StockItem], run_dir: RunDir) -> str:
    if any(item.state != HERE for item in items):
        return f"atrl-bench fetch {as_typed(name)} {run_dir.options}"
    if name == ALL or name in list_tables():
        return f"atrl-bench run-table {as_typed(name)} {run_dir.options}"
    if name in TRAINING_SETS:
        return f"atrl-bench train grpo --set data={name} {run_dir.options}"
    is_model = any(item.kind == MODEL for item in items)
    model, tasks = (name, "geoqa_test") if is_model else (run_dir.profile.model, name)
    return f"atrl-bench evaluate {model} --tasks {tasks} {run_dir.options}"


def free_disk_gb(folder: Path) -> float:
    return shutil.disk_usage(existing(folder)).free / GB


def existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def require_space(gigabytes: float) -> None:
    """Raise `StoreError` where the disk of the hub's cache has no room for so much."""
    from huggingface_hub import constants

    free = max(0.0, free_disk_gb(Path(constants.HF_HOME)) - SPARE_BYTES / GB)
    if gigabytes > free:
        what = f"{gigabytes:,.1f} GB are to be fetched and unpacked, {free:,.1f} GB are free in {constants.HF_HOME}."
        raise StoreError(what, next_step="free space, or set HF_HOME to a folder on a larger disk, then the same again")

"""`atrl-bench push MODEL REPOSITORY`: a checkpoint with its card, and its `.eval_results`, on the hub."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.row_models import names_a_row, row_model
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import find_model
from atrl_bench.models.upload import upload_model
from atrl_bench.printable import Block, Record, counted
from atrl_bench.report.exports import eval_results
from atrl_bench.report.model_card import CARD, card_of
from atrl_bench.results.store import Run, Store


@dataclass(frozen=True)
class PushedModel(Record):
    """Where a checkpoint was sent to."""

    url: str
    files: tuple[str, ...]
    private: bool

    def blocks(self) -> Iterable[Block]:
        """Yield where it is."""
        yield f"Sent {counted(len(self.files), 'file')} to {self.url} ({'private' if self.private else 'public'})."


def push(name: str, hub_id: str, run_dir: RunDir, *, private: bool = True) -> PushedModel:
    """Send a training's checkpoint to a model repository; `name` is TABLE:ROW, TABLE:ROW:SEED or a training's key."""
    with run_dir.open_store(read_only=True) as store:
        run = _training(name, run_dir, store)
        folder = find_model(run_dir.folder_of(run)).folder  # refuses files that have changed
        written = {CARD: card_of(run, run_dir, store).encode()}
        of_model = eval_results(store, run_dir.judge, run_dir.engine).get(folder.name)
    if of_model:
        written[".eval_results/atrl-bench.yaml"] = yaml.safe_dump(of_model, sort_keys=False, width=100).encode()
    url, files = upload_model(folder, written, hub_id, private=private)
    return PushedModel(url, files, private)


def _training(name: str, run_dir: RunDir, store: Store) -> Run:
    run = row_model(name, run_dir, store).run if names_a_row(name) else store.run(name)
    if run is None or run.state != "done":
        raise MissingDataError(
            f"{name} is no finished training in {run_dir.root}.",
            why="Only a trained checkpoint is sent: a base model has a repository of its own.",
            next_step=f"atrl-bench status {run_dir.options}, or name a row: atrl-bench push main_7b:grpo_atrl {name}",
        )
    return run

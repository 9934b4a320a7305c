"""A model card for a checkpoint, and `atrl-bench push MODEL REPOSITORY`, which sends the two to the hub.

The card says what the model was trained on, its numbers with their intervals, and how to redo them. Everything in it
comes from the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.escape import markdown
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.progress import duration, short_label
from atrl_bench.experiments.row_models import names_a_row, row_model
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.checkpoint_store import upload_model
from atrl_bench.models.local import find_model
from atrl_bench.printable import Record
from atrl_bench.report.evaluations import headings
from atrl_bench.report.frame import CellPlace, headline_metric, places_of_cells, score_or_bounds
from atrl_bench.report.page import environment
from atrl_bench.results import numbers
from atrl_bench.results.files import write_texts
from atrl_bench.results.store import Cell, Run, Store
from atrl_bench.version import __version__

CARD = "README.md"  # what the hub shows of a model


def write_cards(run_dir: RunDir, store: Store, target: Path) -> list[Path]:
    runs = [run for run in store.runs() if run.state == "done"]
    if not runs:
        raise MissingDataError(
            f"Nothing in {store.path} is a finished training.",
            why="A card describes a trained model.",
            next_step=f"atrl-bench run-table main_7b {run_dir.options}",
        )
    of_profile = [run for run in runs if run.spec["profile"] == run_dir.profile.name]
    _require_profile(of_profile or runs, run_dir)
    places = list(places_of_cells(run_dir, store))
    paths = []
    for run in of_profile:
        folder = target / "cards" / Path(run.checkpoint).name
        paths += write_texts(folder, {CARD: card_of(run, run_dir, store, places)})
    return paths


def _require_profile(runs: Sequence[Run], run_dir: RunDir) -> None:
    """Raise where the profile is not that of the trainings: a card would name its model, and a wrong command."""
    trained = run_dir.profile.name
    if others := [run.spec["profile"] for run in runs if run.spec["profile"] != trained]:
        raise InvalidFileError(
            f"What was trained under the profile {others[0]} is described under {trained}.",
            why="A card names the profile, its model and the command that trains it again.",
            next_step=f"the same command with --profile {others[0]}",
        )


def card_of(run: Run, run_dir: RunDir, store: Store, places: Iterable[CellPlace] | None = None) -> str:
    places = places_of_cells(run_dir, store) if places is None else places
    own = [place for place in places if place.cell.spec["model_digest"] == run.digest]
    finished = of_one_judge(store.cells(kind="evaluation", state="done"), run_dir.judge, run_dir.engine)
    cells = [cell for cell in finished if cell.spec["model_digest"] == run.digest]
    asked = headings(cells)
    model = run_dir.profile.model
    is_on_hub = not run_dir.profile.generated_data and not Path(model).exists()
    text = (
        environment(str)
        .get_template("card.md.j2")
        .render(
            name=short_label("run", run.spec),
            run=run,
            recipe=yaml.safe_dump(run.spec["recipe"], sort_keys=False, allow_unicode=True).rstrip(),
            taken=duration(run.seconds) if run.seconds else "",
            profile=run_dir.profile,
            base_model=model if is_on_hub else "",
            version=__version__,
            results=sorted(_result(store, cell, asked[cell.key]) for cell in cells),
            commands=_commands(own, run_dir),
        )
    )
    return f"{text}\n"


def _result(store: Store, cell: Cell, asked: str) -> str:
    task, metric = headline_metric(cell)
    estimate, between = score_or_bounds(store, cell, metric)
    where = f"{task.title} ({cell.spec['split']}) | {metric}"
    score, interval = numbers.percent(estimate.mean, 1), numbers.interval(estimate)
    if between is not None:
        score, interval = "none: the judge failed", f"{100 * between[0]:.1f} to {100 * between[1]:.1f}"
    value = f"{score} | {interval} | {estimate.num_problems:,}"
    return f"| {where} | {value} | {markdown(asked)} |"


def _commands(places: Iterable[CellPlace], run_dir: RunDir) -> list[str]:
    tables = dict.fromkeys((p.fields["table"], p.fields["row"], p.fields["seed"]) for p in places)
    options = run_dir.profile.training_option
    return [f"atrl-bench run-table {table} --rows {row} --seeds {seed} {options}" for table, row, seed in tables] or [
        f"atrl-bench train RECIPE {options}    # the recipe above, in a file"
    ]


# push -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PushedModel(Record):
    """Where a checkpoint was sent to."""

    url: str
    files: tuple[str, ...]
    private: bool


def push(name: str, hub_id: str, run_dir: RunDir, *, private: bool = True) -> PushedModel:
    """Send a training's checkpoint to a model repository: that of TABLE:ROW, TABLE:ROW:SEED, a key or a folder."""
    with run_dir.open_store(read_only=True) as store:
        run = _training(name, run_dir, store)
        folder = find_model(run_dir.folder_of(run)).folder  # refuses files that have changed
        card = card_of(run, run_dir, store).encode()
    url, files = upload_model(folder, {CARD: card}, hub_id, private=private)
    return PushedModel(url, files, private)


def _training(name: str, run_dir: RunDir, store: Store) -> Run:
    key = Path(name).name if Path(name).resolve().parent == run_dir.checkpoints.resolve() else name
    run = row_model(name, run_dir, store).run if names_a_row(name) else store.run(key)
    if run is not None:
        _require_profile([run], run_dir)
    if run is None or run.state != "done":
        raise MissingDataError(
            f"{name} is no finished training in {run_dir.root}.",
            why="Only a trained checkpoint is sent: a base model has a repository of its own.",
            next_step=f"atrl-bench status {run_dir.options}, or name a row: main_7b:grpo_atrl",
        )
    return run

"""How far a run folder is: read from the store alone, so that it works beside a running command and after it."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from heapq import heapreplace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import Block, Record, Rows, counted
from atrl_bench.results import write_lock
from atrl_bench.results.store import Progress, Store

if TYPE_CHECKING:
    from rich.table import Table as Grid

SECONDS_BETWEEN_LINES = 5.0
ENOUGH_ROWS = 3  # finished ones, that say how long the others take
SILENT_AFTER = 1200.0  # seconds without a heartbeat after which an unfinished item is called silent


@dataclass(frozen=True)
class ItemStatus:
    """A training run or a cell: its state, and how far it is where it says so."""

    kind: str
    key: str
    name: str
    state: str
    reason: str
    done: int | None
    total: int | None
    seconds_left: float | None
    place: str = ""  # the machine of a cluster that it runs on, or ran on last


@dataclass(frozen=True)
class FolderStatus(Record):
    """Every training run and every cell of a run folder."""

    folder: str
    items: tuple[ItemStatus, ...]

    def blocks(self) -> Iterable[Block]:
        counts = Counter((item.kind, item.state) for item in self.items)
        words = [f"{counted(n, NOUNS[kind])} {state}" for (kind, state), n in sorted(counts.items())]
        yield f"{self.folder}: {', '.join(words) or 'empty'}"
        rows = []
        for item in self.items:
            if item.state in ("running", "silent", "stopped"):
                where = f" on {item.place}" if item.place else ""
                rows.append((item.state + where, f"{item.name}: {item.done} of {item.total}{_left(item.seconds_left)}"))
            elif item.state == "failed":
                rows.append((item.state, f"{item.name}: {item.reason}"))
        yield Rows(rows)
        if any(item.state == "stopped" for item in self.items):
            yield "Nothing is running. The command that began it goes on where it stopped."


NOUNS = {"run": "training", "cell": "evaluation", "measurement": "measurement"}


def read_status(run_dir: RunDir) -> FolderStatus:
    with run_dir.open_store(read_only=True) as store:
        beats = {(beat.kind, beat.key): beat for beat in store.progress()}
        alive = write_lock.is_held(store.path)
        runs, items = store.runs(), []
        trained = {run.key: trained_label(run.spec) for run in runs}
        kinds = ("run", runs), ("measurement", store.measurements()), ("cell", store.cells())
        for kind, one in ((kind, one) for kind, stored in kinds for one in stored):
            beat, state = beats.get((kind, one.key)), one.state
            if state == "pending" and beat is not None:
                is_recent = abs(time.time() - beat.updated) < SILENT_AFTER  # a clock may be set back
                state = ("running" if is_recent else "silent") if alive else "stopped"
            left = beat.seconds_left if beat and state == "running" else None
            how_far = (beat.done, beat.total, left, beat.place) if beat else (None, None, None)
            items.append(ItemStatus(kind, one.key, label(kind, one.spec, trained), state, one.reason, *how_far))
    return FolderStatus(str(run_dir.root), tuple(items))


def label(kind: str, spec: dict[str, Any], trained: Mapping[str, str]) -> str:
    if kind == "measurement":
        return f"{spec['kind']} of {spec['model_name']} on {spec['recipe']['data']}, seed {spec['seed']}"
    if kind == "run":
        return f"train {trained_label(spec)}"
    return f"evaluate {trained.get(spec['model_name'], spec['model_name'])} on {spec['task']}"


def trained_label(spec: dict[str, Any]) -> str:
    recipe = spec["recipe"]
    settings = (recipe.get("credit") or {}).get("settings", {})  # only training on rollouts has credit and a schedule
    words = " ".join([short_label("run", spec), *(f"{name}={value}" for name, value in settings.items())])
    schedule = f", schedule {recipe['schedule']}" if recipe.get("schedule") else ""
    return f"{words}{schedule}, seed {spec['seed']}"


# The settings of a recipe that give it a name of its own; any other is called by its objective.
METHODS = {
    "entropy_fraction": "ft_rl",
    "vppo": "vppo",
    "step_rewards": "step_grpo",
    "temporal": "t_grpo",
    "critic": "actor_critic",
}


def short_label(kind: str, spec: dict[str, Any]) -> str:
    if kind == "cell":
        return str(spec["task"]).split("_")[0]
    recipe = spec["recipe"]
    credit = recipe.get("credit")  # supervised training has none
    special = (name for field, name in METHODS.items() if recipe.get(field) is not None)
    words = [next(special, recipe.get("objective") or recipe["method"])]
    if credit is not None and credit["rule"] != "uniform":
        words.append(credit["rule"] + ("" if credit["preset"] == "default" else f" {credit['preset']}"))
    return "+".join(words)


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f", about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """A length of time in its two largest units: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Watch:
    """Live progress of a running command, by the heartbeats in its store: bars on a terminal, else lines."""

    def __init__(
        self, store: Store, num_jobs: int, num_workers: int = 1, *, noun: str = "rows", quiet: bool = False
    ) -> None:
        self.store, self.num_jobs, self.num_workers, self.noun, self.quiet = store, num_jobs, num_workers, noun, quiet
        self._ended: list[float] = []  # when each row that is done was
        self._labels: dict[tuple[str, str], str] = {}  # of what has run since
        self._started = time.time()
        self._before = {(beat.kind, beat.key): beat.updated for beat in store.progress()}
        self._display = ExitStack()

    @property
    def num_done(self) -> int:
        return len(self._ended)

    def row_done(self) -> None:
        self._ended.append(time.time())

    def __enter__(self) -> Self:
        if not self.quiet:
            from rich.console import Console

            console = Console(stderr=True)
            is_drawn = sys.stderr.isatty() and not console.is_dumb_terminal
            if is_drawn:
                from rich.live import Live

                self._display.enter_context(
                    Live(get_renderable=self.bars, console=console, refresh_per_second=1, transient=True)
                )
            else:
                self._display.enter_context(self._lines())
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    @contextmanager
    def _lines(self) -> Iterator[None]:
        stop = threading.Event()

        def print_until_stopped() -> None:
            while not stop.wait(SECONDS_BETWEEN_LINES):
                print(self.line(), file=sys.stderr, flush=True)

        thread = threading.Thread(target=print_until_stopped, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def line(self) -> str:
        beats = self._beats()
        now = " | ".join(f"{name} {beat.done}/{beat.total}" for name, beat in self._running(beats))
        return f"{self.num_done}/{self.num_jobs} {self.noun}{self._left(beats)} | {now or 'starting'}"

    def bars(self) -> Grid:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        beats = self._beats()
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            self.noun,
            ProgressBar(self.num_jobs, self.num_done, width=30),
            f"{self.num_done}/{self.num_jobs}{self._left(beats)}",
        )
        for name, beat in self._running(beats):
            grid.add_row(name, ProgressBar(beat.total, beat.done, width=30), f"{beat.done}/{beat.total}")
        return grid

    def _beats(self) -> list[Progress]:
        return [beat for beat in self.store.progress() if beat.updated != self._before.get((beat.kind, beat.key))]

    def _running(self, beats: Sequence[Progress]) -> list[tuple[str, Progress]]:
        unfinished = [beat for beat in beats if beat.done < beat.total]
        named = ((self._label(beat), beat) for beat in unfinished[: self.num_workers])
        return [(name, beat) for name, beat in named if name]

    def _label(self, beat: Progress) -> str:
        at = beat.kind, beat.key
        if at not in self._labels:
            record = self.store.run(beat.key) if beat.kind == "run" else self.store.cell(beat.key)
            if record is None:
                return ""
            self._labels[at] = short_label(beat.kind, record.spec)
        return self._labels[at]

    def _left(self, beats: Sequence[Progress]) -> str:
        """How long the rest takes; a worker begins a row when it has ended one, so rows end as they began."""
        now = time.time()
        begun = [*([self._started] * self.num_workers), *self._ended][: self.num_jobs]
        took = [end - start for start, end in zip(begun, self._ended, strict=False)]
        with_speed = [beat for beat in beats if beat.done - beat.start_done > 1 and beat.updated > beat.started]
        trainings = [_training_seconds(beat, begun) for beat in with_speed if beat.kind == "run"]
        of_a_row, running = _row_seconds(took, self.num_workers, trainings), begun[self.num_done :]
        if not running:
            return ", finishing"
        if of_a_row is None:
            return ""
        workers_free = sorted(max(0.0, of_a_row - (now - start)) for start in running)
        for _ in range(self.num_jobs - len(begun)):
            heapreplace(workers_free, workers_free[0] + of_a_row)
        return _left(max(workers_free))


def _row_seconds(took: Sequence[float], num_workers: int, trainings: Sequence[float]) -> float | None:
    """As long as the finished ones took; while these are few, no less than a training and what answering takes.

    A worker's first row has the start of its process in it: alone it tells nothing. A finished row that took less than
    a training will has only answered.
    """
    later = took[num_workers:]
    if len(later) >= ENOUGH_ROWS or not trainings:
        return fmean(later) if later else None
    usual, training = later or took, fmean(trainings)
    answering = [seconds for seconds in usual if seconds < training]
    return max(training + fmean(answering or [0.0]), fmean(usual or [0.0]))


def _training_seconds(beat: Progress, begun: Sequence[float]) -> float:
    """How long a training takes: until its first beat, then by its own speed.

    Its row is the last one that had begun by then.
    """
    start = max((each for each in begun if each <= beat.started), default=begun[0])
    of_a_rollout = (beat.updated - beat.started) / (beat.done - beat.start_done)
    return beat.started - start + of_a_rollout * (beat.total - beat.start_done)

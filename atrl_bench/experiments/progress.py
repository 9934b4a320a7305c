"""How far a run folder is: read from the store alone, so that it works beside a running command and after it."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Self

from atrl_bench.errors import MissingDataError
from atrl_bench.escape import folded
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results.store import Progress, Store

EVERY_ON_TERMINAL, EVERY_ELSEWHERE = 1.0, 5.0  # seconds between two progress lines
SILENT_AFTER = 1200.0  # seconds without a heartbeat after which an unfinished item is called silent


def read_status(run_dir: RunDir) -> dict[str, Any]:
    """Return every training run and every cell of the folder with its state, how far it is and the time left."""
    if not run_dir.store_path.is_file():
        raise MissingDataError(
            f"There is no result store in {run_dir.root}.", next_step=f"atrl-bench run-table main_7b {run_dir.options}"
        )
    with Store.open(run_dir.store_path, read_only=True) as store:
        beats = {(beat.kind, beat.key): beat for beat in store.progress()}
        items = [_item("run", run.key, run.spec, run.state, run.reason, beats) for run in store.runs()]
        items += [_item("cell", cell.key, cell.spec, cell.state, cell.reason, beats) for cell in store.cells()]
    return {"folder": str(run_dir.root), "items": items}


def _item(
    kind: str, key: str, spec: dict[str, Any], state: str, reason: str, beats: dict[tuple[str, str], Progress]
) -> dict[str, Any]:
    beat = beats.get((kind, key))
    if state == "pending" and beat is not None:
        state = "running" if time.time() - beat.updated < SILENT_AFTER else "silent"
    return {
        "kind": kind,
        "key": key,
        "name": label(kind, spec),
        "state": state,
        "reason": reason,
        "done": beat.done if beat else None,
        "total": beat.total if beat else None,
        "seconds_left": beat.seconds_left if beat and state == "running" else None,
    }


def label(kind: str, spec: dict[str, Any]) -> str:
    """Return the name of a run or a cell, from its spec."""
    if kind == "run":
        schedule = spec["recipe"].get("schedule")  # only training on rollouts has one
        with_schedule = f", schedule {schedule}" if schedule else ""
        return f"train {short_label(kind, spec)}{with_schedule}, seed {spec['seed']}"
    return f"evaluate {spec['model_name']} on {spec['task']}"


# The settings of a recipe that give it a name of its own; any other is called by its objective.
METHODS = {
    "entropy_fraction": "ft_rl",
    "vppo": "vppo",
    "step_rewards": "step_grpo",
    "temporal": "t_grpo",
    "critic": "actor_critic",
}


def short_label(kind: str, spec: dict[str, Any]) -> str:
    """Return a name of one or two words for a progress line: the objective with its credit, or the benchmark."""
    if kind == "cell":
        return str(spec["task"]).split("_")[0]
    recipe = spec["recipe"]
    credit = recipe.get("credit")  # supervised training has none
    special = (name for field, name in METHODS.items() if recipe.get(field) is not None)
    words = [next(special, recipe.get("objective") or recipe["method"])]
    if credit is not None and credit["rule"] != "uniform":
        words.append(credit["rule"] + ("" if credit["preset"] == "default" else f" {credit['preset']}"))
    return "+".join(words)


def status_text(status: dict[str, Any]) -> str:
    """Return the status as a person reads it: what runs and what failed by name, the rest as counts."""
    items = status["items"]
    counts: dict[str, int] = {}
    for item in items:
        counts[f"{item['kind']}s {item['state']}"] = counts.get(f"{item['kind']}s {item['state']}", 0) + 1
    said = ", ".join(f"{n} {what}" for what, n in sorted(counts.items())) or "empty"
    lines = folded(f"{status['folder']}: {said}", rest="  ")
    for item in items:
        if item["state"] in ("running", "silent"):
            share = f"{item['done']} of {item['total']}"
            said = f"{item['name']}: {share}{_left(item['seconds_left'])}"
            lines += folded(said, first=f"  {item['state']:<8} ", rest=" " * 11)
        elif item["state"] == "failed":
            lines += folded(f"{item['name']}: {item['reason']}", first="  failed   ", rest=" " * 11)
    return "\n".join(lines)


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f", about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """Return a length of time in its two largest units: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Watch:
    """Live progress of a running command: one line rewritten on a terminal, one line every few seconds elsewhere.

    A thread reads the heartbeats that the work writes to the store, in this process or in others.
    """

    def __init__(
        self, store: Store, num_jobs: int, num_workers: int = 1, *, noun: str = "rows", quiet: bool = False
    ) -> None:
        self.store, self.num_jobs, self.num_workers, self.noun = store, num_jobs, num_workers, noun
        self.num_done = 0
        self._live = sys.stderr.isatty()
        self._started = time.time()
        self._stop = threading.Event()
        self._thread = None if quiet else threading.Thread(target=self._show_until_stopped, daemon=True)

    def __enter__(self) -> Self:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
            if self._live:
                print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _show_until_stopped(self) -> None:
        while not self._stop.wait(EVERY_ON_TERMINAL if self._live else EVERY_ELSEWHERE):
            if self._live:
                print(f"\r\033[K{self.line()[:79]}", end="", file=sys.stderr, flush=True)
            else:
                print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """Return one line: rows done, what runs now and how far it is, the time left."""
        recent = [beat for beat in self.store.progress() if beat.updated > self._started and beat.done < beat.total]
        specs = {run.key: run.spec for run in self.store.runs()} | {cell.key: cell.spec for cell in self.store.cells()}
        now = [
            f"{short_label(beat.kind, specs[beat.key])} {beat.done}/{beat.total}"
            for beat in recent[: self.num_workers]
            if beat.key in specs
        ]
        trained = sum(beat.done / beat.total for beat in recent if beat.kind == "run")
        return f"{self.num_done}/{self.num_jobs} {self.noun}{self._left(trained)} | {' | '.join(now) or 'starting'}"

    def _left(self, trained: float) -> str:
        # A row's time is its training's; evaluating it adds little.
        finished = self.num_done + trained
        if not finished:
            return ""
        seconds = (time.time() - self._started) / finished * (self.num_jobs - finished)
        return f", about {duration(seconds)} left"

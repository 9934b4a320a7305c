"""How far a run folder is: read from the store alone, so that it works beside a running command and after it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from atrl_bench.errors import MissingDataError
from atrl_bench.results.store import Progress, Store

SILENT_AFTER = 1200.0  # seconds without a heartbeat after which an unfinished item is called silent


def read_status(root: Path) -> dict[str, Any]:
    """Return every training run and every cell of the folder with its state, how far it is and the time left."""
    path = root / "store.sqlite"
    if not path.is_file():
        raise MissingDataError(
            f"There is no result store in {root}.", next_step=f"atrl-bench run-table main_7b --out {root}"
        )
    with Store.open(path, read_only=True) as store:
        beats = {(beat.kind, beat.key): beat for beat in store.progress()}
        items = [_item("run", run.key, run.spec, run.state, run.reason, beats) for run in store.runs()]
        items += [_item("cell", cell.key, cell.spec, cell.state, cell.reason, beats) for cell in store.cells()]
    return {"folder": str(root), "items": items}


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
    """Return the short name of a run or a cell, from its spec."""
    if kind == "run":
        recipe = spec.get("recipe", {})
        return f"train {recipe.get('name', '?')}, credit {_credit_name(recipe.get('credit'))}, seed {spec.get('seed')}"
    return f"{spec.get('task', '?')} of {spec.get('model_name', '?')}"


def _credit_name(credit: Any) -> str:
    if isinstance(credit, dict):
        return " ".join(str(credit[name]) for name in ("rule", "preset") if credit.get(name))
    return str(credit)


def status_text(status: dict[str, Any]) -> str:
    """Return the status as a person reads it: what runs and what failed by name, the rest as counts."""
    items = status["items"]
    counts: dict[str, int] = {}
    for item in items:
        counts[f"{item['kind']}s {item['state']}"] = counts.get(f"{item['kind']}s {item['state']}", 0) + 1
    lines = [f"{status['folder']}: " + (", ".join(f"{n} {what}" for what, n in sorted(counts.items())) or "empty")]
    for item in items:
        if item["state"] in ("running", "silent"):
            share = f"{item['done']} of {item['total']}"
            lines.append(f"  {item['state']:<8} {item['name']}: {share}{_left(item['seconds_left'])}")
        elif item["state"] == "failed":
            lines.append(f"  failed   {item['name']}: {item['reason']}")
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
    """Live progress of a running command: one line that is rewritten on a terminal, one line every few seconds elsewhere.

    Everything shown is read from the store, where the workers write their heartbeats.
    """

    def __init__(self, store: Store, names: Sequence[str], num_workers: int, *, quiet: bool = False) -> None:
        self.store, self.num_jobs, self.num_workers = store, len(names), num_workers
        self.quiet, self.live = quiet, sys.stderr.isatty()
        self.every = 1.0 if self.live else 5.0
        self.started = time.time()
        self.shown = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.live and self.shown and not self.quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def show(self, num_done: int) -> None:
        """Print how far the jobs are, if the last line is old enough."""
        if self.quiet or time.time() - self.shown < self.every:
            return
        self.shown = time.time()
        line = self.line(num_done)
        print(f"\r\033[K{line[:79]}" if self.live else line, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def line(self, num_done: int) -> str:
        """Return one line: rows done, what runs now and how far it is, the time left."""
        recent = [beat for beat in self.store.progress() if beat.updated > self.started and beat.done < beat.total]
        specs = {run.key: run.spec for run in self.store.runs()} | {cell.key: cell.spec for cell in self.store.cells()}
        now = [
            f"{short_label(beat.kind, specs[beat.key])} {beat.done}/{beat.total}"
            for beat in recent[: self.num_workers]
            if beat.key in specs
        ]
        return f"{num_done}/{self.num_jobs} rows{self._left(num_done)} | {' | '.join(now) or 'starting'}"

    def _left(self, num_done: int) -> str:
        # Rows cost about the same, so the mean of those done foretells the rest.
        if not num_done:
            return ""
        seconds = (time.time() - self.started) / num_done * (self.num_jobs - num_done)
        return f", about {duration(seconds)} left"


def short_label(kind: str, spec: dict[str, Any]) -> str:
    """Return a name of one or two words for a progress line."""
    if kind == "run":
        recipe = spec.get("recipe", {})
        credit = recipe.get("credit", {})
        plus = "" if credit.get("rule") == "uniform" else f"+{credit.get('rule')}"
        return f"{recipe.get('name', '?')}{plus}"
    return str(spec.get("task", "?")).split("_")[0]

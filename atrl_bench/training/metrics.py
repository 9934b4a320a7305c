"""The metrics of a run: one JSON line per optimiser step, and what a table says about a run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from atrl_bench.digests import plain
from atrl_bench.errors import InvalidFileError


class MetricsFile:
    """Has a line per optimiser step; lines after the checkpoint that a run resumes from are dropped first."""

    def __init__(self, path: Path, updates_per_rollout: int, *, first_step: int) -> None:
        self._path = path
        self._updates_per_rollout = updates_per_rollout
        kept = [line for line in read_metrics(path) if line["step"] <= first_step]
        self.seconds_before = float(kept[-1]["elapsed"]) if kept else 0.0
        self._started = time.monotonic()
        path.write_text("".join(_line(line) for line in kept), encoding="utf-8")

    def write(self, line: dict[str, Any]) -> None:
        elapsed = self.seconds_before + time.monotonic() - self._started
        rollout = (line["step"] - 1) // self._updates_per_rollout
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line({"step": line["step"], "rollout": rollout, "elapsed": round(elapsed, 3)} | line))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a metrics file; a kill may have cut the last one short."""
    written, lines = path.read_bytes().splitlines() if path.is_file() else [], []
    for number, line in enumerate(written, 1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            if number < len(written):
                what, then = f"{path}:{number} is no line of metrics.", f"edit {path} at line {number}"
                raise InvalidFileError(what, why=str(error), next_step=f"{then}, or take the file away") from None
    return lines


def summarise(path: Path, num_rollouts: int) -> dict[str, Any]:
    """What a table says about a run: accuracy and KL at its start and end, anchor AUC, seconds per phase."""
    lines = read_metrics(path)
    rollouts = [line for line in lines if "reward" in line]
    first, last = rollouts[:num_rollouts], rollouts[-num_rollouts:]
    summary: dict[str, Any] = {"num_rollouts": len(rollouts), "num_updates": len(lines)}
    summary["accuracy"] = _mean(rollouts, "accuracy")  # over the whole training: how fast it learned
    summary["late accuracy"] = _mean(rollouts[len(rollouts) // 2 :], "accuracy")  # and how well, by many answers
    rewards = {name for line in rollouts for name in line if re.fullmatch("rewards/.+/mean", name)}
    others = sorted(rewards - {"rewards/accuracy/mean"})  # which `accuracy` says in plainer words
    for name in ("accuracy", *others, "completions/mean_length", "frac_reward_zero_std"):
        summary[f"first {name}"], summary[f"last {name}"] = _mean(first, name), _mean(last, name)
    # The last two are DPO's: how far apart policy and reference see right and wrong, and how often the right way round.
    for name in (
        *("kl", "entropy", "clip_ratio/region_mean", "critic/explained_variance"),
        *("rewards/margins", "rewards/accuracies"),
    ):
        summary[f"last {name}"] = _mean(lines[-num_rollouts:], name)
    names = {
        name
        for line in lines
        for name in line
        if name.startswith(("credit/", "dynamic_sampling/", "vppo/", "loss/", "looking/"))
    }
    summary |= {name: _mean(lines, name) for name in sorted(names)}
    # The greedy path at its worst says what an average hides; drift adds up.
    if greedy := _values(lines, "check/greedy"):
        summary |= {"worst greedy": min(greedy), "last greedy": greedy[-1], "mean greedy": sum(greedy) / len(greedy)}
    if readable := _values(lines, "check/readable"):
        summary["worst readable"] = min(readable)
    if drifts := _values(lines, "check/drift"):
        summary["last drift"] = drifts[-1]
    summary["skipped_updates"] = sum(line.get("skipped_updates", 0.0) for line in lines)
    phases = {name for line in lines for name in line if name.startswith("seconds/")}
    summary |= {name: sum(line.get(name, 0.0) for line in lines) for name in sorted(phases)}
    return {name: value for name, value in summary.items() if value is not None}


def _mean(lines: Iterable[dict[str, Any]], name: str) -> float | None:
    values = _values(lines, name)
    return sum(values) / len(values) if values else None


def _values(lines: Iterable[dict[str, Any]], name: str) -> list[float]:
    return [line[name] for line in lines if isinstance(line.get(name), int | float)]


def _line(content: dict[str, Any]) -> str:
    return json.dumps(plain(content)) + "\n"

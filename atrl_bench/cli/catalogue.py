"""What there is to run: tables, figures, recipes, tasks, credit rules and more, each with a line of text.

A task's line says more: its split and size, how it is scored, what it needs, and whether this machine has its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from atrl_bench.errors import UnknownNameError

Entries = dict[str, Any]


def _tables() -> Entries:
    return _of_kind("table")


def _ablations() -> Entries:
    return _of_kind("ablation")


def _figures() -> Entries:
    from atrl_bench.report.figures import list_figures

    return list_figures()


def _of_kind(kind: str) -> Entries:
    from atrl_bench.experiments.definition import list_tables, load_table

    tables = [load_table(name) for name in list_tables()]
    return {table.id: table.title for table in tables if table.kind == kind}


def _recipes() -> Entries:
    from atrl_bench.training.recipe import list_recipes, load_recipe

    return {name: load_recipe(name).title for name in list_recipes()}


def _sweeps() -> Entries:
    from atrl_bench.experiments.sweep import list_sweeps, load_sweep

    return {name: load_sweep(name).title for name in list_sweeps()}


def _tasks(data_dir: Path | None = None) -> Entries:
    from atrl_bench.evaluation.data import is_here
    from atrl_bench.evaluation.tasks import list_suites, list_tasks
    from atrl_bench.mini import SYNTHETIC_BENCHMARKS

    benchmarks = {benchmark.folder for benchmark in SYNTHETIC_BENCHMARKS.values()}
    tasks: Entries = {
        info.name: {
            "title": info.title,
            "split": info.split,
            "rows": info.num_rows,
            "metric": info.metric,
            "media": info.media,
            "needs": list(info.needs),
            "hub": info.hub_id,
            "here": is_here(info, data_dir),
            "twin": info.folder in benchmarks,
        }
        for info in list_tasks()
    }
    suites = {suite.name: {"title": suite.title, "mean_of": list(suite.tasks)} for suite in list_suites()}
    return dict(sorted({**tasks, **suites}.items()))


def _credit() -> Entries:
    from atrl_bench.credit import RULES

    return {name: (rule.__doc__ or "").strip().splitlines()[0] for name, rule in RULES.items()}


def _profiles() -> Entries:
    from atrl_bench.profiles import list_profiles, load_profile

    return {name: load_profile(name).title for name in list_profiles()}


KINDS: dict[str, Callable[[], Entries]] = {
    "tables": _tables,
    "ablations": _ablations,
    "figures": _figures,
    "recipes": _recipes,
    "sweeps": _sweeps,
    "tasks": _tasks,
    "credit": _credit,
    "profiles": _profiles,
}


def read(kind: str | None = None, data_dir: Path | None = None) -> dict[str, Entries]:
    """Return the known names of `kind`, or of every kind, each with what is to be said of it.

    With `data_dir`, a task's rows are looked for there instead of among the hub's downloads.
    """
    if kind is not None and kind not in KINDS:
        raise UnknownNameError("kind of thing to list", kind, KINDS)
    kinds = {name: entries for name, entries in KINDS.items() if kind in (None, name)}
    return {name: _tasks(data_dir) if name == "tasks" else entries() for name, entries in kinds.items()}


def text(known: dict[str, Entries]) -> str:
    """Return the names as a person reads them, eighty columns wide."""
    blocks = []
    for kind, entries in known.items():
        if kind == "tasks":
            blocks.append(_tasks_text(entries))
            continue
        width = max(map(len, entries), default=0)
        lines = [f"  {name:<{width}}  {_cut(line, 76 - width)}" for name, line in entries.items()]
        blocks.append("\n".join([kind, *lines]))
    return "\n\n".join(blocks)


def _tasks_text(tasks: Entries) -> str:
    width = max(map(len, tasks))
    splits = max(len(task["split"]) for task in tasks.values() if "split" in task)
    head = f"  {'':<{width}}  {'split':<{splits}} {'rows':>5}  {'here':<4}  "
    lines = ["tasks", head + "scored by; needs"]
    for name, task in tasks.items():
        if "mean_of" in task:
            others = ", ".join(part.removeprefix(f"{name}_") for part in task["mean_of"])
            lines.append(f"  {name:<{width}}  the mean of {_cut(others, 63 - width)}")
        else:
            here = "yes" if task["here"] else "no"
            said = "; ".join([task["metric"], *task["needs"]])
            lines.append(
                f"  {name:<{width}}  {task['split']:<{splits}} {task['rows']:>5}  {here:<4}  "
                + _cut(said, 61 - width - splits)
            )
    return "\n".join([*lines, "  All run on a generated twin of the same form with --profile mini."])


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"

"""What there is to run: tables, recipes, tasks, credit rules and profiles, each with a line of text."""

from __future__ import annotations

from collections.abc import Callable

from atrl_bench.errors import UnknownNameError

Entries = dict[str, str]


def _tables() -> Entries:
    from atrl_bench.tables.definition import list_tables, load_table

    return {name: load_table(name).title for name in list_tables()}


def _recipes() -> Entries:
    from atrl_bench.training.recipe import list_recipes, load_recipe

    return {name: load_recipe(name).title for name in list_recipes()}


def _tasks() -> Entries:
    from atrl_bench.evaluation.benchmarks import list_tasks

    return {info.name: info.title for info in list_tasks()}


def _credit() -> Entries:
    from atrl_bench.credit import RULES

    return {name: (rule.__doc__ or "").strip().splitlines()[0] for name, rule in RULES.items()}


def _profiles() -> Entries:
    from atrl_bench.profiles import list_profiles, load_profile

    return {name: load_profile(name).title for name in list_profiles()}


KINDS: dict[str, Callable[[], Entries]] = {
    "tables": _tables,
    "recipes": _recipes,
    "tasks": _tasks,
    "credit": _credit,
    "profiles": _profiles,
}


def read(kind: str | None = None) -> dict[str, Entries]:
    """Return the known names of `kind`, or of every kind, each with its line of text."""
    if kind is not None and kind not in KINDS:
        raise UnknownNameError("kind of thing to list", kind, KINDS)
    return {name: entries() for name, entries in KINDS.items() if kind in (None, name)}


def text(known: dict[str, Entries]) -> str:
    """Return the names as a person reads them, eighty columns wide."""
    blocks = []
    for kind, entries in known.items():
        width = max(map(len, entries), default=0)
        lines = [f"  {name:<{width}}  {_cut(line, 76 - width)}" for name, line in entries.items()]
        blocks.append("\n".join([kind, *lines]))
    return "\n\n".join(blocks)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"

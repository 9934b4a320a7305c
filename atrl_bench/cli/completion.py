"""What a shell offers after Tab: tables, rows, tasks, recipes and profiles.

Of several names with commas between, the last is completed. Nothing heavy is imported: Tab has to answer at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import typer


def tables(incomplete: str) -> list[str]:
    from atrl_bench.experiments.definition import list_tables
    from atrl_bench.lab.signal.tables import list_signal_tables

    return _matching(incomplete, ["all", *list_tables(), *list_signal_tables()])


def rows(context: typer.Context, incomplete: str) -> list[str]:
    from atrl_bench.experiments.definition import list_tables, load_table

    # An option that waits for its value leaves the line unparsed: its words are then all among the arguments.
    names = [str(value) for value in (*context.params.values(), *context.args) if value in list_tables()]
    return _matching(incomplete, [row.id for name in names[:1] for row in load_table(name).rows])


def tasks(incomplete: str) -> list[str]:
    from atrl_bench.evaluation.tasks import list_suites, list_tasks

    return _matching(incomplete, [*(task.name for task in list_tasks()), *(suite.name for suite in list_suites())])


def recipes(incomplete: str) -> list[str]:
    from atrl_bench.training.recipe import list_recipes

    return _matching(incomplete, list_recipes())


def profiles(incomplete: str) -> list[str]:
    from atrl_bench.profiles import list_profiles

    return _matching(incomplete, list_profiles())


def row_models(incomplete: str) -> list[str]:
    """Tables, and behind a table's name and a colon its rows."""
    from atrl_bench.experiments.definition import list_tables, load_table

    table, colon, _ = incomplete.partition(":")
    if colon and table in list_tables():
        return _matching(incomplete, [f"{table}:{row.id}" for row in load_table(table).rows])
    return _matching(incomplete, [f"{name}:" for name in list_tables()])


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

"""What there is to run: tables, figures, recipes, tasks, credit rules and more, each with a line of text.

A task's line says more: its split and size, how it is scored, what it needs, and whether this machine has its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.data.dataset import is_here
from atrl_bench.data.layout import holding
from atrl_bench.errors import PluginError, UnknownNameError
from atrl_bench.evaluation.tasks import list_suites, list_tasks
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.lab.signal.tables import list_signal_tables, load_signal_table
from atrl_bench.mini import CODE_WORDS
from atrl_bench.mini.benchmarks import SYNTHETIC_BENCHMARKS
from atrl_bench.papers.paper import list_papers, load_paper
from atrl_bench.plugins import package_of, plugins, summary_of
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.profiles import list_profiles, load_profile
from atrl_bench.report.figures import FIGURES
from atrl_bench.training.recipe import list_recipes, load_recipe

RUNS = (
    "runs: mini = here and now, on generated rows of the same form (profiles mini and smoke); real = on its own rows, "
    "which are on this machine, too; no = its rows have to come from --data-dir or `atrl-bench fetch`"
)
Entry = str | dict[str, Any]  # a line of text, or what is said of a task or a suite


@dataclass(frozen=True)
class Catalogue(Record):
    """The names of each kind, each with what is to be said of it."""

    kinds: dict[str, dict[str, Entry]]

    def blocks(self) -> Iterable[Block]:
        for number, (kind, entries) in enumerate(self.kinds.items()):
            yield from ("", kind) if number else (kind,)
            head = ("", "split", "rows", "runs", "scored by; needs") if kind == "tasks" else ()
            # Of everything a line each, of one kind all that is said.
            rows = [_row(name, entry) for name, entry in entries.items()]
            yield Rows(rows, head, right=(2,), cut=len(self.kinds) > 1)
            if kind == "tasks":
                yield RUNS


def _row(name: str, entry: Entry) -> tuple[str, ...]:
    if isinstance(entry, str):
        return name, entry
    if "mean_of" in entry:
        return name, f"the mean of {', '.join(part.removeprefix(f'{name}_') for part in entry['mean_of'])}"
    runs = "real" if entry["here"] else "mini" if entry["twin"] else "no"
    return name, entry["split"], str(entry["rows"]), runs, "; ".join([entry["metric"], *entry["needs"]])


def _tables(kind: str) -> dict[str, Entry]:
    signals = map(load_signal_table, list_signal_tables() if kind == "table" else ())
    entries: dict[str, Entry] = {
        table.id: table.title for table in map(load_table, list_tables()) if table.kind == kind
    }
    return entries | {table.id: table.title for table in signals}


def _tasks(data_dir: Path | None) -> dict[str, Entry]:
    generated = {*(benchmark.folder for benchmark in SYNTHETIC_BENCHMARKS.values()), *CODE_WORDS}
    entries: dict[str, Entry] = {
        task.name: {name: getattr(task, name) for name in ("title", "split", "metric", "media", "needs")}
        | {"rows": task.num_rows, "hub": task.hub_id, "here": is_here(task, holding(data_dir, task.folder))}
        | {"twin": task.folder in generated}  # can be generated
        for task in list_tasks()
    }
    entries |= {suite.name: {"title": suite.title, "mean_of": list(suite.tasks)} for suite in list_suites()}
    return dict(sorted(entries.items()))


def read_rows(table: str) -> Catalogue:
    lines: dict[str, Entry] = {}
    for row in load_table(table).rows:
        served = f"served as {row.served}" if row.served else "the base model, untrained"
        trained = f"recipe {row.recipe}, credit {row.credit.rule}" if row.recipe else ""
        lines[row.id] = f"{row.label}: {trained or row.not_measured or served}"
    return Catalogue({f"rows of {table}": lines})


def _rules() -> dict[str, Entry]:
    from atrl_bench.credit.rules import credit_rule, rule_names

    entries: dict[str, Entry] = {}
    for rule in rule_names():
        try:
            text = summary_of("rules", rule) if rule in plugins("rules") else credit_rule(rule).__doc__
            described = (text or "no description").strip().splitlines()[0].removeprefix("Returns ")
        except PluginError as error:  # the others can be listed all the same
            entries[rule] = f"{error.what} {error.why}"
        else:
            package = f"package {package_of(plugins('rules')[rule])}: " if rule in plugins("rules") else ""
            entries[rule] = package + described
    return entries


def read(kind: str | None = None, data_dir: Path | None = None) -> Catalogue:
    """The names of `kind`, or of every kind; a task's rows are looked for in `data_dir`, then among downloads."""
    readers: dict[str, Callable[[], dict[str, Entry]]] = {
        "tables": lambda: _tables("table"),
        "ablations": lambda: _tables("ablation"),
        "papers": lambda: {name: load_paper(name).title for name in list_papers()},
        "figures": lambda: dict(FIGURES),
        "recipes": lambda: {name: load_recipe(name).title for name in list_recipes()},
        "tasks": lambda: _tasks(data_dir),
        "rules": _rules,
        "profiles": lambda: {name: load_profile(name).title for name in list_profiles()},
    }
    if kind is not None and kind not in readers:
        raise UnknownNameError("kind of thing to list", kind, [*readers, "rows"])
    return Catalogue({name: entries() for name, entries in readers.items() if kind in (None, name)})

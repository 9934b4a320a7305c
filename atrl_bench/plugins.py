"""What other installed packages add, named in their `pyproject.toml`: credit rules, tasks, recipes, papers, own code.

    [project.entry-points."atrl_bench.rules"]
    squared = "sharper.rules:squared"      # a function, or an object that can be called
    [project.entry-points."atrl_bench.recipes"]
    sharper = "sharper.recipes"            # a package, whose folder has the YAML files; so for tasks and papers

Nothing of another package is imported before it is used. Names that are shipped here stay what they are.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from atrl_bench.digests import file_digest
from atrl_bench.errors import PluginError
from atrl_bench.resources import folder

Group = Literal["rules", "tasks", "recipes", "papers", "rewards", "losses", "advantages"]
FOLDERS = "ATRL_BENCH_PAPERS"  # folders besides those shipped or installed; processes that are started have it, too


@cache  # the metadata of every installed package is read: once for all groups
def _all_entry_points() -> Any:  # Python 3.11 has its own class for this
    return entry_points()


@cache
def plugins(group: Group) -> dict[str, EntryPoint]:
    """By their names; two packages that have one name are an error."""
    entries: dict[str, EntryPoint] = {}
    of_group: Iterable[EntryPoint] = _all_entry_points().select(group=f"atrl_bench.{group}")
    for entry in sorted(of_group, key=lambda entry: (entry.name, package_of(entry))):
        if (other := entries.setdefault(entry.name, entry)).value != entry.value:
            raise PluginError(
                f"Packages {package_of(other)} and {package_of(entry)} both have {entry.name!r} in atrl_bench.{group}.",
                why="One name has to mean one thing.",
                next_step=f"pip uninstall {package_of(entry)}",
            )
    return entries


def package_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def load_plugin(group: Group, name: str) -> Any:
    entry = plugins(group)[name]
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise _broken(entry, f"{type(error).__name__}: {error}") from error


def summary_of(group: Group, name: str) -> str | None:
    """What the function behind a name says of itself, read from its file: whoever lists it runs nothing of it."""
    entry = plugins(group)[name]
    try:
        tree = ast.parse(_file(entry).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise _broken(entry, f"{type(error).__name__}: {error}") from error
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == entry.attr]
    return ast.get_docstring(named[0]) if named else None


def code_of(group: Group, name: str) -> str | None:
    """The hash of the code behind a name, None if no other package has it; nothing of it is run."""
    return file_digest(files_with(_file(plugins(group)[name]))) if name in plugins(group) else None


def files_with(module: Path) -> list[Path]:
    """All Python files of the package that a module is in, which it may import; else the one file that it is."""
    return sorted(module.parent.rglob("*.py")) if (module.parent / "__init__.py").is_file() else [module]


def files_of(group: Group, shipped: Path, pattern: str = "*.yaml") -> dict[str, Path]:
    """The files in our folder and in those of other packages, by name; a name that both have is an error."""
    files = {path.stem: path for path in sorted(shipped.glob(pattern))}
    for entry in plugins(group).values():
        for path in sorted(_folder(entry).glob(pattern)):
            if files.setdefault(path.stem, path) != path:
                raise _broken(entry, f"It has {path}, and {files[path.stem]} has that name already.")
    return files


def paper_folders() -> dict[str, Path]:
    """Every paper's folder by its name: those shipped here, of other packages, and named by `FOLDERS` or `--paper`."""
    folders = {path.parent.name: path.parent for path in sorted(folder("reports").glob("*/paper.yaml"))}
    for name, entry in plugins("papers").items():
        if folders.setdefault(name, _folder(entry)) != _folder(entry):
            raise _broken(entry, f"It calls something {name!r}, which {folders[name]} is called already.")
    return folders | given_papers()


def given_papers() -> dict[str, Path]:
    """The papers that no package has: a command that is typed anew has to name their folders."""
    return {Path(path).name: Path(path) for path in filter(None, os.environ.get(FOLDERS, "").split(os.pathsep))}


def check_names(group: Group, names: Iterable[str]) -> None:
    """Raise if another package gives one of our own names to something of its own."""
    for name in plugins(group).keys() & set(names):
        raise _broken(plugins(group)[name], f"It calls something {name!r}, which atrl-bench has itself.")


def _folder(entry: EntryPoint) -> Path:
    return _file(entry).parent


def _file(entry: EntryPoint) -> Path:
    """The file of a plug-in's module; of a folder without code, a file that it could have."""
    try:
        spec = importlib.util.find_spec(entry.module)
    except Exception as error:  # a parent package is imported on the way
        raise _broken(entry, f"{type(error).__name__}: {error}") from error
    if spec is None:
        raise _broken(entry, f"There is no module {entry.module}.")
    for place in spec.submodule_search_locations or ():
        return Path(place) / "__init__.py"
    if spec.origin is None:
        raise _broken(entry, f"{entry.module} is in no folder.")
    return Path(spec.origin)


def _broken(entry: EntryPoint, why: str) -> PluginError:
    package = package_of(entry)
    return PluginError(
        f"Package {package} is installed, and its entry point {entry.name} = {entry.value} in {entry.group} is broken.",
        why=why,
        next_step=f"mend or update {package}, or do without it: pip uninstall {package}",
    )

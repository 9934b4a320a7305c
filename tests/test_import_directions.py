"""The house as an import graph: which room may use which, with no exception, and no circle inside a room."""

import ast
from collections import defaultdict
from collections.abc import Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import atrl_bench

PACKAGE = Path(atrl_bench.__file__).parent
LEAVES = {
    "errors",
    "resources",
    "version",
    "settings",
    "profiles",
    "digests",
    "escape",
    "printable",
    "plugins",
    "locks",
}
# Each room with the rooms it may use, the deepest first. The objective never sees how credit is computed: a recipe
# names a rule, and the trainer multiplies its result.
ROOMS = {
    "credit": set(),
    "results": set(),
    "sandbox": set(),
    "data": {"sandbox"},
    "models": {"data", "sandbox", "results"},
    "grading": {"models", "sandbox", "results"},
    "mini": {"models"},
    "engines": {"credit"},
    "evaluation": {"engines", "grading", "models", "data", "sandbox", "results"},
    "training": {"engines", "credit", "grading", "models", "data", "results"},
    "experiments": {
        "credit",
        "evaluation",
        "training",
        "grading",
        "models",
        "data",
        "sandbox",
        "results",
        "mini",
        "engines",
    },
}
ROOMS["papers"] = {*ROOMS}
ROOMS["analysis"] = {*ROOMS}
ROOMS["report"] = {*ROOMS}
ROOMS["lab"] = {*ROOMS, "report"}
ROOMS["cli"] = {*ROOMS, "lab"}
# A function may import these, which take long to load, and modules of ours that cannot do without them. Everything else
# is imported at the top, except by the command line, whose `--help` loads nothing.
HEAVY = {
    *("torch", "transformers", "trl", "lmms_eval", "matplotlib", "datasets", "peft", "accelerate", "huggingface_hub"),
    *("httpx", "numpy", "pyarrow", "rapidfuzz"),
}
LEAF_IMPORTS = {
    "profiles": {"errors", "resources", "settings"},
    "settings": {"errors"},
    "printable": {"digests"},
    "plugins": {"errors", "digests", "resources"},
    "digests": {"resources"},
    "locks": {"errors"},
    "errors": set(),
    "resources": set(),
    "version": set(),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py")) if "_shipped" not in path.parts}


def imports_of(module: str, *, types: bool = True, functions: bool = True) -> set[str]:
    """Return what a module imports: modules of ours by their names in the package, libraries by their first name.

    `types` counts what only a type checker imports, `functions` what is imported when a function runs.
    """
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    hidden = [node for node in ast.walk(tree) if not types and _is_for_types(node)]
    hidden += [node for node in ast.walk(tree) if not functions and isinstance(node, ast.FunctionDef)]
    return _imported(tree, {id(node) for one in hidden for node in ast.walk(one)}) - {module}


def _imported(tree: ast.AST, left_out: Set[int] = frozenset()) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if id(node) in left_out or not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in [above + alias.name for alias in node.names]:
            first, _, inner = name.partition(".")
            ours = [m for m in (inner, inner.rpartition(".")[0]) if m in FILES] if first == "atrl_bench" else [first]
            found |= set(ours[:1])
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def room_of(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_what_its_room_may(module):
    room = room_of(module)
    if room in ("", "__main__"):
        return
    allowed = LEAF_IMPORTS.get(room, LEAVES) if room in LEAVES else LEAVES | ROOMS[room] | {room}
    wrong = {name for name in imports_of(module) & FILES.keys() if room_of(name) not in allowed}
    assert not wrong, f"{module} imports {wrong}"


def test_no_modules_import_each_other_in_a_circle_not_even_inside_functions_or_for_types():
    TopologicalSorter({module: imports_of(module) & FILES.keys() for module in FILES}).prepare()


@cache
def heavy_modules() -> set[str]:
    """Return the modules of ours that load one of the heavy libraries as soon as they are imported."""
    graph = {module: imports_of(module, types=False, functions=False) for module in FILES}
    heavy = set(HEAVY)
    while more := {module for module, names in graph.items() if names & heavy} - heavy:
        heavy |= more
    return heavy


@pytest.mark.parametrize("module", [module for module in FILES if room_of(module) not in ("cli", "__main__")])
def test_functions_import_only_what_takes_long_to_load(module):
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inner = {name for function in functions for name in _imported(function)} & FILES.keys()
    assert not inner - heavy_modules(), f"functions of {module} import {inner - heavy_modules()}"


ONE_EACH = "Task Dataset Problem Gold Prompt Response Verdict Sample CellSpec Estimate Table TableCell RunDir"


def test_no_two_classes_have_one_name():
    homes = defaultdict(list)
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
    assert {name for name in ONE_EACH.split() if name not in homes} == set()

"""What a piece of Python does, as a short name that survives tidying up.

A stored answer is named by everything that could change it, and that includes code: the file that turns a benchmark's
row into a prompt, and the generator of the mini world. Comments, docstrings, layout, annotations, imports, the names
of modules and the names inside a function can change without changing what the code does, so they are left out here.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from atrl_bench.digests import memory_file, recall, remember

_UNSAID = ("type_comment", "type_params", "kind", "ctx", "annotation", "returns", "simple")


def code_fingerprint(paths: Iterable[Path]) -> str:
    """Return 16 hex digits that name what these files do together, whatever they are called."""
    return _fingerprint(tuple(sorted(path.read_text(encoding="utf-8") for path in paths)))


@cache  # the world is asked for its name wherever a dataset is looked for
def _fingerprint(sources: tuple[str, ...]) -> str:
    """Return the fingerprint of files with this content, remembered: taking a few thousand lines apart is slow."""
    memory_path, reader = memory_file("fingerprints.json"), Path(__file__).read_text(encoding="utf-8")
    grammar = str(sys.version_info[:2])
    key = hashlib.sha256("\0".join([grammar, reader, *sources]).encode()).hexdigest()
    memory = recall(memory_path)
    if key not in memory:
        forms = sorted(normal_form(source) for source in sources)
        memory[key] = hashlib.sha256("\0".join(forms).encode()).hexdigest()[:16]
        remember(memory_path, memory)
    return str(memory[key])


def normal_form(source: str) -> str:
    """Return the same text for two sources that differ in nothing but wording, imports and local names."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for statements in _bodies(node):
            kept = [one for one in statements if not _is_unsaid(one)]
            statements[:] = kept if isinstance(node, ast.ClassDef) else list(filter(None, map(_without_type, kept)))
    imported = _imported_names(ast.parse(source))
    private = _numbered(_private_names(tree), "p")
    return "".join(_written(_Renamer(imported, private).visit(tree)))


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None)
        if isinstance(statements, list):
            yield statements


def _without_type(statement: ast.stmt) -> ast.stmt | None:
    """Return an assignment without its type; in a class the type makes a field of it and has to stay."""
    if not isinstance(statement, ast.AnnAssign):
        return statement
    return ast.Assign([statement.target], statement.value) if statement.value is not None else None


def _is_unsaid(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing: an import, a docstring, what only a type checker reads, `__all__`."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
        return statement.test.id == "TYPE_CHECKING"
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Return what each imported name is called at home; of a whole module that is nothing, so that it can be renamed.

    `from package import module` looks like the import of a function. It is told by its use: a name whose attributes
    alone are read is taken for a module.
    """
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    homes = {alias.asname or alias.name: alias.name for alias in aliases}
    whole = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    homes |= {alias.asname or alias.name.partition(".")[0]: "" for alias in whole if alias.asname}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    owners = {id(node.value) for node in attributes}
    alone = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in owners}
    return {name: home if name in alone or not name.islower() else "" for name, home in homes.items()}


def _private_names(tree: ast.Module) -> list[str]:
    """Return the names with an underscore that the module itself binds, in their order."""
    bound: list[str] = []
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.append(statement.name)
        elif isinstance(statement, ast.Assign):
            bound += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [name for name in bound if name.startswith("_") and not name.startswith("__")]


def _local_names(function: ast.AST) -> list[str]:
    """Return the names that a function binds, itself or further inside, in their order."""
    bound: list[str | None] = []
    for node in _in_order(function):
        if isinstance(node, ast.arg):
            bound.append(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.append(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler)) and node is not function:
            bound.append(node.name)
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    return [name for name in bound if name is not None and name not in shared]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _numbered(names: Iterable[str], letter: str) -> dict[str, str]:
    return {name: f"{letter}{number}" for number, name in enumerate(dict.fromkeys(names))}


class _Renamer(ast.NodeTransformer):
    """Writes imported names as they are at home, private names of the module and local ones as numbers."""

    def __init__(self, imported: dict[str, str], private: dict[str, str]) -> None:
        self._names = imported | private
        self._is_inside = False

    def visit(self, node: ast.AST) -> ast.AST:
        if self._is_inside or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return super().visit(node)
        outer = self._names
        self._names, self._is_inside = outer | _numbered(_local_names(node), "v"), True
        try:
            return self.generic_visit(self._renamed(node, outer))
        finally:
            self._names, self._is_inside = outer, False

    def _renamed(self, node: ast.AST, names: dict[str, str]) -> ast.AST:
        name = getattr(node, "name", None)
        if isinstance(name, str):
            node.name = names.get(name, name)  # type: ignore[attr-defined]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self.generic_visit(self._renamed(node, self._names))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self.generic_visit(self._renamed(node, self._names))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        return self.generic_visit(self._renamed(node, self._names))

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._names.get(node.arg, node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and self._names.get(node.value.id) == "":
            return ast.Name(node.attr, node.ctx)  # `module.name` and `name` are the same thing
        return self.generic_visit(node)


def _written(node: object) -> Iterator[str]:
    """Yield a syntax tree as text; `ast.dump` writes it otherwise from one version of Python to the next."""
    if isinstance(node, ast.AST):
        yield type(node).__name__ + "("
        for name, value in ast.iter_fields(node):
            if name not in _UNSAID and value not in (None, []):
                yield f"{name}="
                yield from _written(value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _written(item)
        yield "]"
    else:
        yield repr(node) + ","

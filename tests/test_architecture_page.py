"""docs/architecture.md names functions that are there, and walks that are short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import atrl_bench

PACKAGE = Path(atrl_bench.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
MOST_FILES = 8  # of ours between a response and its number, or a reward and the loss


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    targets = [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return defined | {target.id for target in targets if isinstance(target, ast.Name)}


def test_every_function_that_the_page_names_is_in_its_file():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [f"{file}::{name}" for file, name in named if name not in names_in(PACKAGE / file)]
    assert missing == []


def test_every_type_of_the_page_is_defined_where_it_says():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| `([\w/]+\.py)` \|$", PAGE.read_text(encoding="utf-8"), re.M)
    types = [(name, file) for names, file in rows for name in re.findall(r"\w+", names)]
    assert {name for name, _ in types} >= {"Task", "Gold", "Prompt", "CellSpec", "Estimate", "Table", "RunDir"}
    assert [(name, file) for name, file in types if name not in names_in(PACKAGE / file)] == []


@pytest.mark.parametrize("walk", ["From a reward to the loss", "From a response to the table"])
def test_a_walk_has_eight_stations_at_most(walk):
    text = PAGE.read_text(encoding="utf-8").partition(f"## {walk}\n")[2].partition("\n## ")[0]
    assert 5 <= len(re.findall(r"^\d\. ", text, re.M)) <= MOST_FILES

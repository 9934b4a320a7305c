"""docs/architecture.md names functions that are there, and walks that are short."""

import ast
import re
from pathlib import Path

import pytest
from table_fixtures import fill, main_table

import atrl_bench
from atrl_bench.papers.scores import load_printed
from atrl_bench.profiles import load_profile
from atrl_bench.report.build import build_table
from atrl_bench.report.cells import TableSource
from atrl_bench.report.charts import draw
from atrl_bench.report.html import render_html
from atrl_bench.results import numbers
from atrl_bench.results.store import Store

PACKAGE = Path(atrl_bench.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
MOST_FILES = 8  # of ours between a response and its number, or a reward and the loss
MOST_FILES_TO_PAGE = 18  # of ours that run between a stored verdict and its number on a page


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


def test_a_stored_verdict_reaches_the_page_through_eighteen_files_and_the_walk_names_them(tmp_path, entered_files):
    definition = main_table(["zero_shot", "grpo", "grpo_atrl"], ["geoqa_test"])
    with Store.open(tmp_path / "store.sqlite") as store:
        keys, runs = fill(store, definition, seeds=1, problems=6, leave_out=set(), decorate=str)
        source = TableSource(definition, store, load_profile("mini"), keys, runs, recipes=definition.recipes())
        printed = load_printed(definition)
        drawings = draw(build_table(source, printed=printed))
        with entered_files() as files:
            table = build_table(source, printed=printed)
            page = render_html(table, drawings=drawings)
    assert numbers.percent(table.rows[1].cells[0].estimate.mean) in page
    assert len(files) <= MOST_FILES_TO_PAGE
    named = PAGE.read_text(encoding="utf-8").partition("From a stored verdict to the page")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`([\w/]+\.py)`", named)) == sorted(files)

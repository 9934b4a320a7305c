"""What a table says, and that every number the paper prints follows from the scores in the CSV."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.profiles import read_settings
from atrl_bench.resources import folder
from atrl_bench.tables.definition import (
    TableDefinition,
    list_tables,
    load_paper_scores,
    load_table,
    read_paper_scores,
)
from atrl_bench.training.recipe import load_recipe

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "at_rl.tex"
CELL = re.compile(r"(\d+\.\d+)(?:\{\\scriptsize\\textcolor\{(ForestGreen|red)\}\{\$\\(up|down)arrow\$(\d+\.\d+)\}\})?")
CENT = Decimal("0.01")

SMALL = """\
title: t
caption: c
source: s
label: tab:x
baseline: base
data: virl39k
schedule: strict
columns: [{id: a, label: A, task: t, metric: acc@1}]
rows:
  - {id: base, label: Base}
  - {id: grpo, label: GRPO, recipe: grpo}
"""


@pytest.fixture
def small(tmp_path):
    def read(text: str = SMALL) -> TableDefinition:
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return read_settings(path, TableDefinition, id="small")

    return read


def latex_table(label: str) -> dict[str, list[tuple[Decimal, Decimal | None, bool]]]:
    """Return (score, signed arrow, bold) for every cell of the paper's table, by the row's printed name."""
    source = PAPER.read_text()
    start = source.index(f"\\label{{{label}}}")
    rows = {}
    for line in source[start : source.index("\\bottomrule", start)].splitlines():
        name, *cells = line.strip().rstrip("\\").split("&")
        if cells and CELL.search(cells[0]):
            parsed = []
            for cell in cells:
                score, _, direction, arrow = CELL.search(cell).groups()
                sign = {"up": 1, "down": -1, None: 0}[direction]
                parsed.append((Decimal(score), sign * Decimal(arrow) if arrow else None, "\\textbf" in cell))
            rows[re.sub(r"\\textbf\{(.*)\}", r"\1", name.strip())] = parsed
    return rows


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper's source is not beside this checkout")
def test_every_printed_score_arrow_average_and_bold_of_the_paper_follows_from_the_csv():
    table = load_table("main_7b")
    scores = load_paper_scores(table)
    printed = latex_table("tab:main_results_7b")
    rows = [row for row in table.rows if row.in_paper]
    assert list(printed) == [row.label for row in rows]

    def with_average(row: str) -> list[Decimal]:
        values = [scores[row, column.id] for column in table.columns]
        return [*values, (sum(values) / len(values)).quantize(CENT, ROUND_HALF_UP)]

    base = with_average(table.baseline)
    best = [max(column) for column in zip(*(with_average(row.id) for row in rows), strict=True)]
    for row in rows:
        computed = with_average(row.id)
        assert [cell[0] for cell in printed[row.label]] == computed
        if row.id != table.baseline:
            assert [cell[1] for cell in printed[row.label]] == [a - b for a, b in zip(computed, base, strict=True)]
        assert [cell[2] for cell in printed[row.label]] == [a == b for a, b in zip(computed, best, strict=True)]


def test_the_csv_holds_a_score_for_every_row_of_the_paper_and_for_no_other():
    table = load_table("main_7b")
    expected = {(row.id, column.id) for row in table.rows if row.in_paper for column in table.columns}
    assert set(load_paper_scores(table)) == expected
    assert load_paper_scores(table)["gspo", "mathvista_testmini"] == Decimal("66.40")


def test_every_row_that_can_be_trained_names_a_recipe_that_takes_its_settings():
    table = load_table("main_7b")
    for row in table.rows:
        if row.recipe:
            recipe = load_recipe(row.recipe, **table.recipe_fields(row))
            assert (recipe.credit.rule, recipe.schedule, recipe.data) == (row.credit.rule, "minibatch4", "virl39k")


def test_a_row_compared_with_another_differs_from_it_in_its_credit_alone():
    table = load_table("main_7b")
    rows = {row.id: row for row in table.rows}
    compared = [row for row in table.rows if row.compared_with]
    assert len(compared) == 5
    for row in compared:
        other = rows[row.compared_with]
        assert other.credit.rule == "uniform" != row.credit.rule
        mine, theirs = (load_recipe(r.recipe, **table.recipe_fields(r)).model_dump() for r in (row, other))
        assert {name for name in mine if mine[name] != theirs[name]} == {"credit"}


def test_rows_without_a_recipe_are_the_base_model_or_say_why_they_are_missing():
    table = load_table("main_7b")
    assert [row.id for row in table.rows if not row.recipe and not row.not_measured] == ["zero_shot"]
    assert [row.id for row in table.rows if row.not_measured] == ["step_grpo", "vppo"]


@pytest.mark.parametrize("table", list_tables())
def test_every_shipped_table_loads_and_every_paper_score_belongs_to_one(table):
    load_paper_scores(load_table(table))
    assert {path.stem for path in (folder("reports") / "paper").glob("*.csv")} <= set(list_tables())


def test_an_unknown_table_names_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean main_7b"):
        load_table("main7b")
    with pytest.raises(UnknownNameError):
        load_table("../paper/main_7b")


def test_selecting_keeps_the_order_of_the_table_and_names_what_is_unknown():
    table = load_table("main_7b").select(rows=["grpo", "zero_shot"], columns=["wemath_testmini"])
    assert [row.id for row in table.rows] == ["zero_shot", "grpo"]
    assert len(load_paper_scores(table)) == 2
    with pytest.raises(UnknownNameError, match=r"row 'grpo_atlr'(.|\n)*grpo_atrl"):
        load_table("main_7b").select(rows=["grpo_atlr"])
    with pytest.raises(UnknownNameError, match=r"column 'wemath'(.|\n)*wemath_testmini"):
        load_table("main_7b").select(columns=["wemath"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("metric: acc@1", "metric: acc", r"small\.yaml:8: field 'columns\.0\.metric'"),
        ("recipe: grpo}", "recipe: grpo, color: red}", r"small\.yaml:11: field 'rows\.1\.color'"),
        ("baseline: base", "baseline: zero", "the baseline zero is no row"),
        ("id: grpo,", "id: base,", "row base is there twice"),
        ("recipe: grpo}", "recipe: grpo, group: g}", "group g, which is not defined"),
        ("recipe: grpo}", "recipe: grpo, compared_with: nil}", "compared with nil, which is no row"),
        ("recipe: grpo}", "recipe: grpo, footnotes: [nil]}", "footnote nil, which is not defined"),
        ("recipe: grpo}", "recipe: grpo, not_measured: x}", "keep one"),
        ("recipe: grpo}", "credit: atrl}", "no recipe that would use it"),
        ("schedule: strict", "schedule: eager", "'strict' or 'minibatch4'"),
        ("rows:", "rows: [", "not a YAML mapping"),
    ],
)
def test_a_mistake_in_a_table_is_found_where_it_is(small, old, new, message):
    small()
    with pytest.raises(InvalidFileError, match=message):
        small(SMALL.replace(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,a\ngrpo,50.1\n", None),
        ("name,a\ngrpo,50.1\n", r"scores\.csv:1: the first column 'name'"),
        ("row,b\ngrpo,50.1\n", r"scores\.csv:1: column 'b'"),
        ("row,a\nother,50.1\n", r"scores\.csv:2: row 'other'"),
        ("row,a\ngrpo,↑2.81\n", r"scores\.csv:2: field 'a'"),
        ("row,a\ngrpo,501\n", "not a percentage"),
        ("row,a\ngrpo\n", "not a percentage"),
        ("", r"scores\.csv:1"),
    ],
)
def test_a_mistake_in_the_printed_scores_is_found_where_it_is(small, tmp_path, text, message):
    path = tmp_path / "scores.csv"
    path.write_text(text)
    if message is None:
        assert read_paper_scores(path, small()) == {("grpo", "a"): Decimal("50.1")}
    else:
        with pytest.raises(InvalidFileError, match=message):
            read_paper_scores(path, small())

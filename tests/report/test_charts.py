"""The figures of a table: whole and harmless SVG, what they show by hand-made numbers, and what is left out of each."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import product

import pytest
from matplotlib.colors import to_hex
from table_fixtures import poisoned

from atrl_bench.report.charts import answer_figure, draw, grid_figure
from atrl_bench.report.differences import contrasts
from atrl_bench.report.drawing import DARK, GREEN, GREY, INK, figure_style
from atrl_bench.report.html import render_html
from atrl_bench.report.table_model import Grid, GridCell

SVG = "{http://www.w3.org/2000/svg}"
GRID = Grid(
    "Worth",
    "How much",
    ("here", "nowhere"),
    (
        ("half", (GridCell("0.5", 0.5, 0.4, 0.6, "down"), GridCell("not run"))),
        ("four", (GridCell("4", 4.0, 2.0), GridCell("not run"))),
    ),
    neutral=1.0,
    is_drawn=True,
    is_ratio=True,
)


@pytest.fixture(scope="module")
def drawn(table):
    return draw(replace(table, grids=(*table.grids, GRID)))


def panels_of(make, *arguments):
    with figure_style():
        content = make(*arguments)
        content.figure.draw_without_rendering()
    return content.figure.axes


def test_a_table_has_a_figure_of_its_answer_and_each_grid_that_is_to_be_drawn(table, drawn):
    assert list(drawn) == ["answer", "grid 3"]
    assert [one.file for one in drawn.values()] == ["main_7b.svg", "main_7b_grid3.svg"]


def test_rules_that_put_no_credit_on_anchors_are_left_out_of_a_figure_of_their_own(table):
    rows = tuple(replace(row, credit="random") if row.id == "grpo_atrl" else row for row in table.rows)
    drawn = draw(replace(table, rows=rows))
    assert "GRPO + AT-RL minus" in drawn["answer"].description
    assert "GRPO + AT-RL minus" not in drawn["anchors"].description


def test_every_figure_is_whole_xml_with_a_title_a_description_and_colours_for_both_themes(drawn):
    for drawing in drawn.values():
        root = ElementTree.fromstring(drawing.svg)
        assert (root.attrib["role"], root[0].tag, root[1].text) == ("img", f"{SVG}title", drawing.description)
        body = drawing.svg[drawing.svg.index("</style>") :]
        assert set(re.findall(r"(?:fill|stroke)(?:: |=\")(#[0-9a-f]{6})", body)) <= DARK.keys()
        assert not re.search(r"20\d\d-\d\d-\d\d|matplotlib\.org", drawing.svg)


@pytest.mark.parametrize("third", [0, 1, 2])
def test_no_text_becomes_markup_in_a_figure(table, payloads, third):
    for drawing in draw(poisoned(replace(table, grids=(GRID,)), "".join(payloads[third::3]))).values():
        root = ElementTree.fromstring(drawing.svg)  # a control character or an open tag would not parse
        assert not list(root.iter(f"{SVG}script"))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", drawing.svg)


def test_only_a_comparison_that_is_clear_is_coloured_and_says_so(table):
    clear = replace(contrasts(table)[0], overall_q=0.001)
    for item, colour in ((clear, GREEN), (replace(clear, overall_q=0.5), INK)):
        panel, *_ = panels_of(answer_figure, table, [item])
        [diamond] = [line for line in panel.lines if line.get_marker() == "D"]
        assert diamond.get_color() == colour
        assert any(text.get_text().endswith(": gain") for text in panel.texts) == (colour == GREEN)


def test_with_one_seed_all_of_the_axis_is_what_cannot_be_told(table):
    one = contrasts(table)[0]
    alone = replace(one, seeds=replace(one.seeds, sd=None, num_seeds=1))
    panel, *_ = panels_of(answer_figure, table, [alone])
    [ground] = [patch for patch in panel.patches if to_hex(patch.get_facecolor()) == GREY]
    assert (ground.get_x(), ground.get_x() + ground.get_width()) == panel.get_xlim()


def test_the_papers_claims_stand_in_a_panel_of_their_own(table):
    items = contrasts(table)
    assert len(panels_of(answer_figure, table, items)) == 2
    assert len(panels_of(answer_figure, table, [replace(items[0], claim=None)])) == 1


def test_rows_of_one_name_are_named_with_their_groups(table):
    [zero_shot, grpo] = table.rows[:2]
    rows = tuple(
        replace(row, id=f"{row.id}_{group}", group=group, baseline=f"zero_shot_{group}")
        for group, row in product(("7B", "3B"), (zero_shot, grpo))
    )
    html = render_html(replace(table, rows=rows, baseline="Zero-shot, 7B"))
    assert "points against Zero-shot, 7B or, in its group, Zero-shot, 3B)" in html


def test_a_ratio_is_drawn_as_far_above_one_as_its_inverse_is_below_and_without_an_end_to_the_edge(table):
    [panel] = panels_of(grid_figure, table, GRID)  # the column without a number has no panel
    assert panel.get_xscale() == "log"
    ranges = [list(line.get_xdata()) for line in panel.lines]
    assert [0.4, 0.6] in ranges
    assert [2.0, panel.get_xlim()[1]] in ranges


def test_a_long_name_of_a_row_stands_whole_in_the_lines_above_its_bar(table):
    name = "GRPO, random order (MathVista and MathVerse)"
    grid = replace(GRID, rows=((f"{table.profile}: {name}", GRID.rows[0][1]), GRID.rows[1]))
    [panel] = panels_of(grid_figure, table, grid)
    beside = [text.get_text() for text in panel.texts if text.xy == (0, 0)]
    assert " ".join(reversed(beside)) == name  # the profile is in the title of the figure
    boxes = [text.get_window_extent() for text in panel.texts]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])

"""Every number of every table of the paper follows from the scores in `reports/at_rl/scores`.

Reads the paper's LaTeX: scores, averages, arrows, Δ, standard deviations and bold, cell by cell.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

import needs
import pytest

from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.papers.scores import load_printed
from atrl_bench.profiles import load_profile
from atrl_bench.report.build import build_table
from atrl_bench.report.cells import TableSource
from atrl_bench.report.table_model import PublishedRow, Table
from atrl_bench.results.store import Store

pytestmark = needs.paper

IN_PAPER = [name for name in list_tables("at_rl") if load_table(name).source != "No table of the paper"]
TURNED = "scale_32b"  # there the paper has its models in columns
# Scores, averages, arrows, Δ and standard deviations that the paper prints, counted by eye.
COUNTS = {
    "main_7b": (60, 12, 66, 0, 0),
    "cross_dataset": (60, 12, 60, 0, 0),
    "scale_32b": (79, 0, 0, 0, 0),
    "video": (36, 0, 27, 0, 0),
    "hard_truncation": (12, 0, 11, 0, 0),
    "bias_correction": (4, 0, 3, 0, 0),
    "grouping": (14, 0, 12, 12, 12),
    "cluster_refinement": (10, 0, 0, 10, 0),
    "neighbourhood_expansion": (14, 0, 0, 14, 0),
    "kl_free": (4, 0, 0, 0, 0),
}
WITH_DELTAS = ("grouping", "cluster_refinement", "neighbourhood_expansion")  # every other printed column is a Δ
SYMBOLS = {r"\tau": "τ", r"\alpha": "α", r"\beta": "β", r"\%": "%", r"\_": "_", "$": ""}


@dataclass(frozen=True)
class Printed:
    """One cell of the LaTeX source; what it does not have is None."""

    score: Decimal | None
    sd: Decimal | None
    arrow: Decimal | None
    bold: bool


def parse_cell(cell: str) -> Printed:
    number = re.search(r"(?<![\d.])-?\d+\.\d+", cell)
    sd = re.search(r"\\pm\$ (\d+\.\d+)", cell)
    arrow = re.search(r"(up|down|↑|↓)(?:arrow\$)?(\d+\.\d+)", cell)
    sign = -1 if arrow and arrow[1] in ("down", "↓") else 1
    return Printed(
        Decimal(number[0]) if number else None,
        Decimal(sd[1]) if sd else None,
        sign * Decimal(arrow[2]) if arrow else None,
        "\\textbf" in cell,
    )


def plain(name: str) -> str:
    """Return a row's name as a definition writes it: no commands, no dashes before it."""
    for _ in range(3):
        name = re.sub(r"\\(?:textbf|textit|mathrm)\{([^{}]*)\}", r"\1", name)
    name = re.sub(r"\\(?:midrule|bottomrule)|\\(?:rowcolor|cmidrule\(\w+\))\{[^{}]*\}", "", name)
    for command, symbol in SYMBOLS.items():
        name = name.replace(command, symbol)
    return re.sub(r"_\{(\w+)\}", r"_\1", name).strip().removeprefix("-- ")


def printed_rows(label: str) -> list[tuple[str, list[Printed]]]:
    """Return (name, cells) of every row with numbers, in the order of the source."""
    source = needs.PAPER.read_text(encoding="utf-8")
    start = source.index("\\midrule", source.index(f"\\label{{{label}}}"))  # the end of the headings
    rows = []
    for line in source[start : source.index("\\bottomrule", start)].split(r"\\"):
        name, *cells = line.split("&")
        parsed = [parse_cell(cell) for cell in cells]
        if any(cell.score is not None for cell in parsed):
            rows.append((plain(name), parsed))
    return rows


def as_printed(table: Table, row: PublishedRow) -> list[Printed]:
    """Return the row as the paper prints it, from what was computed: the score of a Δ is the Δ."""
    cells = []
    for index, item in enumerate(row.scores):
        with_deltas = table.id in WITH_DELTAS
        arrow = None if table.id != "grouping" and with_deltas else item.difference
        cells.append(Printed(item.score, item.sd, arrow, item.is_best))
        if with_deltas:
            zero = Decimal("0.00") if row.id == load_table(table.id).point else None  # what Δ are taken against
            delta = (row.deltas[index] if row.deltas else zero) if table.id == "grouping" else (item.difference or zero)
            cells.append(Printed(delta, None, None, item.is_best))
    return cells


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return a function that builds a table from an empty store."""

    def build(name: str) -> Table:
        with Store.open(tmp_path_factory.mktemp("store") / "store.sqlite") as store:
            source = TableSource(load_table(name), store, load_profile("paper"), {})
            return build_table(source, printed=load_printed(source.definition))

    return build


@pytest.mark.parametrize("name", [name for name in IN_PAPER if name != TURNED])
def test_every_score_average_arrow_delta_spread_and_bold_of_the_paper_follows_from_the_csv(name, published):
    table = published(name)
    rows = printed_rows(table.label)
    assert [label for label, _ in rows] == [row.label for row in table.published]
    has_bold = any(cell.bold for _, cells in rows for cell in cells)
    has_arrows = any(cell.arrow is not None for _, cells in rows for cell in cells)
    for (_, cells), row in zip(rows, table.published, strict=True):
        computed = as_printed(table, row)
        assert [(cell.score, cell.sd) for cell in cells] == [(cell.score, cell.sd) for cell in computed]
        assert not has_arrows or [cell.arrow for cell in cells] == [cell.arrow for cell in computed]
        assert not has_bold or [cell.bold for cell in cells] == [cell.bold for cell in computed]


def test_every_score_of_the_table_that_the_paper_prints_the_other_way_round_is_in_the_csv(published):
    table = published(TURNED)
    models = list(zip(*(cells[1:] for _, cells in printed_rows(table.label)), strict=True))  # the first is a benchmark
    assert len(models) == len(table.published)
    for cells, row in zip(models, table.published, strict=True):
        assert [cell.score for cell in cells] == [item.score for item in row.scores]


@pytest.mark.parametrize("name", IN_PAPER)
def test_nothing_that_the_paper_prints_was_overlooked(name, published):
    table = published(name)
    cells = [cell for _, row in printed_rows(table.label) for cell in row]
    deltas = [cell for _, row in printed_rows(table.label) for cell in row[1::2]] if name in WITH_DELTAS else []
    num_averages = len(table.published) if table.has_average else 0
    num_deltas = sum(cell.score is not None for cell in deltas)
    found = (
        sum(cell.score is not None for cell in cells) - num_averages - num_deltas,
        num_averages,
        sum(cell.arrow is not None for cell in cells),
        num_deltas,
        sum(cell.sd is not None for cell in cells),
    )
    assert found == COUNTS[name]

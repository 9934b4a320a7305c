"""One HTML file per table: opens from disk, asks for nothing outside itself, works without scripts, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from atrl_bench.report.answers import FILTERS, Pages
from atrl_bench.report.charts import Drawing, draw
from atrl_bench.report.differences import answer_of, contrasts, counted
from atrl_bench.report.page import INSIDE, render_page
from atrl_bench.report.paper import against_paper
from atrl_bench.report.table_model import Table


def render_html(
    table: Table, pages: Mapping[tuple[str, str], Pages] | None = None, drawings: Mapping[str, Drawing] | None = None
) -> str:
    """The whole page; `pages` are those of the answers that it links to, by (row, column)."""
    names = row_names(table)
    return render_page(
        "table.html.j2",
        images=INSIDE,
        table=table,
        labels={row.id: row.label for row in table.rows},
        names=names,
        baselines=list(dict.fromkeys(names.get(row.baseline, table.baseline) for row in table.rows)),
        spans=spans(table),
        pages=pages or {},
        filters=FILTERS,
        against=against_paper(table),
        answer=answer_of(contrasts(table)),
        counted=counted(table),
        groups=by_group(table.rows),
        published_groups=by_group(table.published),
        drawings=draw(table) if drawings is None else drawings,
    )


def row_names(table: Table) -> dict[str, str]:
    num_of_label = Counter(row.label for row in table.rows)
    return {row.id: f"{row.label}, {row.group}" if num_of_label[row.label] > 1 else row.label for row in table.rows}


def by_group(rows: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    return [(label, list(members)) for label, members in groupby(rows, key=lambda row: row.group)]


def spans(table: Table) -> list[tuple[str, int]]:
    """The headings over neighbouring columns, each with its width: how many frames of a video; or none."""
    texts = [f"{column.frames} frames" if column.frames else "" for column in table.columns]
    return [(text, len(list(members))) for text, members in groupby(texts)] if len(set(texts) - {""}) > 1 else []

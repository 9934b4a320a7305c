"""All files of one table, side by side in one folder."""

from __future__ import annotations

from pathlib import Path

from atrl_bench.report.answers import AnswerSource, write_samples
from atrl_bench.report.html import render_html
from atrl_bench.report.latex import render_latex
from atrl_bench.report.table_model import Table
from atrl_bench.report.text import render_csv, render_json, render_markdown
from atrl_bench.results.files import write_texts, writing


def write_report(table: Table, out: Path, answers: AnswerSource | None = None) -> list[Path]:
    """Write the table as HTML, LaTeX (fragment and document), Markdown, CSV and JSON; return the paths, HTML first.

    With `answers`, the page's numbers open to pages of their own with everything that was asked and answered.
    """
    with writing(f"the report to {out}"):
        pages = write_samples(table, answers, out) if answers else {}
        return write_texts(
            out,
            {
                f"{table.id}.html": render_html(table, pages),
                f"{table.id}.tex": render_latex(table),
                f"{table.id}_document.tex": render_latex(table, standalone=True),
                f"{table.id}.md": render_markdown(table),
                f"{table.id}.csv": render_csv(table),
                f"{table.id}.json": render_json(table),
            },
        )

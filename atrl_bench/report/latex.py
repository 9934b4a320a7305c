r"""The table as LaTeX, in the paper's own look: booktabs, grey group rows, arrows in ForestGreen and red.

`render_latex(table)` is a fragment to `\input`; it needs booktabs, graphicx and xcolor with the options table and
dvipsnames. `render_latex(table, standalone=True)` is a document that pdfLaTeX compiles as it is.
"""

from __future__ import annotations

from typing import Any

from atrl_bench.escape import Tex, latex, running_latex
from atrl_bench.report.html import by_group, spans
from atrl_bench.report.reproduction import against_paper
from atrl_bench.report.table_model import Table
from atrl_bench.report.templates import environment

_ARROWS = {1: Tex(r"$\uparrow$"), -1: Tex(r"$\downarrow$"), 0: Tex("$=$")}
MOST_COLUMNS = 10  # a table with more is printed with its rows as columns, as the paper does
_COLOURS = {1: Tex("ForestGreen"), -1: Tex("red"), 0: Tex("black")}


def render_latex(table: Table, *, standalone: bool = False) -> str:
    """Return the measured table, the comparison of credits and the published table, each as a `table` environment."""
    # Braces and percent signs mean too much in LaTeX to be Jinja's delimiters. `finalize` escapes every value that is
    # not marked as LaTeX source, so that nothing can be forgotten in the template.
    latex_environment = environment(
        _finalize,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        autoescape=False,  # that would be HTML's escaping
    )
    # `tex` is for what a macro returns: its values have been escaped inside.
    latex_environment.filters |= {"tex": Tex, "running": running_latex}
    return latex_environment.get_template("table.tex.j2").render(
        table=table,
        standalone=standalone,
        arrows=_ARROWS,
        colours=_COLOURS,
        is_turned=len(table.columns) > MOST_COLUMNS,
        label=Tex("".join(c for c in table.label if c.isascii() and (c.isalnum() or c in ":_-."))),
        columns=_columns(table),
        spans=spans(table),
        verdicts=against_paper(table) if table.is_comparable else (),
        num_columns=len(table.columns) + 1,
        groups=by_group(table.rows),
        published_groups=by_group(table.published),
    )


def _columns(table: Table) -> Tex:
    """Return the column types, with lines where the paper has them: after the names, before an average, at frames."""
    if table.has_average:
        widths = [len(table.columns) - 1, 1]
    else:
        widths = [width for _, width in spans(table)] or [len(table.columns)]
    return Tex("|".join(["l", *("c" * width for width in widths)]))


def _finalize(value: Any) -> Any:
    return value if isinstance(value, (Tex, int)) else latex(str(value))

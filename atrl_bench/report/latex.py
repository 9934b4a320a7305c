r"""The table as LaTeX that compiles in anybody's paper: one float a file, booktabs, no package beyond three usual ones.

`render_latex(table)` gives fragments to `\input`, by the end of their names: "" is the measured table, `_credit` what
credit adds, `_published` what the paper prints. They fit one column or two: a wide table is a `table*`, shrunk to the
width that is there. `_document` holds all of them and compiles as it is.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from atrl_bench.escape import Tex, latex, running_latex
from atrl_bench.report.differences import answer_of, contrasts
from atrl_bench.report.html import by_group, spans
from atrl_bench.report.page import environment
from atrl_bench.report.paper import against_paper
from atrl_bench.report.table_model import ROUNDING, Footnote, Table

MOST_COLUMNS = 10  # a table with more is printed with its rows as columns, as the paper does
MOST_NARROW = 2  # columns of a table that has room in one column of a paper with two
MAX_NOTE = 200  # characters of a footnote; the page has the rest
_COLOURS = {1: Tex(".07,.39,.14"), -1: Tex(".64,.05,.15"), 0: Tex("0,0,0")}


def render_latex(table: Table) -> dict[str, str]:
    """The table's floats by the end of their files' names, and all of them in a `_document` that compiles."""
    against = against_paper(table) if table.is_comparable else ()
    kinds: dict[str, str | int] = {"": "scores"} if table.rows else {}
    kinds |= {"_credit": "credit"} if table.comparisons else {}
    kinds |= {"_equal_rate": "equal_rate"} if table.equal_rate else {}
    of_grid = "_training" if table.rows else "_"
    kinds |= {f"{of_grid}{index + 1}": index for index in range(len(table.grids))}
    kinds |= {"_published": "published"} if table.published else {}
    kinds |= {"_claims": "claims"} if any(row.deltas for row in table.published) else {}
    kinds |= {"_verdicts": "verdicts"} if against else {}
    values: dict[str, Any] = {
        "table": table,
        "is_turned": len(table.columns) > MOST_COLUMNS,
        "is_wide": len(table.columns) > MOST_NARROW,
        "label": Tex("".join(c for c in table.label if c.isascii() and (c.isalnum() or c in ":_-."))),
        "columns": Tex("l" + "c" * len(table.columns)),
        "spans": spans(table),
        "against": against,
        "num_columns": len(table.columns) + 1,
        "groups": by_group(table.rows),
        "published_groups": by_group(table.published),
        "answer": answer_of(contrasts(table)),
        "measured_with": "measured here" if table.is_comparable else f"measured with profile {table.profile_title}",
        "notes": list(_notes(table)),
        "published_notes": list(_short(table.published_footnotes)),
    }
    template = latex_environment().get_template("table.tex.j2")
    files = {end: template.render(parts=[kind], standalone=False, **values) for end, kind in kinds.items()}
    files["_document"] = template.render(parts=list(kinds.values()), standalone=True, **values)
    return {end: re.sub(r"\n{2,}(?!\\smallskip)", "\n", source) for end, source in files.items()}


def latex_environment() -> Any:
    # Braces and percent signs mean too much in LaTeX to be Jinja's delimiters. `finalize` escapes every value that is
    # not marked as LaTeX source, so that nothing can be forgotten in the template.
    made = environment(
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
    made.globals |= {"colours": _COLOURS}
    made.filters |= {
        "tex": Tex,
        "running": running_latex,
        "in_lines": lambda text, width=14: textwrap.wrap(text, width) or [""],
    }
    return made


def _notes(table: Table) -> Iterable[tuple[str, str]]:
    if table.judge_warning:
        yield "", table.judge_warning
    yield from _short(table.footnotes)
    for sentence in table.headroom:
        yield "", sentence
    about = "± is half of the 95 % interval over problems; small lines are points against "
    yield "", f"{about}{table.baseline}, * clear after the correction for the number of comparisons."
    yield from (("", note) for note in table.notes if note.startswith(ROUNDING))
    seeds = len(table.seeds)
    if any(row.recipe for row in table.rows):
        one_seed = "One training seed: seed variance not measured."
        yield "", one_seed if seeds == 1 else f"Mean over {seeds} training seeds."
    if not table.is_comparable:
        yield "", f"Profile {table.profile}: not comparable with the paper's numbers."


def _short(footnotes: Sequence[Footnote]) -> Iterable[tuple[str, str]]:
    for note in footnotes:
        text = note.text
        if len(text) > MAX_NOTE or "atrl-bench " in text:
            text = re.split(r"(?<=[.;]) |: atrl-bench ", text, maxsplit=1)[0]
        yield note.mark, text if len(text) <= MAX_NOTE else f"{text[:MAX_NOTE].rpartition(' ')[0]} …"


def _finalize(value: Any) -> Any:
    return value if isinstance(value, (Tex, int)) else latex(str(value))

"""How the templates of `reports/templates` become text, and what every HTML page of a report shares.

Each form has an environment that escapes what it prints. A page has one inlined style sheet and a policy that forbids
all else: it opens from disk, works without scripts (only the pages of answers have one, for searching) and asks for
nothing but the pictures that lie beside it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from atrl_bench.escape import visible
from atrl_bench.report.table_model import is_significant
from atrl_bench.resources import folder
from atrl_bench.results import numbers

TEMPLATES = folder("reports") / "templates"
_FILTERS = ("percent", "half_width", "error", "interval", "direction", "signed", "p_value", "detectable")


@cache  # a template is compiled once a process
def environment(finalize: Callable[[Any], Any], **options: Any) -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
        **options,
    )
    made.filters |= {name: getattr(numbers, name) for name in _FILTERS}
    made.tests["significant"] = is_significant
    made.filters["as_picture"] = _as_picture
    made.globals |= {"words": numbers.WORDS}
    return made


def lines_of(template: str, **values: Any) -> list[str]:
    """The lines that a template of plain sentences makes of the values, one a sentence."""
    text = environment(_one_line).get_template(template).render(values)
    return [line for line in text.split("\n") if line]


def _one_line(value: Any) -> Any:
    return " ".join(value.splitlines()) if isinstance(value, str) else value


# Where the pictures of a page are. Beside it: 'self' is a web server's word for that, `file:` is what a page needs that
# was opened from disk.
BESIDE, INSIDE = "'self' file:", "data:"


def render_page(template: str, *, images: str = "", script: str = "", **values: Any) -> str:
    """The page that this template of `reports/templates` makes of the values.

    A page without `script` can run none; with one it can run the shipped file of this name and nothing else. Without
    `images`, where its pictures may be, it can show none.
    """
    style, digest = _style()
    code = (TEMPLATES / script).read_text(encoding="utf-8") if script else ""
    runs = f"script-src 'sha256-{_digest(code)}'; " if script else ""
    allowed = f"img-src {images}; " if images else ""
    # Everything else is forbidden: a response that did escape into the page could run and load nothing.
    policy = f"default-src 'none'; {runs}{allowed}style-src 'sha256-{digest}'; base-uri 'none'; "
    return (
        html_environment()
        .get_template(template)
        .render(policy=policy + "form-action 'none'", style=style, script=Markup(code), **values)
    )


def html_environment() -> Environment:
    # `select_autoescape` would not cover a template that ends in .j2, hence True for everything.
    return environment(_finalize, autoescape=True)


@cache
def _style() -> tuple[Markup, str]:
    style = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("theme.css", "table.css"))
    return Markup(style), _digest(style)


def _as_picture(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _digest(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

"""What every HTML page of a report shares: escaping, one inlined style sheet, and a policy that forbids all else.

A page opens from disk, works without scripts (only the pages of answers have one, for searching) and asks for nothing
but the pictures that lie beside it.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from atrl_bench.escape import visible
from atrl_bench.report.templates import TEMPLATES, environment


def render_page(template: str, *, pictures: bool = False, script: str = "", **values: Any) -> str:
    """Return the page that this template of `reports/templates` makes of the values.

    A page without `script` can run none; with one it can run the shipped file of this name and nothing else.
    """
    style, digest = _style()
    code = (TEMPLATES / script).read_text(encoding="utf-8") if script else ""
    runs = f"script-src 'sha256-{_digest(code)}'; " if script else ""
    # Pictures of one folder: 'self' is a web server's word for it, `file:` is what a page opened from disk needs.
    allowed = "img-src 'self' file:; " if pictures else ""
    # Everything else is forbidden: a response that did escape into the page could run and load nothing.
    policy = f"default-src 'none'; {runs}{allowed}style-src 'sha256-{digest}'; base-uri 'none'; "
    return (
        html_environment()
        .get_template(template)
        .render(policy=policy + "form-action 'none'", style=style, script=Markup(code), **values)
    )


@cache
def html_environment() -> Environment:
    """Return the one Jinja environment of all pages."""
    # `select_autoescape` would not cover a template that ends in .j2, hence True for everything.
    return environment(_finalize, autoescape=True)


@cache
def _style() -> tuple[Markup, str]:
    """Return the style sheet and its digest, which is how the policy knows it."""
    style = _sheets("theme.css", "answer_figure.css", "table.css")
    return Markup(style), _digest(style)


@cache
def svg_style() -> Markup:
    """Return the style of a drawing that is a file of its own."""
    return Markup(_sheets("theme.css", "answer_figure.css"))


def _digest(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _sheets(*names: str) -> str:
    return "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

"""What every HTML page of a report shares: escaping, one inlined style sheet, and a policy that forbids all else.

A page opens from disk, works without scripts (it has none) and asks for nothing but the pictures that lie beside it.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from atrl_bench.escape import visible
from atrl_bench.resources import folder
from atrl_bench.results import numbers

# Pictures of one folder: 'self' is a web server's word for it, `file:` is what a page opened from disk needs.
PICTURES = "img-src 'self' file:; "
_FILTERS = ("percent", "half_width", "interval", "points", "direction", "signed", "p_value")


def render_page(template: str, *, pictures: bool = False, **values: Any) -> str:
    """Return the page that this template of `reports/templates` makes of the values."""
    style, digest = _style()
    # Everything else is forbidden: a response that did escape into the page could run and load nothing.
    policy = f"default-src 'none'; {PICTURES if pictures else ''}style-src 'sha256-{digest}'; base-uri 'none'; "
    return environment().get_template(template).render(policy=policy + "form-action 'none'", style=style, **values)


@cache
def environment() -> Environment:
    """Return the one Jinja environment of all pages."""
    # `select_autoescape` would not cover a template that ends in .j2, hence True for everything.
    made = Environment(
        loader=FileSystemLoader(folder("reports") / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters |= {name: getattr(numbers, name) for name in _FILTERS}
    made.globals |= {"arrows": numbers.ARROWS, "words": numbers.WORDS}
    return made


@cache
def _style() -> tuple[Markup, str]:
    """Return the style sheet and its digest, which is how the policy knows it."""
    style = (folder("reports") / "templates" / "table.css").read_text(encoding="utf-8")
    return Markup(style), base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

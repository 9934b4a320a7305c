"""How the templates of `reports/templates` become text: each form has an environment that escapes what it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from atrl_bench.report.table_model import is_significant
from atrl_bench.resources import folder
from atrl_bench.results import numbers

TEMPLATES = folder("reports") / "templates"
_FILTERS = ("percent", "half_width", "error", "interval", "direction", "signed", "p_value", "seen")


def environment(finalize: Callable[[Any], Any], **options: Any) -> Environment:
    """Return the environment of one form; every value that a template prints goes through `finalize`."""
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
    made.globals |= {"words": numbers.WORDS}
    return made


def lines_of(template: str, **values: Any) -> list[str]:
    """Return the lines that a template of plain sentences makes of the values, one a sentence."""
    text = environment(_one_line).get_template(template).render(values)
    return [line for line in text.split("\n") if line]


def _one_line(value: Any) -> Any:
    return " ".join(value.splitlines()) if isinstance(value, str) else value

"""Values of our own types from the JSON that was made of them."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from decimal import Decimal
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints


def typed(kind: Any, value: Any) -> Any:
    """Return the value of this type, made of tuples, lists and dataclasses, that JSON holds.

    Numbers that were printed keep their digits where JSON was read with `parse_float=Decimal`.
    """
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    if value is None:
        return math.nan if kind is float else None  # JSON has no word for "not a number"
    if get_origin(kind) is tuple:
        kinds = [choices[0]] * len(value) if choices[-1] is ... else choices
        return tuple(typed(of_item, item) for of_item, item in zip(kinds, value, strict=True))
    if get_origin(kind) is list:
        return [typed(choices[0], item) for item in value]
    if NoneType in get_args(kind):
        return typed(choices[0], value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [field.name for field in fields(kind) if field.name in value]
        return kind(**{name: typed(hints[name], value[name]) for name in names})  # type: ignore[operator]
    if kind is Decimal:
        return Decimal(str(value))
    return float(value) if isinstance(value, Decimal) else value

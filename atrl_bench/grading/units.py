"""Units of measurement: what they are called, which of them ends a text, and what one is in another."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

# A unit a line: its dimension, what one of it is in the dimension's base, its name and other spellings. It is only
# converted within one dimension; a month is no fixed number of days.
_TABLE = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
_UNITS = [(dimension, factor, names) for dimension, factor, *names in map(str.split, _TABLE.splitlines())]
_UNIT_NAMES = {spelling: names[0] for _, _, names in _UNITS for spelling in names}
# "Cm" and "CM", unless it is another unit
for _name in [name for name in _UNIT_NAMES if name.isascii() and len(name) > 1]:
    _UNIT_NAMES.setdefault(_name.title(), _UNIT_NAMES[_name])
    _UNIT_NAMES.setdefault(_name.upper(), _UNIT_NAMES[_name])
_CONVERSION = {names[0]: (dimension, Fraction(factor)) for dimension, factor, names in _UNITS if factor != "-"}
_ONE_UNIT = "|".join(sorted(map(re.escape, _UNIT_NAMES), key=len, reverse=True))
_AREA_WORDS = r"(?:square|sq\.?|cubic|cu\.?|平方|立方)"
_POWER = r"(?:\s?\^\s?\{?\s?-?[1-4]\s?\}?)?"
_UNIT = re.compile(
    rf"(?<=[\d)}}π°%.\s])\s*(?P<area>{_AREA_WORDS})?\s*(?<![A-Za-z])(?P<unit>{_ONE_UNIT})(?P<power>{_POWER})"
    rf"(?P<per>(?:\s?(?:/|per|\*)\s?(?:{_ONE_UNIT}){_POWER}){{0,3}})(?![A-Za-z])(?:\s(?:squared|cubed|old|long|wide|high|tall))?\s*$",
)
# After a number, up to three ordinary words name what is counted ("12 red apples"); these words mean something else.
_COUNTED = re.compile(
    r"(?<=[\d)}π%])\s+(?!(?:or|and|not|to|is|are|plus|minus|times|over|by|if|when|but|hundred|thousand|million|billion"
    r"|dozen|dozens|squared|cubed|half|halves|thirds?|quarters?|more|less|fewer|than|at|least|most|am|pm|a\.m|p\.m)\b)"
    r"[A-Za-z]{2,}(?:\s(?!(?:or|and|not|is|are|plus|minus|times|than)\b)[A-Za-z]{2,}){0,2}\s*$",
    re.I,
)


def split_unit(text: str) -> tuple[str, str]:
    """A cleaned text without the unit at its end, and the unit's canonical name ("" for none)."""
    match = _UNIT.search(text)
    # "5, cm" is a length; "5, A" may be two answers.
    if match and match.start() > 0 and not (len(match["unit"]) == 1 and text[: match.start()].rstrip().endswith(",")):
        power = re.sub(r"[^\d-]", "", match["power"])
        if match["area"]:
            power = "3" if match["area"].startswith(("cu", "立")) else "2"
        unit = _UNIT_NAMES[match["unit"]] + power + match["per"].replace(" ", "")
        return text[: match.start()].rstrip(" ,"), unit
    return text, ""


def split_counted(text: str) -> tuple[str, str]:
    """A cleaned text without the words for what is counted ("12 red apples"), and "counted" if there are any."""
    bare = _COUNTED.sub("", text)
    return bare, "counted" if bare != text else ""


_SIMPLE_UNIT = re.compile(rf"(?P<sign>/|per|\*|)(?P<unit>{_ONE_UNIT})\^?\{{?(?P<power>[1-4]?)\}}?(?=/|per|\*|$)")


def unit_factor(unit: str) -> tuple[str, Fraction] | None:
    """The dimension of a unit, "length1/time1" of km/h, and what one of it is in the dimension's base."""
    dimensions, total, position = "", Fraction(1), 0
    while position < len(unit):
        match = _SIMPLE_UNIT.match(unit, position)
        if match is None or (position == 0) != (match["sign"] == ""):
            return None
        conversion = _CONVERSION.get(_UNIT_NAMES[match["unit"]])
        if conversion is None:
            return None
        power = int(match["power"] or 1)
        divides = match["sign"] in ("/", "per")
        dimensions += ("/" if divides else "*" if position else "") + f"{conversion[0]}{power}"
        total *= conversion[1] ** (-power if divides else power)
        position = match.end()
    return (dimensions, total) if unit else None

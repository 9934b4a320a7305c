"""Units of measurement: what they are called, which of them ends a text, and what one is in another."""

from __future__ import annotations

import re
from fractions import Fraction

# Canonical names, so that "5 metres" and "5 m" say the same; the factor only converts within one dimension.
_SPELLINGS = {
    "mm": "mm millimeter millimeters millimetre millimetres 毫米",
    "cm": "cm cms centimeter centimeters centimetre centimetres 厘米",
    "dm": "dm decimeter decimeters 分米",
    "m": "m meter meters metre metres 米",
    "km": "km kms kilometer kilometers kilometre kilometres 千米 公里",
    "in": "in inch inches",
    "ft": "ft foot feet 英尺",
    "yd": "yd yard yards",
    "mi": "mi mile miles 英里",
    "nmi": "nmi 海里",
    "mg": "mg milligram milligrams 毫克",
    "g": "g gram grams 克",
    "kg": "kg kilogram kilograms 千克 公斤",
    "lb": "lb lbs pound pounds",
    "ms": "ms millisecond milliseconds 毫秒",
    "s": "s sec secs second seconds 秒",
    "min": "min mins minute minutes 分钟 分",
    "h": "h hr hrs hour hours 小时 时",
    "day": "day days 天 日",
    "week": "week weeks 周",
    "month": "month months 月",
    "year": "year years 年 岁",
    "mL": "mL ml milliliter milliliters millilitre millilitres 毫升",
    "L": "L l liter liters litre litres 升",
    "°": "° deg degs degree degrees 度",
    "rad": "rad rads radian radians 弧度",
    "°C": "°C ℃ celsius 摄氏度",
    "°F": "°F ℉ fahrenheit",
    "K": "K kelvin",
    "N": "N newton newtons 牛",
    "J": "J joule joules 焦耳",
    "kJ": "kJ",
    "W": "W watt watts 瓦",
    "kW": "kW",
    "V": "V volt volts 伏",
    "A": "A amp amps ampere amperes 安",
    "Ω": "Ω ohm ohms 欧",
    "Hz": "Hz hertz 赫兹",
    "Pa": "Pa pascal pascals",
    "kPa": "kPa",
    "mol": "mol mols moles",
    "$": "$ dollar dollars usd",
    "cent": "cent cents",
    "元": "元 yuan",
    "unit": "unit units 单位",
    "个": "个 人 只 条 块 次 种 本 张 支",
}
_UNIT_NAMES = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
# "Cm" and "CM", unless it is another unit
for _name in [name for name in _UNIT_NAMES if name.isascii() and len(name) > 1]:
    _UNIT_NAMES.setdefault(_name.title(), _UNIT_NAMES[_name])
    _UNIT_NAMES.setdefault(_name.upper(), _UNIT_NAMES[_name])
_FACTORS = {
    "length": {"mm": "1/1000", "cm": "1/100", "dm": "1/10", "m": "1", "km": "1000"}
    | {"in": "0.0254", "ft": "0.3048", "yd": "0.9144", "mi": "1609.344", "nmi": "1852"},
    "mass": {"mg": "1/1000", "g": "1", "kg": "1000", "lb": "453.59237"},
    "time": {"ms": "1/1000", "s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
    "calendar": {"month": "1", "year": "12"},  # neither is a fixed number of days
    "volume": {"mL": "1/1000", "L": "1"},
    "energy": {"J": "1", "kJ": "1000"},
    "power": {"W": "1", "kW": "1000"},
    "pressure": {"Pa": "1", "kPa": "1000"},
    "money": {"cent": "1/100", "$": "1"},
}
_CONVERSION = {
    unit: (dimension, Fraction(factor)) for dimension, units in _FACTORS.items() for unit, factor in units.items()
}
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
        area = match["area"] or ""
        if area:
            power = "3" if area.startswith(("cu", "立")) else "2"
        unit = _UNIT_NAMES[match["unit"]] + power + match["per"].replace(" ", "")
        return text[: match.start()].rstrip(" ,"), unit
    return text, ""


def split_counted(text: str) -> tuple[str, str]:
    """A cleaned text without the words for what is counted ("12 red apples"), and "counted" if there are any."""
    bare = _COUNTED.sub("", text)
    return bare, "counted" if bare != text else ""


_SIMPLE_UNIT = re.compile(rf"(?P<sign>/|per|\*|)(?P<unit>{_ONE_UNIT})\^?\{{?(?P<power>[1-4]?)\}}?(?=/|per|\*|$)")


def unit_factor(unit: str) -> tuple[str, Fraction] | None:
    """The dimension of a unit and what one of it is in the dimension's base, where the two are known.

    A quotient such as km/h has the dimension "length1/time1".
    """
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

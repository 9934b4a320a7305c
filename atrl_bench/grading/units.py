"""Units of measurement: what they are called, which of them ends a text, and what one is in another."""

from __future__ import annotations

import re
from fractions import Fraction

# A unit a line: its dimension, what one of it is in the dimension's base, its name and other spellings. It is only
# converted within one dimension; a month is no fixed number of days.
_TABLE = """
length 1/1000 mm millimeter millimeters millimetre millimetres 毫米
length 1/100 cm cms centimeter centimeters centimetre centimetres 厘米
length 1/10 dm decimeter decimeters 分米
length 1 m meter meters metre metres 米
length 1000 km kms kilometer kilometers kilometre kilometres 千米 公里
length 0.0254 in inch inches
length 0.3048 ft foot feet 英尺
length 0.9144 yd yard yards
length 1609.344 mi mile miles 英里
length 1852 nmi 海里
mass 1/1000 mg milligram milligrams 毫克
mass 1 g gram grams 克
mass 1000 kg kilogram kilograms 千克 公斤
mass 453.59237 lb lbs pound pounds
time 1/1000 ms millisecond milliseconds 毫秒
time 1 s sec secs second seconds 秒
time 60 min mins minute minutes 分钟 分
time 3600 h hr hrs hour hours 小时 时
time 86400 day days 天 日
time 604800 week weeks 周
calendar 1 month months 月
calendar 12 year years 年 岁
volume 1/1000 mL ml milliliter milliliters millilitre millilitres 毫升
volume 1 L l liter liters litre litres 升
- - ° deg degs degree degrees 度
- - rad rads radian radians 弧度
- - °C ℃ celsius 摄氏度
- - °F ℉ fahrenheit
- - K kelvin
- - N newton newtons 牛
energy 1 J joule joules 焦耳
energy 1000 kJ
power 1 W watt watts 瓦
power 1000 kW
- - V volt volts 伏
- - A amp amps ampere amperes 安
- - Ω ohm ohms 欧
- - Hz hertz 赫兹
pressure 1 Pa pascal pascals
pressure 1000 kPa
- - mol mols moles
money 1 $ dollar dollars usd
money 1/100 cent cents
- - 元 yuan
- - unit units 单位
- - 个 人 只 条 块 次 种 本 张 支
"""
_UNITS = [(dimension, factor, names) for dimension, factor, *names in map(str.split, _TABLE.strip().splitlines())]
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

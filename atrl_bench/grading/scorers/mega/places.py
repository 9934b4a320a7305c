"""Geographic proximity: exp(-distance / 100 km) between the places that answer and gold name."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from atrl_bench.grading.scorers.mega.numeric import number_of
from atrl_bench.grading.scorers.mega.sequences import dict_of
from atrl_bench.grading.scorers.mega.unavailable import CannotScoreError

DECAY_KM = 100.0
EARTH_RADIUS_KM = 6371.0088
PARTS = ("country", "province_or_state", "municipality")
COORDINATES = ("latitude", "longitude")


def proximity(answer: Any, gold: Any) -> float:
    """Return exp(-d / 100 km), 1 for the same names, and 0 where the answer leaves a name out.

    Two places with different names need a gazetteer; the official script asks a public geocoding service, which this
    one does not. With coordinates beside the names on both sides the distance is computed.
    """
    predicted, right = dict_of(answer), dict_of(gold)
    if predicted is None or right is None:
        return 0.0
    points = [[number_of(side.get(name)) for name in COORDINATES] for side in (predicted, right)]
    here, there = ([value for value in point if value is not None] for point in points)
    if len(here) == len(there) == len(COORDINATES):
        return math.exp(-great_circle_km((here[0], here[1]), (there[0], there[1])) / DECAY_KM)
    if not all(_name(predicted, part) for part in PARTS):
        return 0.0
    if all(_name(predicted, part) == _name(right, part) for part in PARTS):
        return 1.0
    raise CannotScoreError("the distance between two named places needs a gazetteer")


def great_circle_km(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Return the distance over a spherical Earth between two points (latitude, longitude) in degrees."""
    (lat, lon), (lat2, lon2) = ((math.radians(value) for value in point) for point in (here, there))
    half = math.sin((lat2 - lat) / 2) ** 2 + math.cos(lat) * math.cos(lat2) * math.sin((lon2 - lon) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(max(0.0, half))))


def _name(names: dict[Any, Any], part: str) -> str:
    value = names.get(part)
    text = unicodedata.normalize("NFKD", value) if isinstance(value, str) else ""
    return " ".join("".join(letter for letter in text if not unicodedata.combining(letter)).casefold().split())

"""Geographic proximity: exp(-distance / 100 km) between the places that answer and gold name."""

from __future__ import annotations

import math
from typing import Any

from atrl_bench.grading.scorers.mega.metric import CannotScoreError, comparing
from atrl_bench.grading.scorers.mega.numeric import number_of
from atrl_bench.grading.scorers.mega.sequences import dict_of
from atrl_bench.grading.scorers.mega.strings import without_accents

DECAY_KM = 100.0
EARTH_RADIUS_KM = 6371.0088
PARTS = ("country", "province_or_state", "municipality")


def _proximity(predicted: dict[Any, Any], right: dict[Any, Any]) -> float:
    """Return exp(-d / 100 km), 1 for the same names, and 0 where the answer leaves a name out.

    Two places with different names need a gazetteer; the official script asks a public geocoding service, which this
    one does not. With coordinates beside the names on both sides the distance is computed.
    """
    here, there = (_coordinates(side) for side in (predicted, right))
    if here and there:
        return math.exp(-great_circle_km(here, there) / DECAY_KM)
    if not all(_name(predicted, part) for part in PARTS):
        return 0.0
    if all(_name(predicted, part) == _name(right, part) for part in PARTS):
        return 1.0
    raise CannotScoreError("the distance between two named places needs a gazetteer")


proximity = comparing(dict_of, _proximity)


def _coordinates(place: dict[Any, Any]) -> tuple[float, float] | None:
    latitude, longitude = number_of(place.get("latitude")), number_of(place.get("longitude"))
    return None if latitude is None or longitude is None else (latitude, longitude)


def great_circle_km(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Return the distance over a spherical Earth between two points (latitude, longitude) in degrees."""
    (lat, lon), (lat2, lon2) = ((math.radians(value) for value in point) for point in (here, there))
    half = math.sin((lat2 - lat) / 2) ** 2 + math.cos(lat) * math.cos(lat2) * math.sin((lon2 - lon) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(max(0.0, half))))


def _name(names: dict[Any, Any], part: str) -> str:
    value = names.get(part)
    return " ".join(without_accents(value).casefold().split()) if isinstance(value, str) else ""

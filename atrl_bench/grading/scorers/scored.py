"""What a scorer says of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atrl_bench.results.records import State


@dataclass(frozen=True)
class Scored:
    """What an answer is worth, between 0 and 1, why, and the parts of the score by name."""

    score: float
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)
    unscored: State | None = None  # `unparseable` or `judge failed`: the score then says nothing

    @property
    def state(self) -> State:
        """Only a full point is `correct`."""
        return self.unscored or ("correct" if self.score >= 1 else "wrong")

"""What verl's configuration says about credit, and under which configurations there can be none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from atrl_bench.credit.config import CreditConfig
from atrl_bench.errors import InvalidFileError
from atrl_bench.settings import read_mapping

KEY = "token_credit"
"""The choice at the top of verl's configuration, and the credit of each token in its batches."""

ULYSSES = "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"


@dataclass(frozen=True)
class VerlCredit:
    """`token_credit` in verl's configuration."""

    rule: str
    config: dict[str, Any] = field(default_factory=dict)
    """Fields of CreditConfig that differ from its defaults."""
    seed: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> VerlCredit | None:
        """What a configuration of verl chooses, None where it trains without credit."""
        chosen = config.get(KEY)
        if chosen is None:
            return None
        credit = cls(str(chosen["rule"]), dict(chosen.get("config") or {}), int(chosen.get("seed") or 0))
        credit.credit_config()  # an unknown field is an error now, not in a worker
        return credit

    def credit_config(self) -> CreditConfig:
        return CreditConfig(**self.config)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def refuse_what_cannot_be_credited(config: Mapping[str, Any]) -> None:
    """Raise if under this configuration the attention rows, or the credit of them, would be wrong or missing."""
    for setting, condition in conditions().items():
        needed, value = condition["values"], _at(config, setting)
        if value is not None and value not in needed:
            what = f"verl cannot give token credit with {setting}={value}."
            raise InvalidFileError(what, why=condition["why"], next_step=f"set {setting}={needed[0]}")


@cache
def conditions() -> dict[str, Any]:
    """The settings of verl that credit depends on: the values that it can be had with, and why with no other."""
    return read_mapping(Path(__file__).with_suffix(".yaml"))


def _at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if hasattr(value, "get") else None
    return value

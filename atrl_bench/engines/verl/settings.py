"""What verl's configuration says about credit, and under which configurations there can be none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from atrl_bench.credit.config import CreditConfig
from atrl_bench.errors import InvalidFileError

KEY = "token_credit"
"""The choice at the top of verl's configuration, and the credit of each token in its batches."""

_ENGINE = "Only verl's FSDP engines make the pass that leaves the attention rows."
ULYSSES = "Ulysses gives each process a part of the sequence and of the heads; a row needs the whole of both."
_BYPASS = "It takes the old log-probabilities from the rollout, and so skips the pass that leaves the attention rows."
_TRAINER = "Credit enters the advantages in verl's synchronous trainer."
_TOOLS = "Token credit is not defined where tools write a part of the response."
_FUSED = "The rows were not compared where logits come from fused kernels."


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
    for setting, value, needed, why in _conditions(config):
        if value not in needed:
            what = f"verl cannot give token credit with {setting}={value}."
            raise InvalidFileError(what, why=why, next_step=f"set {setting}={needed[0]}")


def _conditions(config: Mapping[str, Any]) -> Iterator[tuple[str, Any, tuple[Any, ...], str]]:
    """(setting, its value, the values that credit can be had with, why)."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    settings: dict[str, tuple[tuple[Any, ...], str]] = {
        f"{actor}.strategy": (("fsdp2", "fsdp"), _ENGINE),
        f"{actor}.ulysses_sequence_parallel_size": ((1,), ULYSSES),
        f"{actor}.fsdp_config.ulysses_sequence_parallel_size": ((1,), ULYSSES),
        "algorithm.rollout_correction.bypass_mode": ((False,), _BYPASS),
        "trainer.use_v1": ((True,), _TRAINER),
        "trainer.v1.trainer_mode": (("sync",), _TRAINER),
        f"{rollout}.multi_turn.enable": ((False,), _TOOLS),
        "actor_rollout_ref.model.use_fused_kernels": ((False,), _FUSED),
    }
    for setting, (needed, why) in settings.items():
        value = _at(config, setting)
        yield setting, needed[0] if value is None else value, needed, why


def _at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if hasattr(value, "get") else None
    return value

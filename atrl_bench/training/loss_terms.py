"""Terms of the loss that a recipe adds to its objective's: the user's own, by name.

Shapes: B responses, T response tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from atrl_bench.training import own_code
from atrl_bench.training.rollout import Rollout, RolloutTools, SampledResponse, ScoredTokens


class LossTerm(Protocol):
    """A function of a micro-batch; or an object that is one, and looks at each rollout before the updates on it."""

    def prepare(
        self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools
    ) -> Mapping[str, Tensor]:
        """What micro-batches then have in `extra`, a row a response; further passes are asked for here. Optional."""

    def __call__(self, batch: Rollout, scored: ScoredTokens) -> Tensor:
        """loss_BT, added to that of the objective before tokens are reduced; padding counts nothing."""


class LossTerms:
    """Those of a recipe."""

    def __init__(self, losses: Mapping[str, Mapping[str, Any]]) -> None:
        self._terms = {name: own_code.make("losses", name, settings) for name, settings in losses.items()}
        self._short = own_code.numbered(name.rpartition(":")[2] for name in losses)

    def prepare(self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> dict[str, Tensor]:
        extra: dict[str, Tensor] = {}
        for name, term in self._terms.items():
            if not hasattr(term, "prepare"):
                continue
            with own_code.telling("losses", name):
                for key, value in term.prepare(rollout, responses, tools).items():
                    if len(value) != len(rollout) or key in extra:
                        raise ValueError(f"What it keeps as {key!r} has no row for each response, or is kept already.")
                    extra[key] = value
        return extra

    def of(self, batch: Rollout, scored: ScoredTokens) -> Iterator[tuple[str, Tensor]]:
        """The short name of each, and its loss_BT."""
        for short, (name, term) in zip(self._short, self._terms.items(), strict=True):
            with own_code.telling("losses", name):
                loss_BT = term(batch, scored)
                if loss_BT.shape != batch.mask_BT.shape:
                    raise ValueError(f"It returned {tuple(loss_BT.shape)}, not one for each token.")
            yield short, loss_BT

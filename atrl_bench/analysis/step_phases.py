"""How the seconds of a training step divide into phases: the one way in which `overhead` and `doctor --gpu` time it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from atrl_bench.training.clock import PhaseClock

if TYPE_CHECKING:
    from atrl_bench.training.trainer import CreditTrainer

REST = "the rest"
# How a report calls the phases, in the order in which a step goes through them.
PHASES = {
    "generation": "generation",
    "generation_shuffled": "generation on shuffled frames",
    "reward": "grading the responses",
    "scoring": "forward, scoring",
    "forward": "forward, training",
    "backward": "backward",
    "attention_rows": "attention rows",
    "graph": "token graph",
    "credit": "credit from the graph",
    "batching": "batching",
    "optimiser": "optimiser",
    REST: REST,
}
CREDIT_PHASES = ("attention_rows", "graph", "credit")


class StepPhases:
    """A stopwatch over the steps of a trainer; its clock may be one that measures more than seconds."""

    def __init__(self, trainer: CreditTrainer, clock: PhaseClock) -> None:
        self._trainer, self._graph, self._started = trainer, 0.0, 0.0
        trainer.clock = clock
        import torch

        if trainer.credit is not None and not torch.cuda.is_available():
            # One clock for all phases. On a GPU the credit keeps its own, of wall seconds too, which does not wait.
            trainer.credit.clock = clock.now
        trainer.accelerator.backward = self._timed("backward", trainer.accelerator.backward)

    def start(self) -> None:
        """Begin to measure; what went before is forgotten."""
        self._trainer.clock.pop()
        self._graph = self._graph_seconds()
        self._started = self._trainer.clock.now()

    def stop(self) -> tuple[float, dict[str, float]]:
        """Return the seconds since `start`, and those of each phase; the phases add up to the whole."""
        seconds = self._trainer.clock.now() - self._started
        parts = self._trainer.clock.pop()
        # What is left of this phase, once the backward pass has its own, is the forward pass and the loss.
        parts["forward"] = parts.pop("forward_backward", 0.0)
        if graph := self._graph_seconds() - self._graph:
            parts["graph"] = graph
            parts["credit"] -= graph
        return seconds, parts | {REST: seconds - sum(parts.values())}

    def _graph_seconds(self) -> float:
        return self._trainer.credit.graph_seconds if self._trainer.credit else 0.0

    def _timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            with self._trainer.clock.phase(phase):
                return function(*arguments, **options)

        return timed

"""What a signal is once it is measured: a record of plain values, which the store keeps and pages print."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from atrl_bench.lab.signal.efficiency import Efficiency
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.results.statistics.means import Estimate, Number
from atrl_bench.settings import read_mapping


@dataclass(frozen=True)
class StepGain:
    """What one step does to the success on problems that it was not made from, in points."""

    step_size: Number
    """In learning rates of the profile: the one of the grid that is best for the rule on average."""
    gain: Estimate
    """Over directions, each from prompts of its own."""
    over_uniform: Estimate
    """The same minus uniform credit's at *its* best step size."""


@dataclass(frozen=True)
class RuleSignal:
    """What one rule does."""

    rule: str
    efficiency: Efficiency
    efficiency_scaled: Efficiency
    """Of gradients divided by the root of their second moments, as Adam divides them."""
    top_share: Number
    reliability: Number
    anchor_auc: Number
    step: StepGain | None
    reliability_ends: tuple[Number, Number] = (math.nan, math.nan)
    """The 95 % interval of `reliability`, over prompts."""
    auc_ends: tuple[Number, Number] = (math.nan, math.nan)


@dataclass(frozen=True)
class Signal(Record):
    """What all rules do at one checkpoint."""

    model: str
    data: str
    prompts: int
    responses: int
    parameters: int
    success: Number
    rules: list[RuleSignal]
    problems: int | None = None  # that the set has; older signals do not say

    @property
    def about(self) -> str:
        return (
            f"{self.responses:,} responses to {self.prompts} problems of {self.data}, {self.success:.0%} right; "
            f"gradients of {self.parameters:,} parameters"
        )

    def blocks(self) -> Iterable[Block]:
        yield (
            f"{self.model} on {self.data}: {self.responses} responses to {self.prompts} problems, {self.success:.0%} "
            f"right; gradients of {self.parameters:,} parameters."
        )
        yield ""
        rows = [
            (
                one.rule,
                *map(_with_interval, (one.efficiency_scaled, one.efficiency)),
                *map(_number, (one.top_share, one.reliability, one.anchor_auc)),
            )
            for one in self.rules
        ]
        yield Rows(rows, ("rule", "with Adam", "plain", "top", "reliability", "AUC"), right=range(1, 6), indent=0)
        steps = [
            (one.rule, _points(one.step.gain), _points(one.step.over_uniform), f"{one.step.step_size:g}")
            for one in self.rules
            if one.step is not None
        ]
        if steps:
            yield ""
            yield Rows(steps, ("one step", "gain", "over uniform", "learning rates"), right=range(1, 4), indent=0)
        yield ""
        yield Rows([(name, text) for name, text in _meanings().items() if steps or name != "gain"], indent=0)


@cache
def _meanings() -> dict[str, str]:
    return read_mapping(Path(__file__).with_suffix(".yaml"))


def _with_interval(one: Efficiency) -> str:
    return "1" if one.low == one.high == 1 else one.text


def _points(estimate: Estimate) -> str:
    return f"{estimate.mean:+.1f} ±{estimate.half_width():.1f}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"

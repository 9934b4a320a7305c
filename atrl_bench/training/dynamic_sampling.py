"""DAPO's dynamic sampling (arXiv 2503.14476, section 3.2): an update sees only groups with 0 < correct < G.

A group whose responses are all right or all wrong has no advantage and dilutes the rest. Such groups are dropped and
further problems drawn for them. Accuracy decides, not the total reward: with a length punishment added hardly any
group is constant. The official code draws without end; here the number of further draws is bounded, and groups that
are still missing then are filled with dropped ones, whose advantage is zero, so that the batch keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from atrl_bench.training.recipe import DynamicSampling

Group = TypeVar("Group")


@dataclass(frozen=True)
class Refilled(Generic[Group]):
    """The groups of one rollout, in the order in which they were generated, and what it took."""

    groups: list[Group]
    num_generations: int
    num_dropped: int
    num_unfilled: int


def refill(
    groups: list[Group],
    is_mixed: Callable[[Group], bool],
    draw: Callable[[int, int], list[Group]],
    settings: DynamicSampling,
) -> Refilled[Group]:
    """As many groups as came in, mixed ones only as far as `draw` yields them: some responses right and some wrong.

    `draw(n, number)` generates groups for n further problems, for the `number`-th time.
    """
    wanted = len(groups)
    mixed = [group for group in groups if is_mixed(group)]
    constant = [group for group in groups if not is_mixed(group)]
    extra = 0
    while extra < settings.max_extra_generations and (missing := max(0, wanted - len(mixed))):
        extra += 1
        drawn = draw(math.ceil(missing * settings.oversampling), extra)
        mixed += [group for group in drawn if is_mixed(group)]
        constant += [group for group in drawn if not is_mixed(group)]
    num_unfilled = max(0, wanted - len(mixed))
    return Refilled(
        groups=(mixed + constant[:num_unfilled])[:wanted],
        num_generations=1 + extra,
        num_dropped=len(constant) - num_unfilled,
        num_unfilled=num_unfilled,
    )

"""`atrl-bench overhead`: where a training step's time goes, with and without token credit.

The weights may be the mini base's, or random ones at the shape of a large model: how long a step takes does not depend
on what the model has learned, but on its size, on the length of its responses and on how many there are.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from atrl_bench.analysis.random_model import Shape, require_gpu, shape_of
from atrl_bench.analysis.step_time import CREDIT_PHASES, PHASES, Phases, measured_steps
from atrl_bench.errors import InvalidFileError
from atrl_bench.printable import Block, Record, blocks_of
from atrl_bench.profiles import Profile

# What the paper's text on efficiency prints, of a sum that leaves generation out.
PUBLISHED = {"forward": 65.4, "backward": 33.5, "AT-RL": 1.2}
PUBLISHED_SOURCE = "Computational Efficiency: one iteration on an NVIDIA A100"


@dataclass(frozen=True)
class Overhead(Record):
    """Medians over rollouts with their updates; shares are percent of the step with the credit.

    `ratio` is that of the same rollout with the credit and without.
    """

    profile: str
    model: str
    shape: dict[str, Any] | None
    recipe: str
    credit: str
    rollouts: int
    threads: int
    clock: str
    device: str
    peak_gb: float | None  # of a GPU's memory; both trainers are in it
    seconds_plain: float
    seconds_credited: float
    ratio: float
    shares: dict[str, float]
    as_published: dict[str, float]

    def document(self) -> dict[str, Any]:
        published = {"published": PUBLISHED, "published_source": PUBLISHED_SOURCE}
        notes = ["A tiny model: its shares tell how the work is divided here, not on an A100."] * (self.model == "mini")
        notes += ["Adapters alone are trained: a full backward pass takes a larger share."] * (self.shape is not None)
        return asdict(self) | published | {"notes": notes}

    def blocks(self) -> Iterable[Block]:
        return blocks_of(self.document())


def overhead(
    profile: Profile,
    *,
    recipe: str = "grpo",
    credit: str = "atrl",
    shape: str | Shape | None = None,
    tokens: int | None = None,
    rollouts: int = 5,
    threads: int = 1,
) -> Overhead:
    """What the credit costs in a step, and the share of each phase.

    `shape` names a model of random weights (`7b`); without it the profile's base model is measured. `tokens` are those
    of each of its responses, which are then drawn and not sampled, to one problem a rollout.
    """
    if isinstance(shape, str):
        name, shape = shape, shape_of(shape)
        require_gpu(name, "atrl-bench overhead --shape tiny")
    if tokens is not None:
        if shape is None:
            raise InvalidFileError(
                "A trained model ends its responses where it likes.",
                why="Random weights alone are given responses of a length.",
                next_step=f"atrl-bench overhead --shape 7b --tokens {tokens}",
            )
        shape = replace(shape, response_tokens=tokens, num_problems=1)
    if credit == "uniform":
        raise InvalidFileError(
            "Uniform credit is what the other credit is compared with.", next_step="atrl-bench overhead --credit atrl"
        )
    import torch

    before, on_gpu = torch.get_num_threads(), torch.cuda.is_available()
    torch.set_num_threads(threads)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        steps = measured_steps(profile, recipe, ["uniform", credit], shape, rollouts, samples=tokens is None)
    finally:
        torch.set_num_threads(before)
    plain, credited = ([sum(step.values()) for step in steps[name]] for name in ("uniform", credit))
    return Overhead(
        profile=profile.name,
        model="random weights" if shape else profile.model,
        shape=asdict(shape) if shape else None,
        recipe=recipe,
        credit=credit,
        rollouts=rollouts,
        threads=threads,
        clock="wall" if on_gpu else "processor",
        device=torch.cuda.get_device_name() if on_gpu else "cpu",
        peak_gb=torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None,
        seconds_plain=statistics.median(plain),
        seconds_credited=statistics.median(credited),
        ratio=statistics.median(new / old for old, new in zip(plain, credited, strict=True)),
        shares=shares_of(steps[credit]),
        as_published=as_published(steps[credit]),
    )


def shares_of(steps: Sequence[Phases]) -> dict[str, float]:
    """The median over rollouts of each phase's share of the whole, in percent."""
    names = [name for name in PHASES if any(name in step for step in steps)]
    names += sorted({name for step in steps for name in step} - set(names))
    return {name: 100 * statistics.median(step.get(name, 0.0) / sum(step.values()) for step in steps) for name in names}


def as_published(steps: Sequence[Phases]) -> dict[str, float]:
    """The paper's three shares: of forward, backward and credit together, nothing else counted."""
    parts = {"forward": ("scoring", "forward"), "backward": ("backward",), "AT-RL": CREDIT_PHASES}
    seconds = [{part: sum(step.get(name, 0.0) for name in names) for part, names in parts.items()} for step in steps]
    return {part: statistics.median(100 * each[part] / sum(each.values()) for each in seconds) for part in parts}

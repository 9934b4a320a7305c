"""What travels between the methods of TRL's trainer while a rollout is made and trained on.

TRL's methods call one another with arguments of their own. Whatever ours need beside them is in one `RolloutState`,
which is set around each call of a TRL method and gone after it.

Shapes: B responses, T response tokens, G responses to a problem, F rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from torch import Tensor

from atrl_bench.credit.truth import TokenTruth
from atrl_bench.training.group_sampling import PromptBatch
from atrl_bench.training.multimodal import Visual

# TRL makes the first two while it scores a rollout and the last in each loss; the others are asked for by ours.
PassName = Literal["old policy", "reference", "critic", "dependency", "training"]


# Places in what TRL's `_generate` returns: the sampler's log-probabilities, and the prompts' images.
LOGPROBS, IMAGES = 4, 6


@dataclass
class ResponseGroup:
    """The G responses to one problem, as TRL's `_generate` returns them, with their rewards."""

    row: int
    key: str  # what names its random numbers
    inputs: list[dict[str, Any]]
    generated: tuple[list[Any] | None, ...]
    rewards_GF: Tensor
    visual: Visual | None = None  # the prompt's images and videos, in a run that has videos
    process: int = 0  # which generated it; another one's has no inputs, no pixels and no `visual` here

    def without_media(self) -> ResponseGroup:
        """Return the group as the other processes get it, who read for themselves what its prompt shows."""
        generated = (*self.generated[:IMAGES], None, *self.generated[IMAGES + 1 :])
        return replace(self, inputs=[], visual=None, generated=generated, rewards_GF=self.rewards_GF.cpu())

    @property
    def accuracies(self) -> Tensor:
        """The accuracy reward of each response, which is the first reward of every recipe."""
        return self.rewards_GF[:, 0]

    @property
    def about_video(self) -> bool:
        """Whether the problem shows a video."""
        return bool(self.inputs[0]["videos"])


class SampledResponse(NamedTuple):
    """One of a rollout's responses, which this process trains on."""

    group: ResponseGroup
    number: int  # among all responses of the rollout, group by group

    @property
    def repeat(self) -> int:
        """Its place in its group."""
        return self.number % len(self.group.rewards_GF)

    @property
    def example(self) -> dict[str, Any]:
        """The problem that it answers."""
        return self.group.inputs[self.repeat]

    @property
    def generated(self) -> list[Any]:
        """What TRL's `_generate` returns of it: of a field that is no list, the field."""
        return [field[self.repeat] if isinstance(field, list) and field else field for field in self.group.generated]


@dataclass
class ScoringPass:
    """A pass of a model over responses: which one it is, what it needs beside TRL's arguments, and what it leaves."""

    name: PassName
    visuals_B: Sequence[Visual] = ()  # what each response's prompt shows, in a run that has videos
    # Whose attention rows become credit, and what is known of those responses. None: no rows are recorded.
    needed_B: Sequence[bool] | None = None
    truths_B: Sequence[TokenTruth | None] = ()
    sampled_B: Sequence[Sequence[float]] | None = None  # log-probabilities that the sampler of the responses kept
    trim: bool = True  # rows may be put in another order and cut to their length
    loss_inputs: dict[str, Any] | None = None  # of TRL's loss, which reads them after its training pass

    logprobs_BT: Tensor = field(init=False)
    # Waits for the credit of the responses, which may still be computed.
    join_credit: Callable[[], Tensor] | None = None


@dataclass
class RolloutState:
    """What a call of a TRL method finds when it comes back to ours."""

    prompts: PromptBatch | None = None  # about to be answered
    groups: Sequence[ResponseGroup] = ()  # answered and rewarded, those of all processes
    responses: Sequence[SampledResponse] = ()  # of them, this process's share
    passes: list[ScoringPass] = field(default_factory=list)  # about to be made, in TRL's order

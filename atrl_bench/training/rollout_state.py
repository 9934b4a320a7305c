"""What travels between the methods of TRL's trainer while a rollout is made and trained on.

TRL's methods call one another with arguments of their own. Whatever ours need beside them is in one `RolloutState`,
which is set around each call of a TRL method and gone after it.

Shapes: B responses, T response tokens, G responses to a problem, F rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor

from atrl_bench.credit.truth import TokenTruth
from atrl_bench.training.clock import PhaseClock
from atrl_bench.training.multimodal import PromptBatch, Visual

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
        """The group as the other processes get it, who read for themselves what its prompt shows."""
        generated = (*self.generated[:IMAGES], None, *self.generated[IMAGES + 1 :])
        return replace(self, inputs=[], visual=None, generated=generated, rewards_GF=self.rewards_GF.cpu())

    @property
    def accuracies(self) -> Tensor:
        """The accuracy reward of each response, which is the first reward of every recipe."""
        return self.rewards_GF[:, 0]

    @property
    def about_video(self) -> bool:
        return bool(self.inputs[0]["videos"])


class SampledResponse(NamedTuple):
    """One of a rollout's responses, which this process trains on."""

    group: ResponseGroup
    number: int  # among all responses of the rollout, group by group

    @property
    def repeat(self) -> int:
        return self.number % len(self.group.rewards_GF)

    @property
    def example(self) -> dict[str, Any]:
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
    # Waits for the credit of the responses, which may still be computed.
    join_credit: Callable[[], Tensor] | None = None


@dataclass
class RolloutState:
    """What a call of a TRL method finds when it comes back to ours."""

    prompts: PromptBatch | None = None  # about to be answered
    groups: Sequence[ResponseGroup] = ()  # answered and rewarded, those of all processes
    responses: Sequence[SampledResponse] = ()  # of them, this process's share
    passes: list[ScoringPass] = field(default_factory=list)  # about to be made, in TRL's order


class RolloutTrainer(Protocol):
    """What rewards, advantages and token weights may ask of the trainer whose rollout they are handed."""

    accelerator: Any
    model: Any
    processing_class: Any
    clock: PhaseClock
    run_seed: int
    num_generations: int

    @property
    def rollout(self) -> int:
        """The number of the rollout that is made or trained on."""

    @property
    def in_step(self) -> bool:
        """Whether a process can sample only together with all others."""

    def note(self, name: str, value: float) -> None:
        """Keep a value for the next line of metrics, which has the mean of all."""

    def score(self, batch: Mapping[str, Any], name: PassName, *, trim: bool = True, model: Any = None) -> Tensor:
        """The log-probabilities of a batch's responses in one more pass over them, by the policy unless told."""

    def respond(self, messages_P: Sequence[Any], keys_P: Sequence[str], size: int) -> list[list[dict[str, str]]]:
        """`size` responses to each prompt, outside of the metrics of the rollout."""

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token by itself."""

    def total_rewards(self, group: ResponseGroup) -> list[float]:
        """The weighted sum of the rewards of each response."""

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""

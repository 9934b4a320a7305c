"""T-GRPO's rewards (arXiv 2503.21776): right answers earn more where seeing the frames in order makes them right.

Each question about a video is answered G times from its frames in order and a share of G times from the same frames in
a random order. Where the first group is right at least mu times as often as the second, each right response of the
first earns alpha more. The second group is never trained on. Questions about images are plain GRPO. A second reward is
for the length of a right response.

Where this differs from the official code (tulerfeng/Video-R1, 59d65c3):
1. Every pass sees the frames' moments and the padding mask; there the scoring pass drops both.
2. A video that cannot be decoded gives way to the next problem; there the question is asked without it.
3. Rewards are typed problem by problem; there a batch is taken to be of one type.
4. The order of the frames is drawn from (run seed, rollout, problem), so a resumed run shuffles alike.

Shapes: G responses in order, H on shuffled frames, P problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from atrl_bench.training.order import generator
from atrl_bench.training.recipe import Temporal
from atrl_bench.training.rewards import GroupReward, Reward
from atrl_bench.training.rewards.combined import Rewards
from atrl_bench.training.rollout import messages_of

if TYPE_CHECKING:
    from atrl_bench.training.rollout import Group, RolloutTools


def temporal_bonus(accuracy_G: Tensor, shuffled_accuracy_H: Tensor, settings: Temporal) -> Tensor:
    """Alpha for each right response in order if p >= mu p_shuffled, else nothing.

    p is the mean accuracy reward, which may be a fraction (equation 1 of the paper, with the mu = 0.8 of its code);
    what no reward could grade, NaN, counts in none.
    Where neither group is ever right p = p_shuffled = 0: there is no right response to reward.
    """
    helps = accuracy_G.nanmean() >= settings.tolerance * shuffled_accuracy_H.nanmean()
    return settings.bonus * (helps & (accuracy_G > settings.right_above)).float()


def length_bonus(
    accuracy_G: Tensor, lengths_G: Tensor, rewarded_lengths: tuple[int, int], settings: Temporal
) -> Tensor:
    """Omega for each right response whose length is rewarded, if at least two of the group are right."""
    right_G = accuracy_G > settings.right_above
    shortest, longest = rewarded_lengths
    in_range_G = (lengths_G >= shortest) & (lengths_G <= longest)
    return settings.length_bonus * (right_G & in_range_G & (right_G.sum() >= 2)).float()


def shuffled_order(num_frames: int, run_seed: int, key: str) -> list[int]:
    """A random order of the frames that is not their own, where there are two to exchange."""
    rng = generator("frames", run_seed, key)
    order = rng.permutation(num_frames)
    while num_frames > 1 and np.array_equal(order, np.arange(num_frames)):
        order = rng.permutation(num_frames)
    return order.tolist()


class TemporalReward(GroupReward):
    """The bonus for the order of the frames."""

    __name__ = "temporal"

    def __init__(self, settings: Temporal, accuracy: Reward) -> None:
        self._settings, self._accuracy = settings, accuracy

    def of_groups(self, groups: Sequence[Group], tools: RolloutTools) -> list[Tensor]:
        shuffled_P = self.shuffled_accuracies(groups, tools)
        rewards_P = [torch.zeros_like(group.accuracies) for group in groups]
        in_order, shuffled, rewarded = [], [], []
        for index, (group, shuffled_H) in enumerate(zip(groups, shuffled_P, strict=True)):
            if shuffled_H is not None:
                rewards_P[index] = temporal_bonus(group.accuracies, shuffled_H, self._settings)
                in_order.append(group.accuracies.nanmean().item())
                shuffled.append(shuffled_H.nanmean().item())
                rewarded.append(float(rewards_P[index].any()))
        if shuffled:
            tools.note("temporal/accuracy_in_order", float(np.mean(in_order)), len(in_order))
            tools.note("temporal/accuracy_shuffled", float(np.mean(shuffled)), len(shuffled))
            tools.note("temporal/rewarded", float(np.mean(rewarded)), len(rewarded))
        return rewards_P

    def shuffled_accuracies(self, groups: Sequence[Group], tools: RolloutTools) -> list[Tensor | None]:
        """The accuracy rewards on shuffled frames for each group about a video, None for one about an image."""
        again = [group for group in groups if group.about_video]
        size = self._settings.num_shuffled(tools.group_size)
        with tools.clock.phase("generation_shuffled"):
            prompts = [shuffled_prompt(group, tools.run_seed) for group in again]
            token_ids, completions = tools.respond(prompts, [f"{group.key}:shuffled" for group in again], size)
        if not again:
            return [None] * len(groups)
        examples, accuracy = [group.example for group in again], Rewards([self._accuracy])
        with tools.clock.phase("reward"):
            [rewards] = accuracy.of_responses(examples, prompts, token_ids, completions, lambda *_, **__: None).T
        rewards_of = {group.key: rewards_H for group, rewards_H in zip(again, rewards.split(size), strict=True)}
        return [rewards_of.get(group.key) for group in groups]


class LengthReward(GroupReward):
    """The bonus for the length of a right response."""

    __name__ = "length"

    def __init__(self, settings: Temporal, rewarded_lengths: tuple[int, int]) -> None:
        self._settings, self._rewarded_lengths = settings, rewarded_lengths

    def of_groups(self, groups: Sequence[Group], tools: RolloutTools) -> list[Tensor]:
        rewards_P = []
        for group in groups:
            lengths_G = torch.tensor([len(ids) for ids in group.response_ids], device=group.rewards_GF.device)
            rewards_P.append(length_bonus(group.accuracies, lengths_G, self._rewarded_lengths, self._settings))
        return rewards_P


def shuffled_prompt(group: Group, run_seed: int) -> list[dict[str, Any]]:
    example = group.example
    videos = [
        video.reordered(shuffled_order(len(video.frames), run_seed, f"{group.key}:{index}"))
        for index, video in enumerate(example["videos"])
    ]
    return messages_of({**example, "videos": videos})

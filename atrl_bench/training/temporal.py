"""T-GRPO (arXiv 2503.21776): reward right answers more where seeing the frames in order is what makes them right.

Each question about a video is answered G times from its frames in order and a share of G times from the same frames in
a random order. Where the first group is right at least mu times as often as the second, each right response of the
first earns alpha more. The second group is never trained on. Questions about images are plain GRPO.

Where this differs from the official code (tulerfeng/Video-R1, 59d65c3):
1. Every pass sees the frames' moments and the padding mask; there the scoring pass drops both.
2. A video that cannot be decoded gives way to the next problem; there the question is asked without it.
3. Rewards are typed problem by problem; there a batch is taken to be of one type.
4. The order of the frames is drawn from (run seed, rollout, problem), so a resumed run shuffles alike.

Shapes: G responses in order, H on shuffled frames, P problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atrl_bench.training.multimodal import with_media
from atrl_bench.training.order import generator
from atrl_bench.training.recipe import Temporal
from atrl_bench.training.trainer import CreditTrainer, Group

TEMPORAL, LENGTH = "temporal", "length"  # columns of the rewards that this trainer fills


def temporal_bonus(accuracy_G: Tensor, shuffled_accuracy_H: Tensor, settings: Temporal) -> Tensor:
    """Return alpha for each right response in order if p >= mu p_shuffled, else nothing.

    p is the mean accuracy reward, which may be a fraction (equation 1 of the paper, with the mu = 0.8 of its code).
    Where neither group is ever right p = p_shuffled = 0: there is no right response to reward.
    """
    helps = accuracy_G.mean() >= settings.tolerance * shuffled_accuracy_H.mean()
    return settings.bonus * (helps & (accuracy_G > settings.right_above)).float()


def length_bonus(
    accuracy_G: Tensor, lengths_G: Tensor, rewarded_lengths: tuple[int, int], settings: Temporal
) -> Tensor:
    """Return omega for each right response whose length is rewarded, if at least two of the group are right."""
    right_G = accuracy_G > settings.right_above
    shortest, longest = rewarded_lengths
    in_range_G = (lengths_G >= shortest) & (lengths_G <= longest)
    return settings.length_bonus * (right_G & in_range_G & (right_G.sum() >= 2)).float()


def shuffled_order(num_frames: int, run_seed: int, key: str) -> list[int]:
    """Return a random order of the frames that is not their own, where there are two to exchange."""
    hand = generator("frames", run_seed, key)
    order = hand.permutation(num_frames)
    while num_frames > 1 and np.array_equal(order, np.arange(num_frames)):
        order = hand.permutation(num_frames)
    return [int(place) for place in order]


class FilledLater:
    """A reward that depends on the whole group or on another one: zero until the trainer has compared them."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, completions: Sequence[Any], **_: Any) -> list[float]:
        """Return zeros."""
        return [0.0] * len(completions)


class TemporalTrainer(CreditTrainer):
    """CreditTrainer with T-GRPO's two rewards: one for the order of the frames, one for the length."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        assert self.recipe.temporal is not None
        self.settings: Temporal = self.recipe.temporal

    def _generate_groups(self, rows: Sequence[int], key: str) -> list[Group]:
        groups = super()._generate_groups(rows, key)
        shuffled_P = self._shuffled_accuracies(groups, key)
        accuracy, temporal, length = (self.reward_func_names.index(name) for name in ("accuracy", TEMPORAL, LENGTH))
        in_order, helped = [], []
        for group, shuffled_H in zip(groups, shuffled_P, strict=True):
            accuracy_G = group.rewards_GF[:, accuracy]
            if shuffled_H is not None:
                group.rewards_GF[:, temporal] = temporal_bonus(accuracy_G, shuffled_H, self.settings)
                in_order.append(accuracy_G.mean().item())
                helped.append(float(group.rewards_GF[:, temporal].any()))
            lengths_G = torch.tensor([len(ids) for ids in group.generated[1] or ()], device=accuracy_G.device)
            group.rewards_GF[:, length] = length_bonus(
                accuracy_G, lengths_G, self.sizes.rewarded_lengths, self.settings
            )
        shuffled = [accuracy_H.mean().item() for accuracy_H in shuffled_P if accuracy_H is not None]
        if shuffled:
            self._note("temporal/accuracy_in_order", float(np.mean(in_order)))
            self._note("temporal/accuracy_shuffled", float(np.mean(shuffled)))
            self._note("temporal/rewarded", float(np.mean(helped)))
        return groups

    def _shuffled_accuracies(self, groups: Sequence[Group], key: str) -> list[Tensor | None]:
        """Return the accuracy rewards on shuffled frames for each group about a video, None for one about an image."""
        about_video = [bool(group.inputs[0]["videos"]) for group in groups]
        # Devices that share a model generate together, so each of them answers for all its groups, of images too.
        asked = [group for group, video in zip(groups, about_video, strict=True) if video or not self._from_one_prefill]
        if not asked:
            return [None] * len(groups)
        size = max(1, round(self.settings.shuffled_fraction * self.num_generations))
        with self.clock.phase("generation_shuffled"):
            completions = self._respond([self._shuffled_prompt(group, key) for group in asked], asked, key, size)
        inputs = [group.inputs[0] for group in asked for _ in range(size)]
        columns = {name: [example[name] for example in inputs] for name in ("answer", "kind", "choices")}
        with self.clock.phase("reward"):
            reward: Any = self.reward_funcs[self.reward_func_names.index("accuracy")]
            rewards = torch.tensor(reward(completions=completions, **columns), device=self.accelerator.device)
        found = dict(zip(map(id, asked), rewards.split(size), strict=True))
        return [found.get(id(group)) if video else None for group, video in zip(groups, about_video, strict=True)]

    def _shuffled_prompt(self, group: Group, key: str) -> list[dict[str, Any]]:
        example = group.inputs[0]
        videos = [
            video.reordered(shuffled_order(len(video.frames), self.run_seed, f"{key}:{group.row}:{place}"))
            for place, video in enumerate(example["videos"])
        ]
        return with_media(example["prompt"], example["images"], videos)

    def _respond(
        self, prompts: Sequence[Any], groups: Sequence[Group], key: str, size: int
    ) -> list[list[dict[str, str]]]:
        """Return `size` responses to each prompt as TRL writes them, outside of its metrics of the batch."""
        prompt_ids_P = self._read_prompts(prompts)
        self._keys_P = [f"{key}:{group.row}:shuffled" for group in groups]
        fields = self._video_fields(prompt_ids_P)
        prompt_ids = [ids for ids in prompt_ids_P for _ in range(size)]
        token_ids, _ = self._generate_single_turn(prompt_ids, None, fields, size)
        texts = self.processing_class.batch_decode(token_ids, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts]

"""VPPO (arXiv 2510.09285): learn from the tokens that depend on the image, more from responses that do so throughout.

A second scoring pass sees the images with half of their patches black. How much a token's log-probability moves is its
dependency on the image. It decides two things before the loss: which tokens keep their advantage, and by how much a
whole response's is scaled. The clipped objective is homogeneous in the advantage, so both are factors of it and the KL
and entropy terms never see them.

Where this differs from the official code (huaixuheqing/VPPO-RL, 37eedc0):
1. The blackened patches are the vision encoder's own; there they are squares of 14 pixels of an image that is still to
   be rounded to the encoder's grid, so a black square may lie across two patches.
2. The scale is normalised over the rollout, across processes; there over the part of it that is on one device, with the
   mean made one in each micro-batch.
3. What is black is drawn from (run seed, rollout), so a resumed run sees the same patches; there it is unseeded.

Shapes: B responses, T response tokens, N patches of all images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from atrl_bench.credit import anchor_auc, tokens_of_part
from atrl_bench.credit.blackening import black_patch, blackened, token_dependency
from atrl_bench.errors import InvalidFileError
from atrl_bench.training.data import TrainingData
from atrl_bench.training.order import rollout_seed
from atrl_bench.training.recipe import VPPO
from atrl_bench.training.rollout import Visual

if TYPE_CHECKING:
    from atrl_bench.training.rollout import Rollout, RolloutTools, SampledResponse


def most_dependent(dependency_BT: Tensor, mask_BT: Tensor, fraction: float) -> Tensor:
    """Which tokens learn: of a response's T tokens the ceil(fraction T) most dependent, early ones first."""
    # In double precision and a hair lower: 0.4 * 5 is two tokens and not three.
    num_kept_B = (mask_BT.sum(1).double() * fraction - 1e-9).ceil()
    order_BT = dependency_BT.masked_fill(mask_BT == 0, -1.0).argsort(dim=1, descending=True, stable=True)
    rank_BT = order_BT.argsort(dim=1)
    return (rank_BT < num_kept_B[:, None]) & mask_BT.bool()


def trajectory_scale(score_B: Tensor, min_scale: float) -> Tensor:
    """The factor of each response's advantage, with mean one.

    scale = min_scale + s (max_scale - min_scale) with the scores s scaled to [0, 1] and max_scale = min_scale +
    (1 - min_scale) / mean(s). Equal scores get one each.
    """
    spread = score_B.max() - score_B.min()
    if spread <= 1e-6:
        return torch.ones_like(score_B)
    scaled_B = (score_B - score_B.min()) / spread
    return min_scale + scaled_B * (1 - min_scale) / scaled_B.mean()


def draws_of(numbers_B: Sequence[int], num_patches_R: Sequence[int], rng: torch.Generator) -> Tensor:
    """A random number from 0 to 1 for each patch of these responses: of all R in order each has its own."""
    draws_R = torch.rand(sum(num_patches_R), generator=rng).split(list(num_patches_R))
    return torch.cat([draws_R[number] for number in numbers_B])


class DependencyWeights:
    """A mask and a scale of each advantage, by the tokens' dependency on the image."""

    def __init__(self, settings: VPPO) -> None:
        self._settings = settings

    def __call__(self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> Tensor:
        """weights_BT: zero for the tokens that do not learn, the response's scale for the others."""
        process, mask_BT, logprob_BT = tools.processes.index, rollout.mask_BT, rollout.old_BT
        with tools.clock.phase("dependency"):
            if logprob_BT is None:  # one update a rollout, which has no use for them
                logprob_BT = tools.score(rollout).logprob_BT
            black_B = blackened_visuals(rollout, responses, tools, self._settings.black_probability)
            blackened_BT = tools.score(replace(rollout, visuals_B=black_B)).logprob_BT
            dependency_BT = token_dependency(blackened_BT, logprob_BT) * mask_BT
        kept_BT = most_dependent(dependency_BT, mask_BT, self._settings.kept_fraction)
        own_B = dependency_BT.sum(1) / mask_BT.sum(1).clamp(min=1)
        score_B = torch.tensor(tools.processes.gather(own_B.tolist()), device=mask_BT.device)
        scale_B = trajectory_scale(score_B, self._settings.min_scale)
        tools.note("vppo/dependency", score_B.mean().item())
        tools.note("vppo/max_scale", scale_B.max().item())
        if (total := dependency_BT.sum()) > 0:
            tools.note("vppo/kept_dependency", ((dependency_BT * kept_BT).sum() / total).item(), total.item())
        note_anchors(dependency_BT, rollout, responses, tools)
        return kept_BT * scale_B[process * len(mask_BT) : (process + 1) * len(mask_BT), None]


def blackened_visuals(
    rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools, probability: float
) -> list[Visual]:
    """What each response's prompt shows, with black patches that do not depend on where the response is."""
    black = black_patch(tools.processor.image_processor)
    num_patches_B = [len(visual.get("pixel_values", ())) for visual in rollout.visuals_B]
    own = [(response.number, count) for response, count in zip(responses, num_patches_B, strict=True)]
    num_patches_R = [count for _, count in sorted(tools.processes.gather(own))]
    rng = torch.Generator().manual_seed(rollout_seed(tools.run_seed, tools.rollout))
    draws = draws_of([response.number for response in responses], num_patches_R, rng).split(num_patches_B)
    return [
        visual | {"pixel_values": blackened(visual["pixel_values"], black, draw_N < probability)} if count else visual
        for visual, draw_N, count in zip(rollout.visuals_B, draws, num_patches_B, strict=True)
    ]


def note_anchors(
    dependency_BT: Tensor, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools
) -> None:
    """Log how well dependency ranks the tokens that transcribe the image above the others, where they are known."""
    areas = []
    for dependency_T, mask_T, response in zip(dependency_BT, rollout.mask_BT.bool(), responses, strict=True):
        if (truth := response.example["token_truth"]) is not None:
            is_anchor_T = tokens_of_part(truth, "perception", tools.token_texts(response.token_ids))
            areas.append(anchor_auc(dependency_T[mask_T].cpu(), is_anchor_T))
    defined = [area for area in areas if not math.isnan(area)]
    if defined:
        tools.note("vppo/anchor_auc", sum(defined) / len(defined), len(defined))


def refuse_videos(recipe_name: str, data: TrainingData) -> None:
    if data.has_videos:
        raise InvalidFileError(
            f"Recipe {recipe_name} blackens images, for vppo or its credit, and {data.name} has videos.",
            why="A video is not blackened, in the official code either: its tokens would depend on nothing.",
            next_step="set data to a training set of images",
        )

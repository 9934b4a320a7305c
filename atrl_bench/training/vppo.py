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
from typing import Any

import torch
from accelerate.utils import gather
from torch import Tensor
from trl.models.utils import disable_gradient_checkpointing

from atrl_bench.credit import anchor_auc, transcribed_tokens
from atrl_bench.errors import InvalidFileError
from atrl_bench.training.order import rollout_seed
from atrl_bench.training.recipe import VPPO
from atrl_bench.training.trainer import CreditTrainer, per_token

MAX_LOG_RATIO = 20.0
MAX_DEPENDENCY = 10.0


def blackened(pixels_N: Tensor, black: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Return the patches with each one `black`, as the processor writes a black patch, with this probability.

    A processor that makes one row of a patch maps each pixel by itself, so the row of a black picture is what a picture
    blackened there would have become. It is not zero, which is the mean colour.
    """
    is_black_N = torch.rand(len(pixels_N), generator=generator) < probability
    return torch.where(is_black_N[:, None].to(pixels_N.device), black.to(pixels_N), pixels_N)


def token_dependency(blackened_logprobs_BT: Tensor, logprobs_BT: Tensor) -> Tensor:
    """Return S_t = exp(d) - d - 1 with d = log pi(y_t | blackened image) - log pi(y_t | image).

    The k3 estimate, from the one sampled token, of the KL divergence the paper defines; d is held within 20 of zero and
    S within 10, as in the official code.
    """
    d_BT = (blackened_logprobs_BT.float() - logprobs_BT.float()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (d_BT.exp() - d_BT - 1).clamp(0.0, MAX_DEPENDENCY)


def most_dependent(dependency_BT: Tensor, mask_BT: Tensor, fraction: float) -> Tensor:
    """Return which tokens learn: of a response's T tokens the ceil(fraction T) most dependent, early ones first."""
    # In double precision and a hair lower: 0.4 * 5 is two tokens and not three.
    num_kept_B = (mask_BT.sum(1).double() * fraction - 1e-9).ceil()
    order_BT = dependency_BT.masked_fill(mask_BT == 0, -1.0).argsort(dim=1, descending=True, stable=True)
    rank_BT = order_BT.argsort(dim=1)
    return (rank_BT < num_kept_B[:, None]) & mask_BT.bool()


def trajectory_scale(score_B: Tensor, min_scale: float) -> Tensor:
    """Return the factor of each response's advantage, with mean one.

    scale = min_scale + s (max_scale - min_scale) with the scores s scaled to [0, 1] and max_scale = min_scale +
    (1 - min_scale) / mean(s). Equal scores get one each.
    """
    spread = score_B.max() - score_B.min()
    if spread <= 1e-6:
        return torch.ones_like(score_B)
    scaled_B = (score_B - score_B.min()) / spread
    return min_scale + scaled_B * (1 - min_scale) / scaled_B.mean()


class VPPOTrainer(CreditTrainer):
    """CreditTrainer whose advantages are masked and scaled by the tokens' dependency on the image."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        assert self.recipe.vppo is not None
        self.settings: VPPO = self.recipe.vppo
        if any(problem.videos for problem in self.data.problems):
            raise InvalidFileError(
                f"Recipe {self.recipe.name} has vppo, and {self.recipe.data} has videos.",
                why="A video is not blackened, in the official code either: its tokens would depend on nothing.",
                next_step="set data to a training set of images",
            )
        self._black = _black_patch(self.processing_class.image_processor)
        self._transcriptions_B: list[str | None] = []
        self._logprobs_BT: Tensor | None = None

    def _sample_groups(self, rows: Any, rollout: int) -> Any:
        groups = super()._sample_groups(rows, rollout)
        self._transcriptions_B = [example["transcription"] for group in groups for example in group.inputs]
        return groups

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch with `token_scale`, the factor of each token's advantage."""
        rollout = self.state.global_step // self.updates_per_rollout
        batch = super()._generate_and_score_completions(inputs)
        process = self.accelerator.process_index
        generator = torch.Generator().manual_seed(rollout_seed(self.run_seed, rollout) + process)
        mask_BT, logprobs_BT = batch["completion_mask"], batch.get("old_per_token_logps")
        with self.clock.phase("dependency"):
            if logprobs_BT is None:  # one update a rollout: TRL has no use for them
                logprobs_BT = self._score(batch, batch["pixel_values"])
            pixels = blackened(batch["pixel_values"], self._black, self.settings.black_probability, generator)
            dependency_BT = token_dependency(self._score(batch, pixels), logprobs_BT) * mask_BT
        kept_BT = most_dependent(dependency_BT, mask_BT, self.settings.kept_fraction)
        score_B = dependency_BT.sum(1) / mask_BT.sum(1).clamp(min=1)
        scale_B = trajectory_scale(gather(score_B), self.settings.min_scale)
        self._note("vppo/dependency", gather(score_B).mean().item())
        self._note("vppo/max_scale", scale_B.max().item())
        if (total := dependency_BT.sum()) > 0:
            self._note("vppo/kept_dependency", ((dependency_BT * kept_BT).sum() / total).item())
        self._note_anchors(dependency_BT, batch)
        batch["token_scale"] = kept_BT * scale_B[process * len(score_B) : (process + 1) * len(score_B), None]
        return batch

    def _score(self, batch: dict[str, Any], pixel_values: Tensor) -> Tensor:
        """Return the log-probabilities of the responses under these pixels."""
        fields = ("image_grid_thw", "num_images", "mm_token_type_ids")
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            logprobs_BT, _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
                torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
                batch["completion_ids"].shape[1],
                batch_size=self.args.per_device_train_batch_size,
                pixel_values=pixel_values,
                **{name: batch[name] for name in fields if name in batch},
            )
        return logprobs_BT

    def _set_loss_inputs(self, inputs: dict[str, Any], logprobs_BT: Tensor, weights_BT: Tensor | None) -> None:
        super()._set_loss_inputs(inputs, logprobs_BT, weights_BT)
        inputs["advantages"] = per_token(inputs["advantages"]) * inputs["token_scale"]
        self._logprobs_BT = logprobs_BT

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Return TRL's loss plus the entropy penalty, the mean of -log pi in the token mean of the policy term."""
        loss = super()._compute_loss(model, inputs)
        logprobs_BT, self._logprobs_BT = self._logprobs_BT, None
        assert logprobs_BT is not None
        surprise = -(logprobs_BT * inputs["completion_mask"]).sum()
        num_tokens = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
        num_tokens = num_tokens * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        return loss + self.settings.entropy_penalty * surprise / num_tokens

    def _note_anchors(self, dependency_BT: Tensor, batch: dict[str, Any]) -> None:
        """Log how well dependency ranks the tokens that transcribe the image above the others, where they are known."""
        areas, masks_BT = [], batch["completion_mask"].bool()
        for b, transcription in enumerate(self._transcriptions_B):
            if transcription:
                token_ids = batch["completion_ids"][b, masks_BT[b]].tolist()
                texts = [self._tokenizer.decode([token]) for token in token_ids]
                areas.append(anchor_auc(dependency_BT[b, masks_BT[b]].cpu(), transcribed_tokens(texts, transcription)))
        known = [area for area in areas if not math.isnan(area)]
        if known:
            self._note("vppo/anchor_auc", sum(known) / len(known))


def _black_patch(image_processor: Any) -> Tensor:
    """Return the row that the image processor makes of a patch of a black picture."""
    from PIL import Image

    side = 4 * getattr(image_processor, "patch_size", 14)
    made = image_processor(images=[Image.new("RGB", (side, side))], return_tensors="pt")
    pixels_N = made["pixel_values"]
    if "image_grid_thw" not in made or pixels_N.ndim != 2 or not bool((pixels_N == pixels_N[0]).all()):
        raise InvalidFileError(
            f"VPPO cannot blacken the patches of a {type(image_processor).__name__}.",
            why="It needs a processor that makes one row of each patch, as Qwen's do.",
            next_step="train another recipe, or another model",
        )
    return pixels_N[0]

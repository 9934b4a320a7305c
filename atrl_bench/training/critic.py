"""Actor-critic: what a response is worth from each of its tokens on, learned beside the policy.

The value head reads the policy's last hidden states and is trained on the returns of each rollout, with an optimiser of
its own. No gradient of it reaches the policy and none of the policy's reaches it. A credit multiplies the finished
advantages and is nowhere in here.

Shapes: B responses, T response tokens, H hidden features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from trl.models.utils import disable_gradient_checkpointing

from atrl_bench.errors import InvalidFileError
from atrl_bench.training import recipe as recipes
from atrl_bench.training.trainer import CreditTrainer, Group

ROWS_AT_ONCE = 32  # responses whose features are on the device together
FILE_NAME = "critic.safetensors"
MULTIMODAL_FIELDS = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)

Total = Callable[[Tensor], Tensor]  # the sum of a tensor over all processes


def generalised_advantages(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, *, discount: float, gae_lambda: float
) -> Tensor:
    """Return the advantages of generalised advantage estimation, zero on padding (arXiv 1506.02438, equation 16).

        delta_t = r_t + gamma V_{t+1} - V_t,    A_t = delta_t + gamma lambda A_{t+1}

    A response ends with its last token, also one that was cut there: its reward is final, so nothing follows it.
    """
    rewards_BT, values_BT = rewards_BT * mask_BT, values_BT * mask_BT
    advantages_BT = torch.zeros_like(values_BT)
    later_B = torch.zeros_like(values_BT[:, 0])
    for t in reversed(range(values_BT.shape[1])):
        next_value_B = values_BT[:, t + 1] if t + 1 < values_BT.shape[1] else torch.zeros_like(later_B)
        later_B = rewards_BT[:, t] + discount * next_value_B - values_BT[:, t] + discount * gae_lambda * later_B
        advantages_BT[:, t] = later_B
    return advantages_BT * mask_BT


def whitened(values_BT: Tensor, mask_BT: Tensor, total: Total = lambda tensor: tensor) -> Tensor:
    """Return the values with mean zero and variance one over all response tokens, zero on padding."""
    count = total(mask_BT.sum())
    centred_BT = (values_BT - total((values_BT * mask_BT).sum()) / count) * mask_BT
    return centred_BT / (total(centred_BT.square().sum()) / count + 1e-8).sqrt()


def value_losses(values_BT: Tensor, returns_BT: Tensor, old_values_BT: Tensor, clip: float | None) -> Tensor:
    """Return the loss of each value, half its squared error; clipped as in PPO, where the larger of two counts.

    max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2
    """
    losses_BT = (values_BT - returns_BT).square()
    if clip is not None:
        near_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip, clip)
        losses_BT = torch.maximum(losses_BT, (near_BT - returns_BT).square())
    return losses_BT / 2


class Critic:
    """A value head, its optimiser, and their place in a resume checkpoint."""

    def __init__(
        self, settings: recipes.Critic, hidden_size: int, *, run_seed: int, device: torch.device | str = "cpu"
    ) -> None:
        self.settings = settings
        with torch.random.fork_rng(devices=[]):  # the rollouts' random numbers stay what they are without a critic
            torch.manual_seed(run_seed)
            self.head = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.SiLU(), nn.Linear(hidden_size, 1))
        for parameter in self.head[2].parameters():
            nn.init.zeros_(parameter)  # every value is zero until something has been learned
        self.head.to(device)
        self.optimizer = torch.optim.AdamW(self.head.parameters(), lr=settings.learning_rate, weight_decay=0.0)

    def __call__(self, features_BTH: Tensor) -> Tensor:
        """Return values_BT on the device of the head."""
        weight = next(self.head.parameters())
        values_BT: Tensor = self.head(features_BTH.to(weight)).squeeze(-1)
        return values_BT

    @torch.no_grad()
    def values(self, features_BTH: Tensor) -> Tensor:
        """Return values_BT without a gradient, a few responses at a time."""
        return torch.cat([self(part) for part in features_BTH.split(ROWS_AT_ONCE)])

    def fit(
        self,
        features_BTH: Tensor,
        returns_BT: Tensor,
        old_values_BT: Tensor,
        mask_BT: Tensor,
        total: Total = lambda tensor: tensor,
    ) -> list[float]:
        """Take the steps of one rollout and return the mean loss of a token before each of them."""
        count, losses = total(mask_BT.sum()), []
        for _ in range(self.settings.updates_per_rollout):
            self.optimizer.zero_grad()
            sum_of_losses = torch.zeros((), device=returns_BT.device)
            for rows in torch.arange(len(returns_BT)).split(ROWS_AT_ONCE):
                losses_BT = value_losses(
                    self(features_BTH[rows]), returns_BT[rows], old_values_BT[rows], self.settings.value_clip
                )
                loss = (losses_BT * mask_BT[rows]).sum() / count
                loss.backward()
                sum_of_losses += loss.detach()
            for parameter in self.head.parameters():
                if parameter.grad is not None:
                    parameter.grad = total(parameter.grad)
            self.optimizer.step()
            losses.append(total(sum_of_losses).item())
        return losses

    def save(self, folder: Path) -> None:
        """Write head and optimiser."""
        tensors = {f"head.{name}": value for name, value in self.head.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, folder / FILE_NAME)

    def load(self, folder: Path) -> None:
        """Read head and optimiser."""
        tensors = load_file(folder / FILE_NAME)
        self.head.load_state_dict({name.removeprefix("head."): tensors[name] for name in tensors if name[0] == "h"})
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})


class CriticTrainer(CreditTrainer):
    """CreditTrainer with the advantages of a learned value function in place of those of the group.

    The hidden states come from one more scoring pass over each rollout, before its first update.
    """

    def __init__(self, *, recipe: recipes.RolloutRecipe, run_seed: int, **options: Any) -> None:
        super().__init__(recipe=recipe, run_seed=run_seed, **options)
        assert recipe.critic is not None
        if any(problem.videos for problem in self.data.problems):
            raise InvalidFileError(
                f"Recipe {recipe.name} has a critic, and {recipe.data} has videos.",
                why="The critic's scoring pass is TRL's, which knows images alone.",
                next_step="take a training set of images, or leave `critic` out",
            )
        hidden_size = self.model.config.get_text_config().hidden_size
        self.critic = Critic(recipe.critic, hidden_size, run_seed=run_seed, device=self.accelerator.device)

    def _needs_credit(self, group: Group) -> bool:
        """Return true: a group that is all right or all wrong has advantages here."""
        return True

    def _advantages(self, batch: dict[str, Any], groups: Sequence[Group]) -> Tensor:
        """Return whitened advantages_BT, and let the critic learn from the rollout."""
        settings, mask_BT = self.critic.settings, batch["completion_mask"].float()
        with self.clock.phase("critic"):
            features_BTH, logprobs_BT = self._hidden_states(batch)
            values_BT = self.critic.values(features_BTH) * mask_BT
            rewards_B = torch.tensor([reward for group in groups for reward in self._total_rewards(group)])
            rewards_BT = _at_last_token(rewards_B.to(mask_BT), mask_BT)
            if settings.kl_in_reward:
                difference_BT = (logprobs_BT - batch["ref_per_token_logps"]) * mask_BT
                rewards_BT = rewards_BT - self.recipe.kl_coef * difference_BT
                self._note("critic/kl", self._mean(difference_BT, mask_BT))
            advantages_BT = generalised_advantages(
                rewards_BT, values_BT, mask_BT, discount=settings.discount, gae_lambda=settings.gae_lambda
            )
            returns_BT = advantages_BT + values_BT
            losses = self.critic.fit(features_BTH, returns_BT, values_BT, mask_BT, self._total)
        self._note("critic/loss", losses[0])
        self._note("critic/loss_after", losses[-1])
        self._note("critic/value", self._mean(values_BT, mask_BT))
        self._note("critic/return", self._mean(returns_BT, mask_BT))
        unexplained = self._mean(advantages_BT.square(), mask_BT) - self._mean(advantages_BT, mask_BT) ** 2
        variance = self._mean(returns_BT.square(), mask_BT) - self._mean(returns_BT, mask_BT) ** 2
        self._note("critic/explained_variance", 1 - unexplained / variance if variance > 0 else float("nan"))
        return whitened(advantages_BT, mask_BT, self._total)

    def _hidden_states(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the hidden state that each response token was drawn from, on the CPU, and its log-probability."""
        num_tokens = batch["completion_ids"].shape[1]
        model = self.accelerator.unwrap_model(self.model)
        decoder = (model.get_base_model() if hasattr(model, "get_base_model") else model).get_decoder()
        states: list[Tensor] = []

        def keep(_module: nn.Module, _arguments: Any, output: Any) -> None:
            states.append(output.last_hidden_state[:, -num_tokens - 1 : -1].cpu())

        handle = decoder.register_forward_hook(keep)
        try:
            with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
                # TRL's own pass, in the order of the rows: what is kept needs no sorting back.
                logprobs_BT, _, _ = super(CreditTrainer, self)._get_per_token_logps_and_entropies(
                    self.model,
                    torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
                    torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
                    num_tokens,
                    self.args.per_device_train_batch_size,
                    **{name: batch[name] for name in MULTIMODAL_FIELDS if name in batch},
                )
        finally:
            handle.remove()
        return torch.cat(states), logprobs_BT

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if not self.critic.settings.kl_in_reward:
            return super()._compute_loss(model, inputs)
        self.beta = 0.0  # the rewards have paid for it already
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.beta = self.recipe.kl_coef

    def _total(self, tensor: Tensor) -> Tensor:
        summed: Tensor = self.accelerator.reduce(tensor, reduction="sum")
        return summed

    def _mean(self, values_BT: Tensor, mask_BT: Tensor) -> float:
        return (self._total((values_BT * mask_BT).sum()) / self._total(mask_BT.sum())).item()

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            self.critic.save(Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.critic.load(Path(checkpoint))


def _at_last_token(rewards_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Return rewards_BT: each response's reward at its last token, zero before."""
    rewards_BT = torch.zeros_like(mask_BT)
    rewards_BT[torch.arange(len(mask_BT)), mask_BT.sum(1).long() - 1] = rewards_B
    return rewards_BT

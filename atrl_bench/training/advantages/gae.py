"""Actor-critic: what a response is worth from each of its tokens on, learned beside the policy.

The value head reads the policy's last hidden states and is trained on the returns of each rollout, with an optimiser of
its own. No gradient of it reaches the policy and none of the policy's reaches it. A credit multiplies the finished
advantages and is nowhere in here.

Shapes: B responses, T response tokens, H hidden features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from atrl_bench.training import recipe as recipes
from atrl_bench.training.advantages import GroupRelative, own_advantages
from atrl_bench.training.shared_prompts import unwrapped

if TYPE_CHECKING:
    from atrl_bench.training.rollout import Rollout, RolloutTools, SampledResponse

ROWS_AT_ONCE = 32  # responses whose features are on the device together
FILE_NAME = "critic.safetensors"

Total = Callable[[Tensor], Tensor]  # the sum of a tensor over all processes


def generalised_advantages(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, *, discount: float, gae_lambda: float
) -> Tensor:
    """The advantages of generalised advantage estimation, zero on padding (arXiv 1506.02438, equation 16).

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
    """The values with mean zero and variance one over all response tokens, zero on padding."""
    count = total(mask_BT.sum()).clamp(min=1)
    centred_BT = (values_BT - total((values_BT * mask_BT).sum()) / count) * mask_BT
    return centred_BT / (total(centred_BT.square().sum()) / count + 1e-8).sqrt()


def value_losses(values_BT: Tensor, returns_BT: Tensor, old_values_BT: Tensor, clip: float | None) -> Tensor:
    """The loss of each value, half its squared error; clipped as in PPO, where the larger of two counts.

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
        self, settings: recipes.CriticSettings, hidden_size: int, *, run_seed: int, device: torch.device | str = "cpu"
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
        """values_BT on the device of the head."""
        weight = next(self.head.parameters())
        values_BT: Tensor = self.head(features_BTH.to(weight)).squeeze(-1)
        return values_BT

    @torch.no_grad()
    def values(self, features_BTH: Tensor) -> Tensor:
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
        count, losses = total(mask_BT.sum()).clamp(min=1), []
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
        tensors = {f"head.{name}": value for name, value in self.head.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, folder / FILE_NAME)

    def load(self, folder: Path) -> None:
        tensors = load_file(folder / FILE_NAME)
        self.head.load_state_dict({name.removeprefix("head."): tensors[name] for name in tensors if name[0] == "h"})
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})


class GeneralisedAdvantages(GroupRelative):
    """The advantages of a learned value function, whitened, in place of those of the group.

    The hidden states come from one more scoring pass over each rollout, before its first update.
    """

    every_group = True  # a group that is all right or all wrong has advantages here

    def __init__(self, critic: Critic, kl_coef: float) -> None:
        self.critic, self._kl_coef = critic, kl_coef
        self.kl_in_reward = critic.settings.kl_in_reward

    def __call__(self, rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> Tensor:
        """Whitened advantages_BT, and let the critic learn from the rollout.

        A response that no reward could grade, NaN, has no advantages, and the critic does not learn from it.
        """
        settings = self.critic.settings
        assert rollout.reward_B is not None
        reward_B = rollout.reward_B.to(rollout.mask_BT.device)
        mask_BT = rollout.mask_BT.float() * ~reward_B.isnan()[:, None]

        def mean(values_BT: Tensor) -> float:
            total = tools.processes.total
            return (total((values_BT * mask_BT).sum()) / total(mask_BT.sum()).clamp(min=1)).item()

        with tools.clock.phase("critic"):
            features_BTH, logprobs_BT = hidden_states(rollout, tools)
            values_BT = self.critic.values(features_BTH) * mask_BT
            rewards_BT = torch.zeros_like(mask_BT)  # but for the last token of each response
            rewards_BT[torch.arange(len(mask_BT)), mask_BT.sum(1).long() - 1] = reward_B.nan_to_num().to(mask_BT)
            if settings.kl_in_reward:
                assert rollout.reference_BT is not None
                difference_BT = (logprobs_BT - rollout.reference_BT) * mask_BT
                rewards_BT = rewards_BT - self._kl_coef * difference_BT
                tools.note("critic/kl", mean(difference_BT))
            advantages_BT = generalised_advantages(
                rewards_BT, values_BT, mask_BT, discount=settings.discount, gae_lambda=settings.gae_lambda
            )
            returns_BT = advantages_BT + values_BT
            losses = self.critic.fit(features_BTH, returns_BT, values_BT, mask_BT, tools.processes.total)
        tools.note("critic/loss", losses[0])
        tools.note("critic/loss_after", losses[-1])
        tools.note("critic/value", mean(values_BT))
        tools.note("critic/return", mean(returns_BT))
        unexplained = mean(advantages_BT.square()) - mean(advantages_BT) ** 2
        variance = mean(returns_BT.square()) - mean(returns_BT) ** 2
        tools.note("critic/explained_variance", 1 - unexplained / variance if variance > 0 else float("nan"))
        return whitened(advantages_BT, mask_BT, tools.processes.total)

    def save(self, folder: Path) -> None:
        self.critic.save(folder)

    def load(self, folder: Path) -> None:
        self.critic.load(folder)


def estimator_of(recipe: recipes.RolloutRecipe, model: Any, run_seed: int, device: torch.device) -> GroupRelative:
    """What makes the advantages of this recipe: the group, the user's code, or a critic of this model's states."""
    for name, settings in recipe.advantages.items():
        return own_advantages(name, settings)
    if recipe.critic is None:
        return GroupRelative()
    critic = Critic(recipe.critic, model.config.get_text_config().hidden_size, run_seed=run_seed, device=device)
    return GeneralisedAdvantages(critic, recipe.kl_coef)


def hidden_states(rollout: Rollout, tools: RolloutTools) -> tuple[Tensor, Tensor]:
    """The hidden state that each response token was drawn from, on the CPU, and its log-probability."""
    num_tokens = rollout.mask_BT.shape[1]
    decoder = unwrapped(tools.model).get_decoder()
    states: list[Tensor] = []

    def keep(_module: nn.Module, _arguments: Any, output: Any) -> None:
        states.append(output.last_hidden_state[:, -num_tokens - 1 : -1].cpu())

    handle = decoder.register_forward_hook(keep)
    try:
        # In the order of the rows and at their full length: what is kept needs no sorting back.
        logprobs_BT = tools.score(rollout, "critic", trim=False).logprob_BT
    finally:
        handle.remove()
    return torch.cat(states), logprobs_BT

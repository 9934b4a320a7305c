"""What `metrics.jsonl` says of a rollout: lengths and rewards.

Shapes: R responses of a rollout, in groups of G; F rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from atrl_bench.training.advantages import are_mixed
from atrl_bench.training.rollout import Group


def length_metrics(groups: Sequence[Group], eos_ids: Sequence[int]) -> dict[str, float]:
    """Of all responses, and of those that ended before the limit; zero if none did."""
    responses = [ids for group in groups for ids in group.response_ids]
    length_R = torch.tensor([len(ids) for ids in responses], dtype=torch.float32)
    ended_R = torch.tensor([ids[-1] in eos_ids for ids in responses])
    found = {"completions/clipped_ratio": (~ended_R).float().mean().item()}
    for name, lengths in (("", length_R), ("terminated_", length_R[ended_R] if ended_R.any() else torch.zeros(1))):
        for kind, value in (("mean", lengths.mean()), ("min", lengths.min()), ("max", lengths.max())):
            found[f"completions/{kind}_{name}length"] = value.item()
    return found


def reward_metrics(rewards_RF: Tensor, names: Sequence[str], reward_PG: Tensor) -> dict[str, float]:
    """Of each reward, of their weighted sum, and the share of groups without an advantage."""
    found = {}
    for name, reward_R in zip(names, rewards_RF.unbind(1), strict=True):
        known = reward_R[~reward_R.isnan()]
        found[f"rewards/{name}/mean"], found[f"rewards/{name}/std"] = known.mean().item(), known.std().item()
    known = reward_PG[~reward_PG.isnan()]
    found["reward"], found["reward_std"] = known.mean().item(), known.std().item()
    found["frac_reward_zero_std"] = (~are_mixed(reward_PG)).float().mean().item()
    return found

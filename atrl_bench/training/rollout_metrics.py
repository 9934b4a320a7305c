"""What `metrics.jsonl` says of a rollout: lengths, rewards, and how far the sampler is from the policy.

Shapes: R responses of a rollout, in groups of G; F rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

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
    spread_P = reward_PG.nan_to_num(float("-inf")).amax(1) - reward_PG.nan_to_num(float("inf")).amin(1)
    found["frac_reward_zero_std"] = (spread_P < 1e-8).float().mean().item()
    return found


def sampler_metrics(old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor, ratio_BT: Tensor) -> dict[str, float]:
    """How far the log-probabilities of another sampler are, and what the correction makes of it."""
    difference_N = (old_BT - sampled_BT).abs()[mask_BT.bool()]
    difference_N = difference_N[~difference_N.isnan()]
    ratio_N = ratio_BT.flatten() if ratio_BT.shape[1] == 1 else ratio_BT[mask_BT.bool()]
    return {
        "sampling/sampling_logp_difference/mean": difference_N.mean().item(),
        "sampling/sampling_logp_difference/max": difference_N.max().item(),
        "sampling/importance_sampling_ratio/min": ratio_N.min().item(),
        "sampling/importance_sampling_ratio/mean": ratio_N.mean().item(),
        "sampling/importance_sampling_ratio/max": ratio_N.max().item(),
    }

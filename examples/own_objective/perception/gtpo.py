"""GTPO (arXiv 2508.04349): a token of a right response earns more where the policy hesitated, compared with the tokens
at the same place of the group's other right responses; one of a wrong response costs more where it did not.

Of the n responses to a problem that are right, or wrong, and reach token t, with entropies H_t:
    right  r_t = outcome + entropy * n * H_t / sum of H_t
    wrong  r_t = -outcome - entropy * n * (1 / H_t) / sum of 1 / H_t
The advantage is relative to all tokens of the group, as GRPO's is to all responses; the paper does so for right and
wrong ones apart, which leaves each of them zero on average.
"""

import torch

from atrl_bench.training.rollout import of_groups

LOWEST = 1e-6  # entropy that is divided by


def shaped_by_entropy(rollout, responses, tools, outcome=1.0, entropy=0.1):
    entropy_BGT = of_groups(tools.score(rollout, "entropy").entropy_BT, responses).clamp(min=LOWEST)
    lengths_BG = torch.tensor([[len(ids) for ids in one.group.response_ids] for one in responses])
    mask_BGT = (torch.arange(entropy_BGT.shape[2]) < lengths_BG[..., None]).to(entropy_BGT.device)
    right_BG1 = torch.stack([one.group.accuracies > 0 for one in responses])[..., None].to(entropy_BGT.device)
    reward_BGT = token_rewards(entropy_BGT, mask_BGT, right_BG1, outcome, entropy)

    count_B11 = mask_BGT.sum((1, 2), keepdim=True)
    centred_BGT = (reward_BGT - (reward_BGT * mask_BGT).sum((1, 2), keepdim=True) / count_B11) * mask_BGT
    deviation_B11 = (centred_BGT.square().sum((1, 2), keepdim=True) / count_B11).sqrt()
    own = torch.tensor([one.repeat for one in responses])
    advantage_BT = (centred_BGT / (deviation_B11 + 1e-4))[torch.arange(len(responses)), own]
    return advantage_BT[:, : rollout.mask_BT.shape[1]]


def token_rewards(entropy_BGT, mask_BGT, right_BG1, outcome, entropy):
    hesitation_BGT = entropy_BGT.where(right_BG1, 1 / entropy_BGT)
    reward_BGT = torch.zeros_like(entropy_BGT)
    for group_BG1, sign in ((right_BG1, 1.0), (~right_BG1, -1.0)):
        among_BGT = mask_BGT & group_BG1
        share_BGT = hesitation_BGT * among_BGT / (hesitation_BGT * among_BGT).sum(1, keepdim=True).clamp(min=LOWEST)
        shaped_BGT = sign * (outcome + entropy * among_BGT.sum(1, keepdim=True) * share_BGT)
        reward_BGT = reward_BGT + shaped_BGT * among_BGT
    return reward_BGT

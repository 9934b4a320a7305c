"""PAPO (arXiv 2507.06448, equation 2): the policy shall say something else where the image is hidden.

Subtracts `weight` times KL(pi || pi of the image with black patches) from the loss, and adds `entropy` times -log pi.
As its code does, the log-probabilities of the hidden image are those of the policy that sampled, without a gradient.
"""

from dataclasses import replace

from atrl_bench.credit.blackening import token_dependency
from atrl_bench.training.weights.dependency import blackened_visuals


class PerceptionKL:
    """The term, with the settings that a recipe gives it."""

    def __init__(self, weight, black_probability, entropy=0.0):
        self.weight, self.black_probability, self.entropy = weight, black_probability, entropy

    def prepare(self, rollout, responses, tools):
        """One more pass over each rollout, before the updates on it."""
        black_B = blackened_visuals(rollout, responses, tools, self.black_probability)
        return {"hidden_BT": tools.score(replace(rollout, visuals_B=black_B), "perception").logprob_BT}

    def __call__(self, batch, scored):
        kl_BT = token_dependency(batch.extra["hidden_BT"], scored.logprob_BT)
        return -self.weight * kl_BT - self.entropy * scored.logprob_BT

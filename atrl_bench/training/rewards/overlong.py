"""DAPO's soft punishment of length (arXiv 2503.14476), added to the accuracy reward."""

from __future__ import annotations

from atrl_bench.training.rewards import Reward


def overlong_cache(max_response_tokens: int, cache_fraction: float) -> int:
    """Return the length of the stretch before the limit over which the punishment grows, in tokens."""
    return max(1, int(cache_fraction * max_response_tokens))


def overlong_reward(max_response_tokens: int, cache_fraction: float) -> Reward:
    """Return the reward: 0 up to L_max - L_cache tokens, then (L_max - L_cache - |y|) / L_cache, -1 beyond L_max.

    Equation 13 of DAPO.
    """
    from trl.rewards import get_soft_overlong_punishment

    reward: Reward = get_soft_overlong_punishment(
        max_response_tokens, overlong_cache(max_response_tokens, cache_fraction)
    )
    return reward

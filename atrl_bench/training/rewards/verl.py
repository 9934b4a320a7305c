"""The reward of the recipes as verl asks for it: response by response, in processes of its own."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

from atrl_bench.grading.grade import GradingPool
from atrl_bench.results.records import Gold
from atrl_bench.training.rewards.combined import AccuracyReward


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """The reward of a response, and as `acc` what dynamic sampling compares."""
    reward = AccuracyReward(_pool())([[{"content": solution_str}]], [Gold(ground_truth)])[0]
    return {"score": reward, "acc": reward}


@cache
def _pool() -> GradingPool:
    pool = GradingPool()
    atexit.register(pool.close)
    return pool

"""What a response is worth: +1 or -1 by the grader of the evaluation, and DAPO's punishment of length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from atrl_bench.results.records import Gold
from atrl_bench.training.rewards import Reward

if TYPE_CHECKING:
    from atrl_bench.grading.grade import GradingPool


class AccuracyReward:
    """+1 for a response graded correct and -1 for any other (section 5 of the paper).

    An answer that is unparseable or took too long to grade is not correct; how many there were is logged, since a rule
    that cannot read a correct answer would train against it.
    """

    __name__ = "accuracy"  # TRL names the reward's column and metrics after this

    def __init__(self, pool: GradingPool) -> None:
        self._pool = pool

    def __call__(
        self,
        completions: Sequence[list[dict[str, str]]],
        graded_as: Sequence[Gold],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float]:
        responses = [completion[0]["content"] for completion in completions]
        verdicts = self._pool.grade_many(list(zip(responses, graded_as, strict=True)))
        if log_metric is not None:
            states = Counter(verdict.state for verdict in verdicts)
            for state in ("unparseable", "timed out"):
                log_metric(f"grading/{state}", states[state] / len(verdicts))
        return [1.0 if verdict.state == "correct" else -1.0 for verdict in verdicts]


def overlong_cache(max_response_tokens: int, cache_fraction: float) -> int:
    """The length of the stretch before the limit over which the punishment grows, in tokens."""
    return max(1, int(cache_fraction * max_response_tokens))


def overlong_reward(max_response_tokens: int, cache_fraction: float) -> Reward:
    """DAPO's soft overlong punishment, added to the accuracy reward.

    0 up to L_max - L_cache tokens, then (L_max - L_cache - |y|) / L_cache, and -1 beyond L_max (equation 13 of DAPO).
    """
    from trl.rewards import get_soft_overlong_punishment

    return get_soft_overlong_punishment(max_response_tokens, overlong_cache(max_response_tokens, cache_fraction))

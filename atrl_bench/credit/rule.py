"""What a credit rule is made of: what it may read, what it returns, and how weights become a credit.

Nothing here loads torch before a credit is computed, so that rules can be listed without it.

Shapes: T response tokens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from atrl_bench.credit.config import CreditConfig
from atrl_bench.errors import UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.credit.attention_rows import AttentionRows

TokenInput = Literal["entropy", "logprob", "blackened_logprob"]
"""What a rule may read beside the attention rows: the field of `AttentionRows` without its `_T`."""


@dataclass(frozen=True, eq=False)
class Credit:
    """The credit of one response, and how it came about."""

    credit_T: Tensor
    """What the advantage of each token is multiplied by."""
    connectivity_T: Tensor
    """C_i, the debiased attention to the image."""
    importance_T: Tensor
    """phi after refinement; C over its maximum for rules that do not refine."""
    cluster_T: Tensor
    """The cluster of each token; every token its own one for rules that do not group."""
    diagnostics: dict[str, float]
    """Where the weight went, and, for rules that build a graph, whether its clusters mean anything."""
    graph_seconds: float = 0.0
    """What building the graph and dividing it into clusters took, of this thread's processor time."""


class CreditRule(Protocol):
    """A function from attention rows to their credit; it must not change its arguments."""

    def __call__(self, attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
        """Returns the credit of one response."""
        ...


class BatchRule(Protocol):
    """The credit of many responses at once; each gets what it would get alone, to the last bit."""

    def __call__(self, attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]) -> list[Credit]:
        """Returns the credit of each response."""
        ...


def batched(of_batch: BatchRule) -> CreditRule:
    """Returns the rule of one response that `of_batch` is of many; `credits_at_once` then computes them together."""

    @functools.wraps(of_batch)
    def rule(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
        return of_batch([attention], config, [seed])[0]

    rule.of_batch = of_batch  # type: ignore[attr-defined]
    return rule


def credits_at_once(
    rule: CreditRule, attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]
) -> list[Credit]:
    """Returns the credit of each response, computed together where the rule is `batched`."""
    of_batch: BatchRule | None = getattr(rule, "of_batch", None)
    if of_batch is None:
        return [rule(attention, config, seed) for attention, seed in zip(attentions, seeds, strict=True)]
    return of_batch(attentions, config, seeds)


RuleT = TypeVar("RuleT", bound=CreditRule)


def reads(*inputs: TokenInput) -> Callable[[RuleT], RuleT]:
    """Returns a decorator that says what a rule reads beside the attention rows; yours may set `rule.needs` itself."""

    def declare(rule: RuleT) -> RuleT:
        rule.needs = frozenset(inputs)  # type: ignore[attr-defined]
        return rule

    return declare


def needs_of(rule: CreditRule) -> frozenset[TokenInput]:
    """Returns what a rule reads beside the attention rows."""
    known, needs = get_args(TokenInput), getattr(rule, "needs", ())
    needs = {needs} if isinstance(needs, str) else needs
    for name in set(needs) - set(known):
        raise UnknownNameError("need of a credit rule", name, known, next_step="name these alone in its `needs`")
    return frozenset(needs)


def reads_whole_rows(rule: RuleT) -> RuleT:
    """Say of a rule that it reads whole attention rows, of which a sketch does not tell enough."""
    rule.whole_rows = True  # type: ignore[attr-defined]
    return rule


def looks_at_images(rule: CreditRule) -> bool:
    """Returns whether a rule asks how tokens look at an image: those by entropy or probability alone do not."""
    return not needs_of(rule) or "blackened_logprob" in needs_of(rule)


def connectivity_density(attention: AttentionRows, config: CreditConfig) -> NDArray[np.float64]:
    """Returns C_i of each token: the attention that goes to the image, divided by the bias curve (section 4.1)."""
    return attention.connectivity(config).double().numpy()


def credit_of_weights(
    weights: ArrayLike,
    connectivity_T: NDArray[np.float64],
    config: CreditConfig,
    *,
    importance_T: NDArray[np.float64] | None = None,
    cluster_T: NDArray[np.int64] | None = None,
    **diagnostics: float,
) -> Credit:
    """Returns the credit that these weights are: scaled to mean one if `config` says so, with what reports show of it.

    Every further `name=value` is one more diagnostic, logged in training as `credit/name`.
    """
    import torch

    weight_T: NDArray[np.float64] = np.asarray(weights, dtype=np.float64)
    # Before they are scaled: divided by their mean, negative weights would be positive ones.
    total = float(weight_T.sum())
    if weight_T.size and not (weight_T.min() >= 0 and 0 < total < math.inf):
        raise ValueError(
            "Weights of credit should be finite, never negative and not all zero; "
            f"these reach from {weight_T.min()} to {weight_T.max()}."
        )
    if config.scale == "mean_one" and len(weight_T):
        weight_T = weight_T / (total / len(weight_T))
    if importance_T is None:
        importance_T = connectivity_T / max(connectivity_T.max(initial=0.0), np.finfo(np.float64).tiny)
    if cluster_T is None:
        cluster_T = np.arange(len(weight_T))
    return Credit(
        credit_T=torch.from_numpy(weight_T.astype(np.float32)),
        connectivity_T=torch.from_numpy(connectivity_T.astype(np.float32)),
        importance_T=torch.from_numpy(importance_T.astype(np.float32)),
        cluster_T=torch.from_numpy(cluster_T),
        diagnostics={name: float(value) for name, value in diagnostics.items()} | placement(weight_T, connectivity_T),
    )


def credit_of_rows(weight_T: NDArray[np.float64], attention: AttentionRows, config: CreditConfig) -> Credit:
    """Returns the credit that these weights are for a response with these rows, whose connectivity reports show."""
    return credit_of_weights(weight_T, connectivity_density(attention, config), config)


def highest(score_T: NDArray[np.float64], fraction: float) -> NDArray[np.bool_]:
    """Returns which tokens are among the `fraction`, rounded up, with the highest score; early ones first."""
    is_high_T = np.zeros(len(score_T), dtype=bool)
    is_high_T[np.argsort(-score_T, kind="stable")[: math.ceil(fraction * len(score_T))]] = True
    return is_high_T


def placement(credit_T: NDArray[np.float64], connectivity_T: NDArray[np.float64]) -> dict[str, float]:
    """Returns where the weight of one response went.

    `entropy`: of the tokens' shares of the weight, over log T; 1 is uniform, 0 is all on one token.
    `top15_share`: share of the weight on the 15 % of tokens (rounded up) that have the most; uniform gives 0.15.
    `position_correlation`, `connectivity_correlation`: of the weight with the token's place and with C; 0 if constant.
    """
    num_tokens = len(credit_T)
    if not num_tokens:
        return {}
    total = credit_T.sum()
    share_T = credit_T / total
    positive = share_T[share_T > 0]
    top = np.sort(share_T)[::-1][: math.ceil(0.15 * num_tokens)]
    mean_connectivity = float(connectivity_T.sum() / num_tokens)
    centred_T = credit_T - total / num_tokens
    place_T = np.arange(num_tokens, dtype=np.float64) - (num_tokens - 1) / 2
    return {
        "entropy": float(-positive @ np.log(positive)) / math.log(num_tokens) if num_tokens > 1 else 1.0,
        "top15_share": float(top.sum()),
        "position_correlation": _correlation(centred_T, place_T),
        "connectivity_correlation": _correlation(centred_T, connectivity_T - mean_connectivity),
        "mean_connectivity": mean_connectivity,
    }


def _correlation(a_T: NDArray[np.float64], b_T: NDArray[np.float64]) -> float:
    """Returns the correlation of values that each have mean zero."""
    scale = math.sqrt(float(a_T @ a_T) * float(b_T @ b_T))
    # Below this the differences are rounding, not a trend.
    return float(a_T @ b_T) / scale if scale > 1e-12 * max(1, len(a_T)) else 0.0

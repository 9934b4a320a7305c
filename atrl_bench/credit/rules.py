"""The credit rules: one function per rule, all of the same signature, from attention rows to a weight for each token.

    rule(attention, config, seed) -> Credit

A rule of somebody else's is any function of this form, or one that an installed package names in the entry points
`atrl_bench.rules`. `connectivity_density` and `credit_of_weights` are what most of them need.

Every ablation of the paper is the full rule with a field or two of its config changed, so it says so and nothing more.

Shapes: T response tokens, S columns, K clusters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atrl_bench.credit.attention_rows import AttentionRows
from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.connectivity import bias_curve, connectivity
from atrl_bench.credit.diagnostics import placement
from atrl_bench.credit.graph import ScaledRows, cosine_graph, edge_density, partition, random_cut
from atrl_bench.credit.refinement import denoise, propagate, start_importance
from atrl_bench.errors import PluginError, UnknownNameError
from atrl_bench.plugins import check_names, load_plugin, package_of, plugins

_DEFAULT = CreditConfig()


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


def credit_rule(rule: str | CreditRule) -> CreditRule:
    """Returns the rule of this name, ours or of another installed package; a function is returned as it is."""
    if callable(rule):
        return rule
    if rule in RULES:
        return RULES[rule]
    if rule in plugins("rules"):
        loaded = load_plugin("rules", rule)
        if not callable(loaded):
            raise PluginError(
                f"Credit rule {rule!r} of package {package_of(plugins('rules')[rule])} is no function.",
                why=f"It is a {type(loaded).__name__}.",
                next_step="see docs/adding_a_credit_rule.md",
            )
        return cast(CreditRule, loaded)
    raise UnknownNameError("credit rule", rule, rule_names(), next_step="atrl-bench list rules")


def rule_names() -> list[str]:
    """Returns the names of all rules, ours first; none of another package is imported."""
    check_names("rules", RULES)
    return [*RULES, *plugins("rules")]


def needs_entropy(rule: CreditRule) -> bool:
    """Returns whether a rule reads `AttentionRows.entropy_T`; yours says so by `rule.needs_entropy = True`."""
    return rule is high_entropy or bool(getattr(rule, "needs_entropy", False))


def token_credit(
    attention: AttentionRows, rule: str | CreditRule = "atrl", config: CreditConfig | None = None, seed: int = 0
) -> Credit:
    """Returns the credit c_t of each token of one response, A_AT^(i,t) = c_t A^(i) (section 4.3).

    With `scale="mean_one"` the credit has mean one over the response, so a rule moves weight between tokens and
    leaves the size of the policy term, and its balance with the KL term, alone. As written, W(C_k) sums to one over
    clusters and shrinks the policy term by about tokens_per_cluster / T.

    In a response of fewer than two tokens, one without visual columns and one that never looked at them no rule can
    tell the tokens apart: each gets the same, the mean that the rule gives a response of this length. That is 1.0 with
    `mean_one`; with `as_written` it keeps such a response in proportion to the others of its batch.
    """
    function = credit_rule(rule)
    config = _DEFAULT if config is None else config
    if len(attention.rows_TS) < 2:
        return uniform(attention, config, seed)
    if connectivity_density(attention, config).sum() <= 0:
        return _without_attention(attention, function, config, seed)
    credit = function(attention, config, seed)
    if not is_own(function):
        _check(credit, len(attention.rows_TS), function)
    return credit


def uniform(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns exactly 1.0 for every token: the sequence-level credit of GRPO and its relatives."""
    connectivity_T = connectivity_density(attention, config)
    return credit_of_weights(np.ones(len(connectivity_T)), connectivity_T, config)


def atrl(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the anchor-token credit, c_t = W(C_k) for t in C_k, W(C_k) = sum of phi over C_k / sum of all phi.

    The equation of section 4.3 has the connectivity C where we have phi; then refinement and propagation, which
    change phi only, would change nothing. `cluster_mass="density"` is the equation as written.
    """
    connectivity_T = connectivity_density(attention, config)
    rows = ScaledRows.of(attention, bias_curve(attention.rows_TS.shape[1], config), config)
    started = time.thread_time()
    graph = cosine_graph(rows, config)
    cluster_T = partition(graph, config, seed)
    graph_seconds = time.thread_time() - started
    similarity_T = rows.centroid_cosines(torch.from_numpy(cluster_T)).double().numpy()
    diagnostics = {
        "edge_density": edge_density(rows, config),
        "cut": graph.cut(cluster_T),
        "random_cut": random_cut(cluster_T),
        "dropped_columns": float((rows.scale_S == 0).sum()),
        "outlier_share": float((similarity_T < config.min_centroid_similarity).mean()),
    }

    importance_T = denoise(start_importance(connectivity_T, config), similarity_T, config)
    importance_T, cluster_T, num_promoted = propagate(graph, importance_T, cluster_T, config)
    diagnostics["promoted_share"] = num_promoted / len(cluster_T)

    mass_T = importance_T if config.cluster_mass == "importance" else connectivity_T
    if not mass_T.any():  # every token was an outlier, and outliers count nothing
        return _without_attention(attention, atrl, config.replace(outlier_scale=1.0), seed)
    weight_K = np.bincount(cluster_T, weights=mass_T) / mass_T.sum()
    credit = credit_of_weights(
        weight_K[cluster_T], connectivity_T, config, importance_T=importance_T, cluster_T=cluster_T, **diagnostics
    )
    return replace(credit, graph_seconds=graph_seconds)


def raw_attention(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit in proportion to each token's own connectivity ("w/o Grouping")."""
    connectivity_T = connectivity_density(attention, config)
    return credit_of_weights(connectivity_T / connectivity_T.sum(), connectivity_T, config)


def grouping_only(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the credit of the METIS clusters as they come, neither refined nor expanded ("Grouping Only")."""
    return atrl(attention, config.replace(outlier_scale=1.0, num_neighbours=0), seed)


def without_expansion(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the credit without neighbourhood propagation ("w/o Neighborhood Expansion")."""
    return atrl(attention, config.replace(num_neighbours=0), seed)


def without_refinement(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the credit without centroid denoising ("w/o Cluster Refinement")."""
    return atrl(attention, config.replace(outlier_scale=1.0), seed)


def without_bias_correction(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the credit from raw rows: with both terms of the bias curve at zero it is one everywhere."""
    return atrl(attention, config.replace(exp_weight=0.0, cosine_weight=0.0), seed)


def hard_truncation(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the `kept_fraction` of tokens with the highest connectivity alone, the same for each.

    The paper does not say what such a loss is divided by. `mean_one` divides by the kept tokens; `as_written` gives
    plain ones and zeros, hence divides by all.
    """
    connectivity_T = connectivity_density(attention, config)
    return _kept(connectivity_T, config.kept_fraction, connectivity_T, config)


def bottom_truncation(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the mirror image of hard_truncation: credit for the `kept_fraction` with the lowest connectivity."""
    connectivity_T = connectivity_density(attention, config)
    return _kept(-connectivity_T, config.kept_fraction, connectivity_T, config)


def high_entropy(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the `entropy_fraction` of tokens with the highest entropy (FT-RL's selection)."""
    if attention.entropy_T is None:
        raise ValueError("The high_entropy rule needs AttentionRows.entropy_T, the entropy each token was drawn with.")
    entropy_T = attention.entropy_T.double().numpy()
    return _kept(entropy_T, config.entropy_fraction, connectivity_density(attention, config), config)


def random(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the anchor-token credit dealt to the tokens in random order: the same weights in the wrong places."""
    return _rearranged(atrl(attention, config, seed), np.random.default_rng(seed).permutation(len(attention.rows_TS)))


def reverse(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the anchor-token credit with its ranks reversed: the most weight for the least grounded token."""
    base = atrl(attention, config, seed)
    # The token of rank r takes the weight of rank T - 1 - r.
    order_T = torch.argsort(base.credit_T, stable=True).numpy()
    source_T = np.empty_like(order_T)
    source_T[order_T] = order_T[::-1]
    return _rearranged(base, source_T)


RULES: Mapping[str, CreditRule] = MappingProxyType(
    {
        rule.__name__: rule
        for rule in (
            uniform,
            atrl,
            raw_attention,
            grouping_only,
            without_expansion,
            without_refinement,
            without_bias_correction,
            hard_truncation,
            bottom_truncation,
            random,
            reverse,
            high_entropy,
        )
    }
)


def is_own(rule: CreditRule) -> bool:
    """Returns whether a rule is one of these, and not somebody else's."""
    return any(rule is own for own in RULES.values())


def connectivity_density(attention: AttentionRows, config: CreditConfig) -> NDArray[np.float64]:
    """Returns C_i of each token: the attention that goes to the image, divided by the bias curve (section 4.1)."""
    bias_S = bias_curve(attention.rows_TS.shape[1], config)
    return connectivity(attention.rows_TS, attention.visual_S, bias_S).double().numpy()


def _check(credit: Credit, num_tokens: int, rule: CreditRule) -> None:
    """Raise if what a rule of somebody else's returned cannot multiply the advantages of a response."""
    name, weights = getattr(rule, "__name__", type(rule).__name__), getattr(credit, "credit_T", None)
    if not isinstance(weights, Tensor) or weights.shape != (num_tokens,):
        given = tuple(weights.shape) if isinstance(weights, Tensor) else type(credit).__name__
        raise ValueError(f"Credit rule {name} should return a Credit with {num_tokens} weights, not {given}.")
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError(f"Credit rule {name} returned weights that are negative or not finite.")


def _without_attention(attention: AttentionRows, rule: CreditRule, config: CreditConfig, seed: int) -> Credit:
    """Returns the same credit for each token: the mean of what the rule gives where all tokens look at all columns."""
    blank = uniform(attention, config, seed)
    if config.scale == "mean_one":
        return blank
    even_TS, all_S = torch.ones_like(attention.rows_TS), torch.ones_like(attention.visual_S)
    even = rule(replace(attention, rows_TS=even_TS / even_TS.shape[1], visual_S=all_S), config, seed)
    return replace(blank, credit_T=even.credit_T.mean().expand_as(blank.credit_T).clone())


def _kept(
    score_T: NDArray[np.float64], fraction: float, connectivity_T: NDArray[np.float64], config: CreditConfig
) -> Credit:
    num_kept = math.ceil(fraction * len(score_T))
    weight_T = np.zeros(len(score_T))
    weight_T[np.argsort(-score_T, kind="stable")[:num_kept]] = 1.0
    return credit_of_weights(weight_T, connectivity_T, config)


def _rearranged(base: Credit, source_T: NDArray[np.int64]) -> Credit:
    credit_T = base.credit_T[torch.from_numpy(source_T.copy())]
    diagnostics = base.diagnostics | placement(credit_T.double().numpy(), base.connectivity_T.double().numpy())
    return replace(base, credit_T=credit_T, diagnostics=diagnostics)


def credit_of_weights(
    weight_T: NDArray[np.float64],
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
    if config.scale == "mean_one" and len(weight_T):
        weight_T = weight_T / weight_T.mean()
    if importance_T is None:
        importance_T = connectivity_T / max(connectivity_T.max(initial=0.0), np.finfo(np.float64).tiny)
    if cluster_T is None:
        cluster_T = np.arange(len(weight_T))
    return Credit(
        credit_T=torch.from_numpy(weight_T).float(),
        connectivity_T=torch.from_numpy(connectivity_T).float(),
        importance_T=torch.from_numpy(importance_T).float(),
        cluster_T=torch.from_numpy(cluster_T),
        diagnostics=diagnostics | placement(weight_T, connectivity_T),
    )

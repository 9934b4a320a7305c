"""The credit rules: one function per rule, all of the same signature, from attention rows to a weight for each token.

    rule(attention, config, seed) -> Credit

Here are those of the paper and its ablations; `published.py` has those of other papers, docs/credit_rules.md all of
them. A rule of somebody else's is any function of this form, or one that an installed package names in the entry points
`atrl_bench.rules`. `connectivity_density` and `credit_of_weights` are what most of them need.

Every ablation of the paper is the full rule with a field or two of its config changed, so it says so and nothing more.
torch is loaded when a credit is computed, not when rules are listed.

Shapes: T response tokens, S columns, K clusters, P partitions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.published import PUBLISHED
from atrl_bench.credit.refinement import denoise, propagate, start_importance
from atrl_bench.credit.rule import (
    Credit,
    CreditRule,
    TokenInput,
    batched,
    connectivity_density,
    credit_of_rows,
    credit_of_weights,
    credits_at_once,
    highest,
    needs_of,
    placement,
    reads,
    reads_whole_rows,
)
from atrl_bench.errors import PluginError, UnknownNameError, told
from atrl_bench.plugins import check_names, load_plugin, package_of, plugins

if TYPE_CHECKING:
    from atrl_bench.credit.attention_rows import AttentionRows
    from atrl_bench.credit.graph import ScaledRows, TokenGraph
    from atrl_bench.credit.sketch import RowSketch

_DEFAULT = CreditConfig()
# Of so many tokens together nearly all time is arithmetic; with more, graphs without `max_neighbours` would add up.
_TOKENS_AT_ONCE = 4096
HOW_CALLED = "it is called as rule(attention, config, seed) -> Credit; mend it, then the same command again"


def credit_rule(rule: str | CreditRule) -> CreditRule:
    """Returns the rule of this name, ours or of another installed package; a function is returned as it is."""
    if callable(rule):
        return rule
    if rule in RULES or rule in ORACLES:
        return RULES.get(rule) or ORACLES[rule]
    if rule in plugins("rules"):
        loaded = load_plugin("rules", rule)
        if not callable(loaded) or isinstance(loaded, type):
            raise PluginError(
                f"Credit rule {rule!r} of package {package_of(plugins('rules')[rule])} is no function.",
                why=f"It is a {'class' if isinstance(loaded, type) else type(loaded).__name__}.",
                next_step=f"name a function in its entry point, or an object that can be called; {HOW_CALLED}",
            )
        return cast(CreditRule, loaded)
    raise UnknownNameError("credit rule", rule, rule_names(), next_step="atrl-bench list rules")


def rule_names() -> list[str]:
    """Returns the names of all rules, ours first; none of another package is imported."""
    check_names("rules", {**RULES, **ORACLES})
    return [*RULES, *ORACLES, *plugins("rules")]


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
    return token_credits([attention], rule, config, [seed])[0]


def token_credits(
    attentions: Sequence[AttentionRows | RowSketch],
    rule: str | CreditRule = "atrl",
    config: CreditConfig | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Credit]:
    """Returns the `token_credit` of each response, the same to the last bit; for short ones in half the time."""
    function = credit_rule(rule)
    config = _DEFAULT if config is None else config
    seeds = [0] * len(attentions) if seeds is None else seeds
    config = with_rows_of(function, config)
    is_sketched_B = [config.sketches(attention.num_tokens) for attention in attentions]
    if any(is_sketched_B):
        from atrl_bench.credit.sketch import RowSketch

        both = zip(attentions, is_sketched_B, strict=True)
        attentions = [RowSketch.of(one, config) if is_sketched else one for one, is_sketched in both]
    # A sketch stands where rules take rows.
    attentions = cast("Sequence[AttentionRows]", attentions)
    needs = sorted(needs_of(function))
    credits = [_credit_alike(*each, function, needs, config) for each in zip(attentions, seeds, strict=True)]
    apart = [b for b, credit in enumerate(credits) if credit is None]
    for chunk in _chunks(apart, [attention.num_tokens for attention in attentions]):
        with nullcontext() if is_own(function) else told(f"Credit rule {_name(function)} failed.", HOW_CALLED):
            computed = credits_at_once(function, [attentions[b] for b in chunk], config, [seeds[b] for b in chunk])
            for b, credit in zip(chunk, computed, strict=True):
                if not is_own(function):
                    _check(credit, attentions[b].num_tokens)
                credits[b] = credit
    found = cast("list[Credit]", credits)
    if any(is_sketched_B):
        for credit, is_sketched in zip(found, is_sketched_B, strict=True):
            credit.diagnostics["sketched"] = float(is_sketched)
    return found


def _credit_alike(
    attention: AttentionRows, seed: int, rule: CreditRule, needs: Sequence[TokenInput], config: CreditConfig
) -> Credit | None:
    """Returns the credit of a response whose tokens no rule can tell apart; None for any other."""
    if attention.num_tokens < 2:
        return uniform(attention, config, seed)
    if missing := [f"{name}_T" for name in needs if getattr(attention, f"{name}_T") is None]:
        raise ValueError(
            f"Credit rule {_name(rule)} reads AttentionRows.{' and '.join(missing)}, which nobody gave it here. "
            "docs/credit_rules.md says where each rule can be used."
        )
    return None if attention.looks_at_the_image() else _without_attention(attention, rule, config, seed)


def _chunks(numbers: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of the responses that are computed at once, in order."""
    chunk: list[int] = []
    num_tokens = 0
    for b in numbers:
        num_tokens += lengths[b]
        if chunk and num_tokens > _TOKENS_AT_ONCE:
            yield chunk
            chunk, num_tokens = [], lengths[b]
        chunk.append(b)
    if chunk:
        yield chunk


def uniform(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns exactly 1.0 for every token: the sequence-level credit of GRPO and its relatives."""
    connectivity_T = connectivity_density(attention, config)
    return credit_of_weights(np.ones(len(connectivity_T)), connectivity_T, config)


@batched
def atrl(attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]) -> list[Credit]:
    """Returns the anchor-token credit, c_t = W(C_k) for t in C_k, W(C_k) = sum of phi over C_k / sum of all phi.

    The equation of section 4.3 has the connectivity C where we have phi; then refinement and propagation, which
    change phi only, would change nothing. `cluster_mass="density"` is the equation as written.

    With `partitions` above one, W is the mean over as many METIS seeds: the graph is built once and divided anew, then
    refined anew. What is reported of clusters is their mean; `cluster_T` are those of the first.
    """
    from atrl_bench.credit.graph import cosine_graph, partition, scaled_rows

    connectivities = [connectivity_density(attention, config) for attention in attentions]
    rows_B = [scaled_rows(attention, config) for attention in attentions]
    started = time.thread_time()
    graph = cosine_graph(rows_B, config)
    seeds_BP = [partition_seeds(seed, config.partitions) for seed in seeds]
    clusters_PT = [partition(graph, config, seeds_B) for seeds_B in zip(*seeds_BP, strict=True)]
    graph_seconds = (time.thread_time() - started) / graph.batch.num_tokens
    connectivity_T = np.concatenate(connectivities)
    parts_PB = [_grouped(graph, rows_B, connectivity_T, cluster_T, config) for cluster_T in clusters_PT]
    credits = []
    for b, parts in enumerate(zip(*parts_PB, strict=True)):
        weights_PT = [part.weight_T for part in parts if part.weight_T is not None]
        if not weights_PT:  # every token was an outlier, and outliers count nothing
            credits.append(_without_attention(attentions[b], atrl, config.replace(outlier_scale=1.0), seeds[b]))
            continue
        names = parts[0].diagnostics
        diagnostics = {name: math.fsum(part.diagnostics[name] for part in parts) / len(parts) for name in names}
        credit = credit_of_weights(
            _mean(weights_PT),
            connectivities[b],
            config,
            importance_T=_mean([part.importance_T for part in parts]),
            cluster_T=parts[0].cluster_T,
            edge_density=rows_B[b].edge_density(config),
            dropped_columns=float(rows_B[b].num_dropped),
            **diagnostics,
        )
        credits.append(replace(credit, graph_seconds=graph_seconds * rows_B[b].num_tokens))
    return credits


@dataclass(frozen=True, eq=False)
class _Grouped:
    """What one partition of the graph makes of a response; no weight where every token was an outlier."""

    weight_T: NDArray[np.float64] | None
    importance_T: NDArray[np.float64]
    cluster_T: NDArray[np.int64]
    diagnostics: dict[str, float]


def _grouped(
    graph: TokenGraph,
    rows_B: Sequence[ScaledRows],
    connectivity_T: NDArray[np.float64],
    cluster_T: NDArray[np.int64],
    config: CreditConfig,
) -> list[_Grouped]:
    """Returns W(C_k) of each token's cluster after refinement and propagation, for each response."""
    from atrl_bench.credit.graph import centroid_cosines, random_cut

    batch, cuts, first_B = graph.batch, graph.cuts(cluster_T), graph.batch.bounds[:-1]
    random_cuts = [random_cut(cluster_T) for cluster_T in batch.split(cluster_T)]
    similarity_T = centroid_cosines(rows_B, batch, cluster_T).astype(np.float64)
    importance_T = denoise(start_importance(batch, connectivity_T, config), similarity_T, config)
    importance_T, cluster_T, is_promoted_T = propagate(graph, importance_T, cluster_T, config)
    num_outliers_B = np.add.reduceat(similarity_T < config.min_centroid_similarity, first_B, dtype=np.int64)
    num_promoted_B = np.add.reduceat(is_promoted_T, first_B, dtype=np.int64)
    mass_T = importance_T if config.cluster_mass == "importance" else connectivity_T
    own_T, _ = batch.own_labels(cluster_T)
    mass_of_cluster_T = np.bincount(own_T, weights=mass_T)[own_T]
    parts = zip(*map(batch.split, (mass_T, mass_of_cluster_T, importance_T, cluster_T)), strict=True)
    grouped_B = []
    for b, (mass, mass_of_cluster, importance, cluster) in enumerate(parts):
        diagnostics = {
            "cut": cuts[b],
            "random_cut": random_cuts[b],
            "outlier_share": int(num_outliers_B[b]) / len(mass),
            "promoted_share": int(num_promoted_B[b]) / len(mass),
        }
        total = mass.sum()
        grouped_B.append(_Grouped(mass_of_cluster / total if total else None, importance, cluster, diagnostics))
    return grouped_B


def _mean(values_PT: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return values_PT[0] if len(values_PT) == 1 else np.mean(values_PT, axis=0)


def partition_seeds(seed: int, count: int) -> list[int]:
    """Returns the seeds of this many partitions: the seed itself, then draws that no near seed shares."""
    if count == 1:
        return [seed]
    return [seed, *np.random.default_rng(seed).integers(2**31, size=count - 1).tolist()]


def raw_attention(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit in proportion to each token's own connectivity ("w/o Grouping")."""
    connectivity_T = connectivity_density(attention, config)
    return credit_of_weights(connectivity_T / connectivity_T.sum(), connectivity_T, config)


@batched
def grouping_only(attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]) -> list[Credit]:
    """Returns the credit of the METIS clusters as they come, neither refined nor expanded ("Grouping Only")."""
    return credits_at_once(atrl, attentions, config.replace(outlier_scale=1.0, num_neighbours=0), seeds)


@batched
def without_expansion(attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]) -> list[Credit]:
    """Returns the credit without neighbourhood propagation ("w/o Neighborhood Expansion")."""
    return credits_at_once(atrl, attentions, config.replace(num_neighbours=0), seeds)


@batched
def without_refinement(attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]) -> list[Credit]:
    """Returns the credit without centroid denoising ("w/o Cluster Refinement")."""
    return credits_at_once(atrl, attentions, config.replace(outlier_scale=1.0), seeds)


@reads_whole_rows
@batched
def without_bias_correction(
    attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]
) -> list[Credit]:
    """Returns the credit from raw rows: with both terms of the bias curve at zero it is one everywhere."""
    return credits_at_once(atrl, attentions, config.replace(exp_weight=0.0, cosine_weight=0.0), seeds)


def hard_truncation(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the `kept_fraction` of tokens with the highest connectivity alone, the same for each.

    The paper does not say what such a loss is divided by. `mean_one` divides by the kept tokens; `as_written` gives
    plain ones and zeros, hence divides by all.
    """
    connectivity_T = connectivity_density(attention, config)
    return _kept(connectivity_T, connectivity_T, config)


def bottom_truncation(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns the mirror image of hard_truncation: credit for the `kept_fraction` with the lowest connectivity."""
    connectivity_T = connectivity_density(attention, config)
    return _kept(-connectivity_T, connectivity_T, config)


def random_truncation(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the `kept_fraction` of tokens that a draw picks: a control of what few tokens teach."""
    score_T = np.random.default_rng(seed).random(attention.num_tokens)
    return _kept(score_T, connectivity_density(attention, config), config)


def latest_truncation(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the last `kept_fraction` of tokens: a control, since late tokens look at images less."""
    score_T = np.arange(attention.num_tokens, dtype=np.float64)
    return _kept(score_T, connectivity_density(attention, config), config)


@reads("entropy")
def entropy_truncation(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the `kept_fraction` with the lowest entropy: a control, since certain tokens teach nothing."""
    assert attention.entropy_T is not None
    score_T = -attention.entropy_T.double().numpy()
    return _kept(score_T, connectivity_density(attention, config), config)


@batched
def random(attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]) -> list[Credit]:
    """Returns the anchor-token credit dealt to the tokens in random order: the same weights in the wrong places."""
    bases = credits_at_once(atrl, attentions, config, seeds)
    orders = [
        np.random.default_rng(seed).permutation(len(base.credit_T)) for base, seed in zip(bases, seeds, strict=True)
    ]
    return [_rearranged(base, order_T) for base, order_T in zip(bases, orders, strict=True)]


@batched
def reverse(attentions: Sequence[AttentionRows], config: CreditConfig, seeds: Sequence[int]) -> list[Credit]:
    """Returns the anchor-token credit with its ranks reversed: the most weight for the least grounded token."""
    return [_reversed(base) for base in credits_at_once(atrl, attentions, config, seeds)]


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
            random_truncation,
            latest_truncation,
            entropy_truncation,
            random,
            reverse,
            *PUBLISHED,
        )
    }
)


def oracle_perception(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the tokens known to be read from the image, by default half of it; generated data only."""
    return _oracle("perception", attention, config)


def oracle_reasoning(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns credit for the tokens known to be reasoned, by default half of it; generated data only."""
    return _oracle("reasoning", attention, config)


def _oracle(part: str, attention: AttentionRows, config: CreditConfig) -> Credit:
    if part not in attention.parts:
        raise ValueError(f"The oracle_{part} rule needs AttentionRows.parts to say which tokens are {part}.")
    is_part_T = attention.parts[part].double().numpy()
    weight_T = np.ones(len(is_part_T))
    if is_part_T.any():
        weight_T = config.soft_share + (1 - config.soft_share) * is_part_T / is_part_T.mean()
    return credit_of_rows(weight_T, attention, config)


# What an oracle puts credit on is in no model: it takes data that was generated with its truth.
ORACLES: Mapping[str, CreditRule] = MappingProxyType(
    {"oracle_perception": oracle_perception, "oracle_reasoning": oracle_reasoning}
)


def part_of_oracle(rule: str | CreditRule) -> str | None:
    """Returns which part of a response an oracle has to know; None for any other rule."""
    return next((name.removeprefix("oracle_") for name, own in ORACLES.items() if rule in (name, own)), None)


def is_own(rule: CreditRule) -> bool:
    """Returns whether a rule is one of these, and not somebody else's."""
    return any(rule is own for own in (*RULES.values(), *ORACLES.values()))


def with_rows_of(rule: CreditRule, config: CreditConfig) -> CreditConfig:
    """Returns the settings for a rule: `auto` is `exact` for one that reads whole rows, and for somebody else's."""
    reads_rows = getattr(rule, "whole_rows", False)
    if reads_rows and config.rows == "sketch":
        raise ValueError(
            f"Credit rule {_name(rule)} reads whole attention rows, and rows='sketch' leaves none. Set rows='exact', "
            "or choose a rule of connectivity and graph, such as atrl."
        )
    return config.replace(rows="exact") if config.rows == "auto" and (reads_rows or not is_own(rule)) else config


def _name(rule: CreditRule) -> str:
    return str(getattr(rule, "__name__", type(rule).__name__))


def _check(credit: Credit, num_tokens: int) -> None:
    """Raise if what a rule of somebody else's returned cannot multiply the advantages of a response."""
    from torch import Tensor

    weights = getattr(credit, "credit_T", None)
    if not isinstance(weights, Tensor) or weights.shape != (num_tokens,):
        given = tuple(weights.shape) if isinstance(weights, Tensor) else type(credit).__name__
        raise ValueError(f"It should return a Credit with {num_tokens} weights, not {given}.")
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("It returned weights that are negative or not finite.")


def _without_attention(attention: AttentionRows, rule: CreditRule, config: CreditConfig, seed: int) -> Credit:
    """Returns the same credit for each token: the mean of what the rule gives where all tokens look at all columns."""
    blank = uniform(attention, config, seed)
    if config.scale == "mean_one":
        return blank
    even = rule(attention.even(), config, seed)
    return replace(blank, credit_T=even.credit_T.mean().expand_as(blank.credit_T).clone())


def _kept(score_T: NDArray[np.float64], connectivity_T: NDArray[np.float64], config: CreditConfig) -> Credit:
    return credit_of_weights(highest(score_T, config.kept_fraction).astype(float), connectivity_T, config)


def _reversed(base: Credit) -> Credit:
    order_T = np.argsort(base.credit_T.numpy(), kind="stable")
    # The token of rank r takes the weight of rank T - 1 - r.
    source_T = np.empty_like(order_T)
    source_T[order_T] = order_T[::-1]
    return _rearranged(base, source_T)


def _rearranged(base: Credit, source_T: NDArray[np.int64]) -> Credit:
    import torch

    credit_T = base.credit_T[torch.from_numpy(source_T)]
    diagnostics = base.diagnostics | placement(credit_T.double().numpy(), base.connectivity_T.double().numpy())
    return replace(base, credit_T=credit_T, diagnostics=diagnostics)

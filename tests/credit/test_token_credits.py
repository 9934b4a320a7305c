"""Many responses at once: each gets what it gets alone, to the last bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_bench.credit import RULES, AttentionRows, CreditConfig, token_credit
from atrl_bench.credit import rules as rules_module
from atrl_bench.credit.rules import ORACLES, token_credits
from atrl_bench.credit.token_batch import TokenBatch
from atrl_bench.credit.workers import CreditTask, credits_of

GROUPED = ["atrl", "grouping_only", "without_expansion", "without_refinement", "without_bias_correction", "random"]
NO_TOKEN_FITS = CreditConfig(outlier_scale=0.0, min_centroid_similarity=1.1)
CONFIGS = {
    "default": CreditConfig(),
    "literal": CreditConfig.preset("literal"),
    "partitions": CreditConfig(partitions=3),
    "all tokens are outliers": NO_TOKEN_FITS,
    "all tokens are outliers, as written": NO_TOKEN_FITS.replace(scale="as_written", partitions=2),
    "most tokens are outliers": CreditConfig(outlier_scale=0.0, min_centroid_similarity=0.9, partitions=3),
    "promoted into clusters": CreditConfig(promotion="cluster", hub_fraction=0.5, tokens_per_cluster=3),
    "ranks": CreditConfig(importance_start="rank", hub_rank="degree"),
    "one neighbour": CreditConfig(max_neighbours=1, max_imbalance=0.5),
    "as written": CreditConfig(scale="as_written", footprint="visual"),
}


def response(num_tokens, seed, num_visual=20):
    """Causal rows in topics, some of them without any attention to the image."""
    generator = torch.Generator().manual_seed(seed)
    num_columns = 30 + seed % 40 + num_tokens
    centre_KS = torch.randn(max(2, num_tokens // 8), num_columns, generator=generator).mul(1.8).exp()
    topic_T = torch.randint(len(centre_KS), (num_tokens,), generator=generator)
    rows_TS = centre_KS[topic_T] * torch.randn(num_tokens, num_columns, generator=generator).mul(0.6).exp()
    after_TS = torch.arange(num_columns) > num_columns - num_tokens + torch.arange(num_tokens)[:, None]
    rows_TS = rows_TS.masked_fill(after_TS, 0.0)
    rows_TS /= rows_TS.sum(1, keepdim=True)
    visual_S = (torch.arange(num_columns) >= 5) & (torch.arange(num_columns) < 5 + num_visual)
    parts = {"perception": torch.arange(num_tokens) % 3 == 0, "reasoning": torch.arange(num_tokens) % 3 == 1}
    entropy_T, logprob_T, blackened_T = (torch.rand(num_tokens, generator=generator) for _ in range(3))
    return AttentionRows(rows_TS, visual_S, entropy_T, -logprob_T, -blackened_T, parts)


def assert_equal(credit, other):
    for name in ("credit_T", "connectivity_T", "importance_T", "cluster_T"):
        assert torch.equal(getattr(credit, name), getattr(other, name)), name
    assert credit.diagnostics == other.diagnostics


def assert_as_alone(attentions, rule, config, seeds):
    together = token_credits(attentions, rule, config, seeds)
    assert len(together) == len(attentions)
    for credit, attention, seed in zip(together, attentions, seeds, strict=True):
        assert_equal(credit, token_credit(attention, rule, config, seed))


@pytest.mark.parametrize("rule", sorted([*RULES, *ORACLES]))
def test_credits_of_many_responses_are_those_of_each_alone_by_every_rule(rule):
    attentions = [response(num_tokens, seed=num_tokens) for num_tokens in (*range(1, 61, 3), 300)]
    attentions.insert(4, response(25, seed=7, num_visual=0))
    assert_as_alone(attentions, rule, CreditConfig(), list(range(len(attentions))))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("rule", ["atrl", "reverse"])
def test_credits_of_many_responses_are_those_of_each_alone_with_every_config(rule, config):
    attentions = [response(num_tokens, seed=100 + num_tokens) for num_tokens in (2, 30, 300, 61, 5, 130, 17)]
    attentions.insert(2, response(25, seed=7, num_visual=0))
    assert_as_alone(attentions, rule, config, [2**31 + b for b in range(len(attentions))])


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 10**6), st.sampled_from([0, 1, 20])), min_size=1, max_size=8),
    st.sampled_from(GROUPED),
    st.sampled_from(sorted(CONFIGS)),
)
def test_no_response_changes_the_credit_of_another(shapes, rule, config):
    attentions = [response(num_tokens, seed, num_visual) for num_tokens, seed, num_visual in shapes]
    assert_as_alone(attentions, rule, CONFIGS[config], [seed for _, seed, _ in shapes])


def test_how_many_tokens_are_computed_at_once_changes_nothing(monkeypatch):
    attentions, seeds = [response(num_tokens, num_tokens) for num_tokens in range(1, 40)], list(range(39))
    expected = token_credits(attentions, "atrl", None, seeds)
    for at_once in (1, 100):
        monkeypatch.setattr(rules_module, "_TOKENS_AT_ONCE", at_once)
        for credit, other in zip(token_credits(attentions, "atrl", None, seeds), expected, strict=True):
            assert_equal(credit, other)


def test_the_time_of_the_graph_is_shared_out_to_the_responses():
    credits = token_credits([response(num_tokens, 1) for num_tokens in (10, 40)])
    assert credits[1].graph_seconds == pytest.approx(4 * credits[0].graph_seconds)
    assert credits[0].graph_seconds > 0


def test_no_responses_have_no_credits():
    assert token_credits([]) == []
    assert credits_of([]) == []


def test_tasks_of_different_rules_and_configs_keep_their_order():
    choices = [("atrl", CreditConfig()), ("uniform", CreditConfig()), ("atrl", CreditConfig()), ("atrl", NO_TOKEN_FITS)]
    tasks = []
    for b, (rule, config) in enumerate(choices):
        attention = response(20 + b, b)
        rows_TS, visual_S = attention.rows_TS.numpy(), attention.visual_S.numpy()
        tasks.append(CreditTask(rows_TS, visual_S, RULES[rule], config, b))
    for task, credit in zip(tasks, credits_of(tasks), strict=True):
        assert_equal(credit, task())


def test_an_order_within_each_response():
    batch = TokenBatch([3, 2])
    assert batch.rank(np.array([0.2, 0.1, 0.2, 5.0, 0.1])).tolist() == [1, 0, 2, 1, 0]

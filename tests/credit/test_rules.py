import dataclasses
import itertools
import math
import re
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_bench.credit import (
    RULES,
    AttentionRows,
    CreditConfig,
    connectivity_density,
    credit_of_weights,
    install_row_capture,
    split_attention_rows,
    token_credit,
)
from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import partition_seeds
from atrl_bench.errors import AtrlBenchError, PluginError, UnknownNameError
from atrl_bench.plugins import plugins

FLAT = CreditConfig(exp_weight=0.0, cosine_weight=0.0, footprint="all")
GROUPED = ["atrl", "grouping_only", "without_expansion", "without_refinement", "without_bias_correction"]


def attention_of(rows, visual, **of_tokens):
    return AttentionRows(
        torch.tensor(rows), torch.tensor(visual), **{name: torch.tensor(value) for name, value in of_tokens.items()}
    )


def by_hand():
    """Four tokens, four columns, the last two visual: tokens 0 and 1 look at the image, 2 and 3 at the text."""
    rows = [[0.1, 0.1, 0.4, 0.4], [0.1, 0.1, 0.5, 0.3], [0.4, 0.5, 0.05, 0.05], [0.5, 0.4, 0.05, 0.05]]
    return attention_of(rows, [False, False, True, True], entropy_T=[1.0, 3.0, 2.0, 0.0])


def realistic(num_tokens=60, num_prompt=50, seed=0, sink=0.3):
    """Causal rows in topics, with an attention sink, half of the prompt visual, and every stage with work to do."""
    generator = torch.Generator().manual_seed(seed)
    num_columns = num_prompt + num_tokens
    num_topics = max(2, num_tokens // 8)
    centre_KS = torch.randn(num_topics, num_columns, generator=generator).mul(1.8).exp()
    topic_T = torch.randint(num_topics, (num_tokens,), generator=generator)
    rows_TS = centre_KS[topic_T] * torch.randn(num_tokens, num_columns, generator=generator).mul(0.6).exp()
    future_TS = torch.arange(num_columns) > num_prompt + torch.arange(num_tokens)[:, None]
    rows_TS.masked_fill_(future_TS, 0.0)
    rows_TS *= (1 - sink) / rows_TS.sum(dim=1, keepdim=True)
    rows_TS[:, 0] += sink
    visual_S = torch.zeros(num_columns, dtype=torch.bool)
    visual_S[5 : 5 + num_prompt // 2] = True
    parts = {"perception": torch.arange(num_tokens) % 10 == 0, "reasoning": torch.arange(num_tokens) % 10 == 5}
    entropy_T, logprob_T, blackened_T = (torch.rand(num_tokens, generator=generator) for _ in range(3))
    return AttentionRows(rows_TS, visual_S, entropy_T, -3 * logprob_T, -3 * blackened_T, parts)


# By hand.


def test_credit_by_hand():
    # C = 0.8, 0.8, 0.1, 0.1; phi = 1, 1, 1/8, 1/8. Two clusters, {0, 1} and {2, 3}: W = 8/9 and 1/9, mean 1/2.
    credit = token_credit(by_hand(), "grouping_only", FLAT)
    torch.testing.assert_close(credit.connectivity_T, torch.tensor([0.8, 0.8, 0.1, 0.1]))
    torch.testing.assert_close(credit.credit_T, torch.tensor([16 / 9, 16 / 9, 2 / 9, 2 / 9]))
    literal = token_credit(by_hand(), "atrl", CreditConfig.preset("literal").replace(exp_weight=0, cosine_weight=0))
    torch.testing.assert_close(literal.credit_T, torch.tensor([8 / 9, 8 / 9, 1 / 9, 1 / 9]))
    torch.testing.assert_close(literal.importance_T, torch.tensor([1, 1, 1 / 8, 1 / 8]))


def test_raw_attention_by_hand():
    # 0.8, 0.8, 0.1, 0.1 over their mean 0.45.
    credit = token_credit(by_hand(), "raw_attention", FLAT).credit_T
    torch.testing.assert_close(credit, torch.tensor([0.8, 0.8, 0.1, 0.1]) / 0.45)
    as_written = token_credit(by_hand(), "raw_attention", FLAT.replace(scale="as_written")).credit_T
    torch.testing.assert_close(as_written, torch.tensor([0.8, 0.8, 0.1, 0.1]) / 1.8)


def test_truncations_keep_a_share_rounded_up():
    config = FLAT.replace(kept_fraction=0.3, entropy_fraction=0.5)
    # ceil(0.3 * 4) = 2 of 4 tokens, so twice the weight on each.
    assert token_credit(by_hand(), "hard_truncation", config).credit_T.tolist() == [2, 2, 0, 0]
    assert token_credit(by_hand(), "bottom_truncation", config).credit_T.tolist() == [0, 0, 2, 2]
    assert token_credit(by_hand(), "high_entropy", config).credit_T.tolist() == [0, 2, 2, 0]
    assert token_credit(by_hand(), "entropy_truncation", config).credit_T.tolist() == [2, 0, 0, 2]
    assert token_credit(by_hand(), "latest_truncation", config).credit_T.tolist() == [0, 0, 2, 2]
    drawn = {tuple(token_credit(by_hand(), "random_truncation", config, seed).credit_T.tolist()) for seed in range(50)}
    assert drawn == set(itertools.permutations([2.0, 2.0, 0.0, 0.0]))  # all six pairs of tokens
    as_written = config.replace(scale="as_written")
    assert token_credit(by_hand(), "hard_truncation", as_written).credit_T.tolist() == [1, 1, 0, 0]


def test_reverse_gives_the_most_weight_to_the_least_grounded():
    attention = realistic()
    forward, backward = (token_credit(attention, rule).credit_T for rule in ("atrl", "reverse"))
    order = forward.argsort(stable=True)
    torch.testing.assert_close(backward[order], forward[order].flip(0))
    assert sorted(forward.tolist()) == sorted(backward.tolist())


def test_a_rule_that_builds_a_graph_says_how_long_it_took():
    attention = realistic()
    seconds = {rule: token_credit(attention, rule).graph_seconds for rule in ("atrl", "reverse", "raw_attention")}
    assert seconds["atrl"] > 0 < seconds["reverse"]
    assert seconds["raw_attention"] == 0


def test_random_deals_the_same_weights_and_follows_the_seed():
    attention = realistic()
    first, again, other = (token_credit(attention, "random", seed=seed).credit_T for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert sorted(first.tolist()) == sorted(token_credit(attention, "atrl", seed=1).credit_T.tolist())


def test_random_follows_the_seed_where_the_clusters_are_the_same_for_every_seed():
    dealt, clustered = (
        {tuple(token_credit(by_hand(), rule, FLAT, seed).credit_T.tolist()) for seed in range(8)}
        for rule in ("random", "atrl")
    )
    assert len(clustered) == 1 < len(dealt)


def test_partitions_are_averaged_and_none_is_shared_with_the_next_seed():
    attention, config = realistic(200), CreditConfig(scale="as_written", partitions=3)
    assert len({*partition_seeds(7, 3), *partition_seeds(8, 3)}) == 6
    single = [token_credit(attention, "atrl", config.replace(partitions=1), seed) for seed in partition_seeds(7, 3)]
    assert not torch.equal(single[0].credit_T, single[1].credit_T), "else their mean would show nothing"
    credit = token_credit(attention, "atrl", config, seed=7)
    torch.testing.assert_close(credit.credit_T, torch.stack([one.credit_T for one in single]).mean(0))
    assert credit.diagnostics["cut"] == pytest.approx(np.mean([one.diagnostics["cut"] for one in single]))


def test_more_partitions_make_a_credit_agree_with_itself_under_another_seed():
    attention = realistic(200)
    agreements = []
    for partitions in (1, 8):
        config = CreditConfig(partitions=partitions)
        credits = [token_credit(attention, "atrl", config, seed).credit_T for seed in range(1, 7)]
        correlation = torch.corrcoef(torch.stack(credits))
        agreements.append(float(correlation[~torch.eye(6, dtype=torch.bool)].mean()))
    assert agreements[0] < 0.9 < 0.96 < agreements[1]


# Properties.


@settings(max_examples=40)
@given(st.integers(2, 70), st.integers(0, 10**6), st.sampled_from(sorted(RULES)), st.floats(0, 0.8))
def test_every_rule_has_mean_one_and_no_negative_weight(num_tokens, seed, rule, sink):
    credit = token_credit(realistic(num_tokens, seed=seed, sink=sink), rule, seed=seed)
    assert float(credit.credit_T.double().mean()) == pytest.approx(1.0, abs=1e-6)
    assert bool((credit.credit_T >= 0).all())
    assert all(map(math.isfinite, credit.diagnostics.values()))


@settings(max_examples=20)
@given(st.integers(2, 70), st.integers(0, 10**6))
def test_cluster_weights_sum_to_one_as_written(num_tokens, seed):
    credit = token_credit(realistic(num_tokens, seed=seed), "atrl", CreditConfig.preset("literal"))
    weights = {int(k): float(c) for k, c in zip(credit.cluster_T, credit.credit_T, strict=True)}
    assert sum(weights.values()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("preset", ["default", "literal"])
@pytest.mark.parametrize("rule", GROUPED)
def test_credit_is_constant_inside_a_cluster(rule, preset):
    credit = token_credit(realistic(), rule, CreditConfig.preset(preset))
    for cluster in credit.cluster_T.unique():
        assert len(credit.credit_T[credit.cluster_T == cluster].unique()) == 1


def test_uniform_is_exactly_one_everywhere_in_both_presets():
    for preset in ("default", "literal"):
        for num_tokens in (1, 2, 3, 7, 49, 300):
            credit = token_credit(realistic(num_tokens), "uniform", CreditConfig.preset(preset)).credit_T
            assert torch.equal(credit, torch.ones(num_tokens))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_the_same_seed_gives_the_same_credit_and_arguments_stay_as_they_were(rule):
    attention = realistic(300)
    before = attention.rows_TS.clone()
    torch.manual_seed(0)
    np.random.seed(0)
    first = token_credit(attention, rule, seed=3)
    torch.manual_seed(1)
    np.random.seed(1)
    again = token_credit(attention, rule, seed=3)
    assert torch.equal(first.credit_T, again.credit_T)
    assert torch.equal(attention.rows_TS, before)


@pytest.mark.parametrize("rule", ["raw_attention", "hard_truncation", "grouping_only", "atrl"])
def test_reordering_tokens_reorders_their_credit(rule):
    # Three groups that look at three different columns, so that METIS has one answer.
    rows_TS = torch.full((30, 6), 0.02)
    rows_TS[torch.arange(30), torch.arange(30) % 3] = torch.tensor([0.9, 0.6, 0.3])[torch.arange(30) % 3]
    rows_TS += 1e-4 * torch.arange(30)[:, None]
    visual_S = torch.tensor([True, True, True, False, False, False])
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    credit = token_credit(AttentionRows(rows_TS, visual_S), rule, FLAT).credit_T
    reordered = token_credit(AttentionRows(rows_TS[order], visual_S), rule, FLAT).credit_T
    torch.testing.assert_close(reordered, credit[order])


# Ablations are the full rule with a field changed.


def test_ablations_equal_the_full_rule_with_their_stage_switched_off():
    attention = realistic()
    full = CreditConfig()
    same = {
        "grouping_only": full.replace(outlier_scale=1.0, num_neighbours=0),
        "without_expansion": full.replace(num_neighbours=0),
        "without_refinement": full.replace(outlier_scale=1.0),
        "without_bias_correction": full.replace(exp_weight=0.0, cosine_weight=0.0),
    }
    credits = {rule: token_credit(attention, rule).credit_T for rule in [*same, "atrl"]}
    for rule, config in same.items():
        assert torch.equal(credits[rule], token_credit(attention, "atrl", config).credit_T)
        assert not torch.equal(credits[rule], credits["atrl"])


def test_as_written_refinement_changes_phi_and_never_the_credit():
    literal = CreditConfig.preset("literal").replace(footprint="without_sinks")
    full, grouped = (token_credit(realistic(), rule, literal) for rule in ("atrl", "grouping_only"))
    assert torch.equal(full.credit_T, grouped.credit_T)
    assert not torch.equal(full.importance_T, grouped.importance_T)


OTHER_VALUE = {
    "exp_weight": 0.9,
    "exp_decay": 0.5,
    "cosine_weight": 0.3,
    "footprint": "visual",
    "min_sink_share": 1.0,
    "min_edge_similarity": 0.9,
    "max_neighbours": 2,
    "tokens_per_cluster": 5,
    "max_imbalance": 0.8,
    "partitions": 3,
    "importance_start": "rank",
    "min_centroid_similarity": 0.9,
    "outlier_scale": 0.2,
    "hub_rank": "degree",
    "hub_fraction": 0.5,
    "num_neighbours": 1,
    "similarity_weight": 0.0,
    "importance_weight": 0.1,
    "min_neighbour_score": 0.99,
    "promotion": "cluster",
    "cluster_mass": "density",
    "scale": "as_written",
    "kept_fraction": 0.5,
    "entropy_fraction": 0.5,
    "soft_share": 0.25,
}
RULE_THAT_READS = {
    "kept_fraction": "hard_truncation",
    "entropy_fraction": "high_entropy",
    "soft_share": "oracle_perception",
}
# `rows` decides how they are known: test_sketch.py.
OF_THE_PASS = {"num_layers", "reading", "black_probability", "rows"}


@pytest.mark.parametrize("name", sorted(OTHER_VALUE))
def test_every_setting_changes_a_result(name):
    attention, rule = realistic(), RULE_THAT_READS.get(name, "atrl")
    changed = CreditConfig().replace(**{name: OTHER_VALUE[name]})
    assert not torch.equal(token_credit(attention, rule).credit_T, token_credit(attention, rule, changed).credit_T)


@pytest.mark.full
def test_the_settings_above_are_all_there_are_but_those_of_the_scoring_pass(tiny_vlm):
    names = {field.name for field in dataclasses.fields(CreditConfig)}
    assert names - OTHER_VALUE.keys() == OF_THE_PASS
    tiny = tiny_vlm("qwen2_5_vl")

    def credit(config):
        capture = install_row_capture(tiny.model, config.num_layers)
        with torch.no_grad(), capture.record(tiny.num_response_tokens) as recording:
            tiny.model(**tiny.inputs)
        mask_BS = tiny.inputs["attention_mask"]
        rows_BTS = recording.rows(config.reading)
        return token_credit(
            split_attention_rows(rows_BTS, mask_BS, tiny.visual_BS, tiny.response_mask_BT)[0], config=config
        )

    default = CreditConfig()
    expected = credit(default).credit_T
    assert not torch.equal(credit(default.replace(num_layers=1)).credit_T, expected)
    assert not torch.equal(credit(default.replace(reading="own")).credit_T, expected)


# Diagnostics.


def test_diagnostics_by_hand():
    diagnostics = token_credit(by_hand(), "grouping_only", FLAT).diagnostics
    # Shares 4/9, 4/9, 1/18, 1/18. Entropy over log 4, the top ceil(0.6) = 1 token, edges 0-1 and 2-3 of six pairs.
    entropy = -(2 * 4 / 9 * math.log(4 / 9) + 2 / 18 * math.log(1 / 18)) / math.log(4)
    assert diagnostics["entropy"] == pytest.approx(entropy)
    assert diagnostics["top15_share"] == pytest.approx(4 / 9)
    assert diagnostics["edge_density"] == pytest.approx(2 / 6)
    assert diagnostics["cut"] == 0
    assert diagnostics["random_cut"] == pytest.approx(2 / 3)
    # Weights 8, 8, 1, 1 and places 0, 1, 2, 3 about their means: -14 / sqrt(49 * 5).
    assert diagnostics["position_correlation"] == pytest.approx(-2 / 5**0.5)
    assert diagnostics["connectivity_correlation"] == pytest.approx(1.0)
    assert diagnostics["mean_connectivity"] == pytest.approx(0.45)


def test_uniform_credit_has_full_entropy_its_fair_share_and_no_correlation():
    diagnostics = token_credit(realistic(40), "uniform").diagnostics
    assert diagnostics["entropy"] == pytest.approx(1.0)
    assert diagnostics["top15_share"] == pytest.approx(6 / 40)
    assert diagnostics["position_correlation"] == 0
    assert "cut" not in diagnostics


def test_a_sink_shows_in_the_diagnostics_of_the_literal_preset():
    attention = realistic(sink=0.6)
    literal = token_credit(attention, config=CreditConfig.preset("literal")).diagnostics
    default = token_credit(attention).diagnostics
    assert literal["edge_density"] > 0.99
    assert literal["cut"] == pytest.approx(literal["random_cut"], abs=0.03)
    assert literal["dropped_columns"] == 0
    assert default["edge_density"] < 0.3
    assert default["cut"] < 0.5 * default["random_cut"]
    assert default["dropped_columns"] == 1


# Bad input.


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("num_tokens", [0, 1])
def test_fewer_than_two_tokens_get_one_each(num_tokens, rule):
    assert token_credit(realistic(num_tokens), rule).credit_T.tolist() == [1.0] * num_tokens


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_response_without_visual_columns_gets_uniform_credit(rule):
    attention = realistic()
    text_only = dataclasses.replace(attention, visual_S=torch.zeros_like(attention.visual_S))
    assert torch.equal(token_credit(text_only, rule).credit_T, torch.ones(60))


NEVER_LOOKED = AttentionRows(
    torch.zeros(30, 38), torch.tensor([True] * 4 + [False] * 34), torch.rand(30), -torch.rand(30), -torch.rand(30)
)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_response_that_never_looked_at_the_image_gets_uniform_credit(rule):
    assert torch.equal(token_credit(NEVER_LOOKED, rule).credit_T, torch.ones(30))


@pytest.mark.parametrize(
    ("rule", "mean"),
    # Three clusters that share one; a token's share of one; the kept 15 %, hence 5 of 30; the kept 20 %.
    [("atrl", 1 / 3), ("raw_attention", 1 / 30), ("hard_truncation", 5 / 30), ("high_entropy", 6 / 30), ("uniform", 1)],
)
def test_as_written_it_weighs_as_much_as_a_response_whose_tokens_look_alike(rule, mean):
    credit_T = token_credit(NEVER_LOOKED, rule, CreditConfig(scale="as_written")).credit_T
    assert credit_T.tolist() == pytest.approx([mean] * 30, rel=0.05)
    assert len(set(credit_T.tolist())) == 1


@pytest.mark.parametrize("scale", ["mean_one", "as_written"])
def test_where_all_tokens_are_outliers_that_count_nothing_each_gets_the_same(scale):
    config = CreditConfig(outlier_scale=0.0, min_centroid_similarity=1.1, num_neighbours=0, scale=scale)
    credit_T = token_credit(realistic(), "atrl", config).credit_T
    assert len(set(credit_T.tolist())) == 1
    assert 0 < float(credit_T[0]) <= 1


def test_some_rows_of_zeros_among_others_do_no_harm():
    attention = realistic()
    rows_TS = attention.rows_TS.clone()
    rows_TS[::3] = 0
    for rule in ("atrl", "raw_attention"):
        credit = token_credit(AttentionRows(rows_TS, attention.visual_S), rule)
        assert float(credit.credit_T.mean()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_rows_that_are_no_attention_are_refused_with_the_reason(value):
    rows_TS = torch.full((3, 4), 0.25)
    rows_TS[1, 2] = value
    with pytest.raises(ValueError, match="finite and not negative"):
        AttentionRows(rows_TS, torch.ones(4, dtype=torch.bool))


def test_wrong_shapes_are_refused_by_name():
    rows_TS = torch.full((3, 4), 0.25)
    with pytest.raises(ValueError, match="visual_S should be 4 booleans"):
        AttentionRows(rows_TS, torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="rows_TS should be a float matrix"):
        AttentionRows(rows_TS[0], torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="entropy_T should have 3 values"):
        AttentionRows(rows_TS, torch.ones(4, dtype=torch.bool), torch.ones(4))


def test_an_unknown_rule_and_a_missing_input_say_what_is_needed():
    with pytest.raises(UnknownNameError, match="atrl-bench list rules"):
        token_credit(by_hand(), "anchor")
    rows_alone = AttentionRows(by_hand().rows_TS, by_hand().visual_S)
    for rule, function in RULES.items():
        if missing := [f"{name}_T" for name in sorted(needs_of(function))]:
            with pytest.raises(ValueError, match=" and ".join(missing)):
                token_credit(rows_alone, rule)
        else:
            token_credit(rows_alone, rule)


# A rule of somebody else's.


def squared(attention, config, seed):
    connectivity_T = connectivity_density(attention, config)
    return credit_of_weights(connectivity_T**2, connectivity_T, config, sharpness=2.0)


def test_a_rule_may_be_a_function():
    # C = 0.8, 0.8, 0.1, 0.1; squared 0.64, 0.64, 0.01, 0.01 with mean 0.325.
    credit = token_credit(by_hand(), squared, FLAT)
    torch.testing.assert_close(credit.credit_T, torch.tensor([0.64, 0.64, 0.01, 0.01]) / 0.325)
    assert credit.diagnostics["sharpness"] == 2.0


def test_weights_may_be_of_any_numbers():
    def by_rank(attention, config, seed):
        return credit_of_weights(torch.arange(4), connectivity_density(attention, config), config)

    # 0, 1, 2, 3 with mean 1.5.
    torch.testing.assert_close(token_credit(by_hand(), by_rank).credit_T, torch.arange(4) / 1.5)


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ([-2.0, -1.0, -1.0, -4.0], "these reach from -4.0 to -1.0"),  # over their mean all positive
        ([0.0] * 4, "not all zero"),
        ([1.0, 1.0, math.nan, 1.0], "should be finite"),
        ([1.0] * 3, "a Credit with 4 weights, not (3,)"),
    ],
)
def test_a_function_that_returns_no_usable_weights_is_named(weights, told):
    def mine(attention, config, seed):
        return credit_of_weights(weights, connectivity_density(attention, config), config)

    with pytest.raises(AtrlBenchError, match=f"Credit rule mine failed.\n.*{re.escape(told)}"):
        token_credit(by_hand(), mine)


def test_a_function_that_returns_no_credit_or_a_negative_one_is_named():
    def backwards(attention, config, seed):
        credit = squared(attention, config, seed)
        return dataclasses.replace(credit, credit_T=-credit.credit_T)

    with pytest.raises(AtrlBenchError, match="backwards failed"):
        token_credit(by_hand(), backwards)
    with pytest.raises(AtrlBenchError, match="a Credit with 4 weights, not Tensor"):
        token_credit(by_hand(), lambda attention, config, seed: torch.ones(4))


def test_what_is_logged_of_a_credit_is_a_number():
    def noted(attention, config, seed):
        weights = connectivity_density(attention, config)
        return credit_of_weights(weights, weights, config, kind="sharp")

    with pytest.raises(AtrlBenchError, match=r"Credit rule noted failed.\n.*'sharp'"):
        token_credit(by_hand(), noted)


@pytest.mark.parametrize("needs", [{"entropies"}, "entropies"])
def test_a_need_that_no_token_has_is_told_before_anything_is_computed(needs):
    def mine(attention, config, seed):
        raise NotImplementedError

    mine.needs = needs
    with pytest.raises(UnknownNameError, match=r"entropies.*\nDid you mean entropy"):
        token_credit(by_hand(), mine)


# Oracles.


@pytest.mark.parametrize(("rule", "weights"), [("oracle_perception", [2.5, 0.5, 0.5, 0.5]), ("oracle_reasoning", None)])
def test_an_oracle_puts_half_of_the_credit_on_its_tokens_and_half_on_all(rule, weights):
    # One token of four: 1/2 everywhere and 1/2 * 4 on it, mean one.
    attention = dataclasses.replace(by_hand(), parts={"perception": torch.tensor([True, False, False, False])})
    if weights is None:
        with pytest.raises(ValueError, match="which tokens are reasoning"):
            token_credit(attention, rule)
    else:
        assert token_credit(attention, rule).credit_T.tolist() == weights
        hard = token_credit(attention, rule, CreditConfig(soft_share=0.0))
        assert hard.credit_T.tolist() == [4, 0, 0, 0]


def test_an_oracle_without_its_tokens_in_a_response_is_uniform():
    attention = dataclasses.replace(by_hand(), parts={"perception": torch.zeros(4, dtype=torch.bool)})
    assert token_credit(attention, "oracle_perception").credit_T.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("attribute", "kind"), [("Rule", "class"), ("NAME", "str")])
def test_a_class_among_the_entry_points_is_no_rule_and_an_object_of_it_is(tmp_path, monkeypatch, attribute, kind):
    code = """
from atrl_bench.credit import RULES
class Rule:
    def __call__(self, attention, config, seed):
        return RULES["uniform"](attention, config, seed)
NAME, rule = "rule", Rule()
"""
    (tmp_path / "rule_of_a_class.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("rule", attribute):
        entry = EntryPoint(name, f"rule_of_a_class:{name}", "atrl_bench.rules")
        monkeypatch.setitem(plugins("rules"), name, entry)
    assert token_credit(by_hand(), "rule").credit_T.tolist() == [1.0] * 4
    with pytest.raises(PluginError, match=rf"is no function(.|\n)*It is a {kind}(.|\n)*or an object"):
        token_credit(by_hand(), attribute)

import dataclasses

import pytest

from atrl_bench.credit import PRESETS, CreditConfig
from atrl_bench.digests import spec_key


def test_the_default_preset_carries_the_papers_constants():
    config = CreditConfig.preset("default")
    assert config == CreditConfig()
    assert (config.exp_weight, config.exp_decay, config.cosine_weight) == (0.15, 4.0, 0.05)
    assert (config.min_edge_similarity, config.tokens_per_cluster) == (0.7, 10)
    assert (config.min_centroid_similarity, config.outlier_scale) == (0.75, 0.6)
    assert (config.hub_fraction, config.num_neighbours, config.min_neighbour_score) == (0.15, 4, 0.65)
    assert (config.similarity_weight, config.importance_weight) == (0.5, 0.5)
    assert config.num_layers == 4


def test_the_literal_preset_differs_in_the_named_fields_only():
    default, literal = dataclasses.asdict(CreditConfig()), dataclasses.asdict(CreditConfig.preset("literal"))
    changed = {name: value for name, value in literal.items() if value != default[name]}
    assert changed == dict(PRESETS["literal"])
    assert set(changed) == {"reading", "footprint", "max_neighbours", "cluster_mass", "scale"}


def test_a_field_younger_than_stored_keys_enters_them_only_where_it_is_set():
    # The name under which stored folders keep the credit of its stored answers.
    assert spec_key(CreditConfig().document()) == "733a67bad3a8e205"
    assert CreditConfig(partitions=4).document() == {**CreditConfig().document(), "partitions": 4}


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="default, literal"):
        CreditConfig.preset("paper")
    with pytest.raises(TypeError, match="temperature"):
        CreditConfig().replace(temperature=1.0)
    with pytest.raises(ValueError, match="all, without_sinks, visual, prompt"):
        CreditConfig(footprint="text")


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_layers": 0},
        {"tokens_per_cluster": 0},
        {"max_neighbours": 0},
        {"num_neighbours": -1},
        {"kept_fraction": 0.0},
        {"hub_fraction": 1.5},
        {"outlier_scale": -0.1},
        {"exp_weight": float("nan")},
        {"min_edge_similarity": "high"},
        {"tokens_per_cluster": None},
        {"partitions": 0},
        {"tokens_per_cluster": 2.5},
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CreditConfig(**wrong)

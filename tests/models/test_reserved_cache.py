"""A cache with room for what is to come holds what transformers' own cache holds."""

from __future__ import annotations

import torch
from transformers import DynamicCache

from atrl_bench.models.decoding import ReservedLayer, reserve


def grown(is_reserved):
    """Return a cache of two layers after three tokens, a choice of rows, and one more token."""
    states = iter(torch.randn(12, 3, 2, 1, 4, generator=torch.Generator().manual_seed(0)))
    cache = DynamicCache()
    for layer in (0, 1):
        cache.update(torch.cat([next(states), next(states)], dim=2), next(states).expand(-1, -1, 2, -1), layer)
    if is_reserved:
        reserve(cache, 2)
    for rows in ([2, 0, 0, 1], None):
        for layer in (0, 1):
            key = next(states)
            cache.update(key if rows else key[[2, 0, 0, 1]], key if rows else key[[2, 0, 0, 1]], layer)
        if rows:
            cache.reorder_cache(torch.tensor(rows))
    return cache


def test_it_grows_and_chooses_rows_like_the_cache_it_replaces():
    plain, reserved = grown(False), grown(True)
    for expected, layer in zip(plain.layers, reserved.layers, strict=True):
        assert torch.equal(layer.keys, expected.keys)
        assert torch.equal(layer.values, expected.values)
        assert layer.get_seq_length() == 4


def test_a_token_is_added_without_moving_those_before_it():
    cache, states = DynamicCache(), torch.randn(3, 2, 1, 4)
    cache.update(states, states, 0)
    reserve(cache, 1)
    before = cache.layers[0].keys.data_ptr()
    keys, _ = cache.update(states + 1, states, 0)
    assert isinstance(cache.layers[0], ReservedLayer)
    assert keys.data_ptr() == before
    assert torch.equal(keys, torch.cat([states, states + 1], dim=2))

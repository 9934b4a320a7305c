"""FlashAttention is asked for where it can run; its kernels need a GPU, so only what is asked for is tested here."""

from __future__ import annotations

import pytest
from tiny_vlms import make_tiny_vlm

from atrl_bench.models.attention import attention_of, prefer_flash_attention


@pytest.fixture
def installed(monkeypatch):
    """A machine of which transformers says that FlashAttention runs there."""
    monkeypatch.setattr("transformers.utils.is_flash_attn_2_available", lambda: True)


def test_flash_attention_is_asked_for_where_it_is_installed(installed, monkeypatch):
    model, names = make_tiny_vlm("qwen2_5_vl").model, []
    monkeypatch.setattr(model, "set_attn_implementation", names.append)
    prefer_flash_attention(model, "bfloat16")
    assert names == ["flash_attention_2"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_it_a_model_keeps_sdpa(dtype):
    model = make_tiny_vlm("qwen2_5_vl").model
    prefer_flash_attention(model, dtype)
    assert attention_of(model) == "sdpa"


def test_single_precision_and_a_model_that_has_no_flash_attention_keep_sdpa(installed):
    model = make_tiny_vlm("qwen2_5_vl").model
    prefer_flash_attention(model, "float32")
    model._supports_flash_attn = False
    prefer_flash_attention(model, "bfloat16")
    assert attention_of(model) == "sdpa"

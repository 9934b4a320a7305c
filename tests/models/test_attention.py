"""FlashAttention is asked for where it can run; all windows of a vision tower at once give what one by one gives.

The kernels need a GPU: what is asked for is tested here, with a loop over the windows in their place, and
`atrl-bench doctor --gpu` compares the kernel itself.
"""

import pytest
import torch
from tiny_vlms import make_tiny_vlm
from torch.nn.functional import scaled_dot_product_attention

from atrl_bench.models import attention
from atrl_bench.models.attention import attention_of, join_vision_windows, joins_vision_windows, prefer_flash_attention


@pytest.fixture
def installed(monkeypatch):
    """A machine of which transformers says that FlashAttention runs there."""
    monkeypatch.setattr("transformers.utils.is_flash_attn_2_available", lambda: True)


def test_flash_attention_is_asked_for_where_it_is_installed(installed, monkeypatch):
    model, names = make_tiny_vlm("qwen2_5_vl").model, []
    monkeypatch.setattr(model, "set_attn_implementation", names.append)
    prefer_flash_attention(model, "bfloat16")
    assert names == ["flash_attention_2"]


def test_single_precision_and_a_model_that_has_no_flash_attention_keep_sdpa(installed):
    model = make_tiny_vlm("qwen2_5_vl").model
    prefer_flash_attention(model, "float32")
    model._supports_flash_attn = False
    prefer_flash_attention(model, "bfloat16")
    assert attention_of(model) == "sdpa"


def loop_over_windows(query_SHD, key_SHD, value_SHD, bounds, bounds_of_keys, longest, longest_key, *, scale):
    """What torch's kernel computes."""
    assert torch.equal(bounds, bounds_of_keys)
    assert longest == longest_key == int(bounds.diff().max())
    assert bounds.dtype == torch.int32
    windows = []
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        query, key, value = (each[start:end].transpose(0, 1)[None] for each in (query_SHD, key_SHD, value_SHD))
        windows.append(scaled_dot_product_attention(query, key, value, scale=scale)[0].transpose(0, 1))
    return torch.cat(windows)


@pytest.fixture
def kernel(monkeypatch):
    """A machine with such a kernel."""
    monkeypatch.setattr(attention, "kernel", lambda: loop_over_windows)


def outputs_and_gradients(vlm):
    vlm.model.zero_grad()
    logits = vlm.model(**vlm.inputs).logits
    logits.square().mean().backward()
    return logits.detach(), {name: value.grad.clone() for name, value in vlm.model.visual.named_parameters()}


def test_a_model_computes_the_same_with_its_windows_joined_forwards_and_backwards(kernel):
    vlm = make_tiny_vlm("qwen2_5_vl")
    vlm.model.visual = vlm.model.model.visual
    expected, expected_gradients = outputs_and_gradients(vlm)
    assert join_vision_windows(vlm.model)
    assert joins_vision_windows(vlm.model)
    logits, gradients = outputs_and_gradients(vlm)
    torch.testing.assert_close(logits, expected, atol=1e-6, rtol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], atol=1e-7, rtol=1e-4)


def test_windows_are_joined_in_half_precision_where_flash_attention_is_not_installed(kernel):
    model = make_tiny_vlm("qwen2_5_vl").model
    prefer_flash_attention(model, "float32")
    assert not joins_vision_windows(model)
    prefer_flash_attention(model, "bfloat16")
    assert joins_vision_windows(model)
    assert attention_of(model) == "sdpa"  # of the text, whose rows are recorded


def test_a_machine_without_a_gpu_has_no_such_kernel_and_keeps_sdpa(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    attention.kernel.cache_clear()
    model = make_tiny_vlm("qwen2_5_vl").model
    prefer_flash_attention(model, "bfloat16")
    assert not joins_vision_windows(model)


def test_a_model_whose_vision_tower_has_no_windows_is_left_alone(kernel):
    vlm = make_tiny_vlm("llava")
    assert not join_vision_windows(vlm.model)
    assert not joins_vision_windows(vlm.model)


def test_layers_that_drop_attention_out_keep_their_own(kernel):
    model = make_tiny_vlm("qwen2_5_vl").model
    for layer in model.modules():
        if hasattr(layer, "attention_dropout"):
            layer.attention_dropout = 0.1
    assert not join_vision_windows(model)

import copy
from itertools import accumulate, pairwise
from types import SimpleNamespace

import pytest
import torch
from programs import printed

from atrl_bench.credit import capture as capture_module
from atrl_bench.credit import install_row_capture, split_attention_rows, visual_columns
from atrl_bench.credit.capture import attention_rows, packed_sequences, rows_of_mask

FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "llava", "gemma3"]


def recorded(model, inputs, num_tokens=8, **options):
    """Return what one pass of the model leaves."""
    capture = install_row_capture(model, **options)
    with torch.no_grad(), capture.record(num_tokens) as recording:
        model(**inputs)
    capture.remove()
    return recording


def valid_rows(rows_BTS, tiny):
    return rows_BTS[tiny.response_mask_BT.bool()]


# The oracle: transformers' own eager matrices.


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_equal_the_eager_matrices_for_padded_multi_image_batches(family, implementation, tiny_vlm, eager_rows):
    tiny = tiny_vlm(family, implementation)
    recording = recorded(tiny.model, tiny.inputs, num_layers=3)
    expected_BSS = eager_rows(tiny, 3)
    own, predicting = recording.rows("own"), recording.rows("predicting")
    assert own.dtype == torch.float32
    torch.testing.assert_close(valid_rows(own, tiny), valid_rows(expected_BSS[:, -8:], tiny), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        valid_rows(predicting, tiny), valid_rows(expected_BSS[:, -9:-1], tiny), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_same_to_the_last_bit_with_the_wrapper_on(family, tiny_vlm):
    tiny = tiny_vlm(family)
    with torch.no_grad():
        before = tiny.model(**tiny.inputs).logits
        capture = install_row_capture(tiny.model)
        wrapped = tiny.model(**tiny.inputs).logits
        with capture.record(tiny.num_response_tokens):
            recorded = tiny.model(**tiny.inputs).logits
    assert torch.equal(before, wrapped)
    assert torch.equal(before, recorded)


def test_bfloat16_rows_are_the_float32_softmax_of_the_bfloat16_queries_and_keys(tiny_vlm, monkeypatch):
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import eager_attention_forward, repeat_kv

    tiny = tiny_vlm("qwen2_5_vl")
    tiny.model.to(torch.bfloat16)
    tiny.inputs["pixel_values"] = tiny.inputs["pixel_values"].bfloat16()
    seen, eager_seen = [], []

    def eager_that_keeps_its_matrix(module, query, key, value, attention_mask, scaling, dropout=0.0, **options):
        key_states = repeat_kv(key, module.num_key_value_groups)
        scores = query.float() @ key_states.float().transpose(2, 3) * scaling + attention_mask.float()
        seen.append(scores.softmax(dim=-1).mean(dim=1))
        output, weights = eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout)
        eager_seen.append(weights.float().mean(dim=1))
        return output, weights

    monkeypatch.setitem(AttentionInterface._global_mapping, "keeping", eager_that_keeps_its_matrix)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "keeping", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    tiny.model.set_attn_implementation({"text_config": "keeping"})
    rows = valid_rows(recorded(tiny.model, tiny.inputs, num_layers=3).rows("own"), tiny)
    expected = valid_rows(torch.stack(seen[-3:]).mean(dim=0)[:, -8:], tiny)
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=0)
    # Eager itself rounds its matrix to bfloat16, which has eight bits of mantissa.
    rounded = valid_rows(torch.stack(eager_seen[-3:]).mean(dim=0)[:, -8:], tiny)
    torch.testing.assert_close(rows, rounded, atol=2**-8, rtol=2**-7)


def test_autocast_does_not_reach_the_rows(tiny_vlm):
    tiny = tiny_vlm("llava")
    capture = install_row_capture(tiny.model)
    products = []
    original = capture_module.attention_rows

    def spy(query, key, mask, **options):
        products.append(original(torch.randn_like(query), key, mask, **options).dtype)
        assert not torch.is_autocast_enabled("cpu")
        return original(query, key, mask, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_module, "attention_rows", spy)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), capture.record(tiny.num_response_tokens):
            tiny.model(**tiny.inputs)
    assert products == [torch.float32] * 4


# How much is computed, and when.


def test_only_the_response_rows_and_one_before_them_are_computed(tiny_vlm, monkeypatch):
    tiny = tiny_vlm("qwen2_5_vl")
    capture = install_row_capture(tiny.model, num_layers=2)
    shapes = []
    original = capture_module.attention_rows
    monkeypatch.setattr(
        capture_module,
        "attention_rows",
        lambda query, *rest, **kw: (shapes.append(query.shape), original(query, *rest, **kw))[1],
    )
    with torch.no_grad(), capture.record(tiny.num_response_tokens):
        tiny.model(**tiny.inputs)
    assert shapes == [(3, 4, 9, 16)] * 2


def test_heads_taken_one_by_one_give_the_same_rows_as_heads_taken_together(monkeypatch):
    query, key = torch.randn(2, 6, 5, 8), torch.randn(2, 3, 11, 8)
    together = attention_rows(query, key, None, scaling=0.5)
    monkeypatch.setattr(capture_module, "_MAX_SCORES", {True: 1, False: 1})
    torch.testing.assert_close(attention_rows(query, key, None, scaling=0.5), together, atol=1e-6, rtol=0)


def test_two_heads_that_share_a_key_head_by_hand():
    # D = 1, one key head with keys 0 and ln 3; the queries 1 and 0 give (1/4, 3/4) and (1/2, 1/2); mean (3/8, 5/8).
    query = torch.tensor([1.0, 0.0]).reshape(1, 2, 1, 1)
    key = torch.tensor([0.0, 3.0]).clamp_min(1.0).log().reshape(1, 1, 2, 1)
    rows = attention_rows(query, key, None, scaling=1.0)
    torch.testing.assert_close(rows, torch.tensor([[[0.375, 0.625]]]))


def test_nothing_is_recorded_outside_the_block_or_while_generating(tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    capture = install_row_capture(tiny.model)
    with torch.no_grad():
        with capture.record(tiny.num_response_tokens) as recording:
            tiny.model(**tiny.inputs)
        rows = recording.rows("own")
        tiny.model(**tiny.inputs)
        tiny.model.generate(**tiny.inputs, max_new_tokens=2, do_sample=False)
    assert torch.equal(recording.rows("own"), rows)


def test_an_empty_recording_and_a_nested_one_say_what_is_wrong(tiny_vlm):
    tiny = tiny_vlm("llava")
    capture = install_row_capture(tiny.model)
    with capture.record(8) as recording, pytest.raises(ValueError, match="do not nest"), capture.record(8):
        pass
    with pytest.raises(ValueError, match="No forward pass"):
        recording.rows("own")
    with pytest.raises(ValueError, match="at least 1"), capture.record(0):
        pass


def test_a_cached_step_and_a_response_without_a_prompt_are_refused(tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    capture = install_row_capture(tiny.model)
    length = tiny.inputs["input_ids"].shape[1]
    with torch.no_grad(), capture.record(length), pytest.raises(ValueError, match="do not fit"):
        tiny.model(**tiny.inputs)
    with torch.no_grad(), capture.record(1), pytest.raises(ValueError, match="whole sequences"):
        tiny.model.generate(**tiny.inputs, max_new_tokens=3)


def test_micro_batches_are_appended_in_their_order(tiny_vlm):
    tiny = tiny_vlm("llava")
    text = {name: tiny.inputs[name][[2, 2, 2]].clone() for name in ("input_ids", "attention_mask")}
    text["input_ids"][0, -3], text["input_ids"][1, -5] = 20, 21
    capture = install_row_capture(tiny.model)
    with torch.no_grad():
        with capture.record(8) as whole:
            tiny.model(**text)
        with capture.record(8) as parts:
            for b in range(3):
                tiny.model(**{name: value[b : b + 1] for name, value in text.items()})
    torch.testing.assert_close(parts.rows("predicting"), whole.rows("predicting"), atol=1e-6, rtol=0)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing_records_each_layer_once_even_with_the_backward_inside(use_reentrant, tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    capture = install_row_capture(tiny.model)
    with torch.no_grad(), capture.record(8) as expected:
        tiny.model(**tiny.inputs)
    tiny.model.train()
    tiny.model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    tiny.model.enable_input_require_grads()
    with capture.record(8) as recording:
        tiny.model(**tiny.inputs, use_cache=False).logits.sum().backward()
    assert recording.rows("own").shape == expected.rows("own").shape
    torch.testing.assert_close(recording.rows("own"), expected.rows("own"), atol=1e-5, rtol=0)
    assert not recording.rows("own").requires_grad


def test_a_lora_model_is_recorded_with_its_adapters_and_its_reference_pass_is_not(tiny_vlm):
    from peft import LoraConfig, get_peft_model

    tiny = tiny_vlm("qwen2_5_vl")
    base = recorded(tiny.model, tiny.inputs)
    lora = get_peft_model(tiny.model, LoraConfig(r=4, target_modules=["q_proj", "k_proj"], init_lora_weights=False))
    capture = install_row_capture(lora)
    with torch.no_grad():
        with capture.record(8) as recording:
            lora(**tiny.inputs)
        with lora.disable_adapter():
            lora(**tiny.inputs)
        with lora.disable_adapter(), capture.record(8) as without:
            lora(**tiny.inputs)
    assert len(recording.rows("own")) == 3
    assert (recording.rows("own") - base.rows("own")).abs().max() > 1e-3
    torch.testing.assert_close(without.rows("own"), base.rows("own"), atol=1e-6, rtol=0)


# Masks.


def test_the_flash_form_of_masks_gives_the_rows_of_eager(tiny_vlm, eager_rows, monkeypatch):
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    tiny = tiny_vlm("llava")
    expected_BSS = eager_rows(tiny, 4)
    masks = []

    def like_flash(module, query, key, value, attention_mask, scaling=None, **options):
        # The name must be the original one here: flash attention looks its kernel up by it.
        assert module.config._attn_implementation == "flash_like"
        masks.append(None if attention_mask is None else tuple(attention_mask.shape))
        keep = rows_of_mask(attention_mask, query.shape[2], query.shape[2], query.device)
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=keep, scale=scaling, enable_gqa=True
        )
        return output.nan_to_num().transpose(1, 2), None

    monkeypatch.setitem(AttentionInterface._global_mapping, "flash_like", like_flash)
    flash_mask = ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"]
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "flash_like", flash_mask)
    tiny.model.config.get_text_config()._attn_implementation = "flash_like"
    recording = recorded(tiny.model, tiny.inputs)
    assert set(masks) == {(3, tiny.inputs["input_ids"].shape[1])}
    rows = valid_rows(recording.rows("own"), tiny)
    torch.testing.assert_close(rows, valid_rows(expected_BSS[:, -8:], tiny), atol=1e-5, rtol=0)

    unpadded = {name: value[:1] for name, value in tiny.inputs.items() if name != "pixel_values"}
    unpadded["pixel_values"] = tiny.inputs["pixel_values"][:2]
    masks.clear()
    recording = recorded(tiny.model, unpadded)
    assert set(masks) == {None}
    torch.testing.assert_close(recording.rows("own"), expected_BSS[:1, -8:], atol=1e-5, rtol=0)


# Sequences packed into one row, as flash attention takes them without a mask.


def attention_of_packed_sequences(module, query, key, value, attention_mask, scaling=None, **options):
    """A stand-in for flash attention's variable-length kernel: each sequence on its own, with transformers' lengths."""
    from transformers.modeling_flash_attention_utils import _is_packed_sequence, prepare_fa_kwargs_from_position_ids

    assert attention_mask is None
    ends = options.get("cu_seq_lens_q")
    if ends is None:
        assert _is_packed_sequence(options["position_ids"], len(query))
        (ends, _), _ = prepare_fa_kwargs_from_position_ids(options["position_ids"])
    outputs = [
        torch.nn.functional.scaled_dot_product_attention(
            query[:, :, start:end], key[:, :, start:end], value[:, :, start:end], is_causal=True, scale=scaling,
            enable_gqa=True,
        )
        for start, end in pairwise(ends.tolist())
    ]  # fmt: skip
    return torch.cat(outputs, dim=2).transpose(1, 2), None


@pytest.fixture
def packed(monkeypatch):
    """A function that lays the first two sequences of a batch end to end, in one row, for a flash-like attention."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    def pack(tiny):
        monkeypatch.setitem(AttentionInterface._global_mapping, "flash_packed", attention_of_packed_sequences)
        mask = ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"]
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, "flash_packed", mask)
        tiny.model.config.get_text_config()._attn_implementation = "flash_packed"
        valid_BS = tiny.inputs["attention_mask"][:2].bool()
        lengths = valid_BS.sum(dim=1).tolist()
        inputs = {
            "input_ids": tiny.inputs["input_ids"][:2][valid_BS][None],
            "pixel_values": tiny.inputs["pixel_values"],
        }
        return inputs, lengths

    return pack


def expected_of_packed(tiny, eager_rows):
    """The eager rows of both sequences in one matrix, with nothing between them."""
    valid_BS = tiny.inputs["attention_mask"].bool()
    blocks = [rows[valid][:, valid] for rows, valid in zip(eager_rows(tiny, 4)[:2], valid_BS[:2], strict=True)]
    return torch.block_diag(*blocks)


@pytest.mark.parametrize("has_lengths", [False, True], ids=["their positions alone", "with their lengths"])
def test_packed_sequences_have_rows_of_their_own(has_lengths, tiny_vlm, packed, eager_rows):
    tiny = tiny_vlm("llava")
    expected_SS = expected_of_packed(tiny, eager_rows)
    inputs, lengths = packed(tiny)
    inputs["position_ids"] = torch.cat([torch.arange(length) for length in lengths])[None]
    if has_lengths:
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        inputs |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
    num_tokens = 8 if has_lengths else sum(lengths) - 1
    rows_TS = recorded(tiny.model, inputs, num_tokens).rows("own")[0]
    torch.testing.assert_close(rows_TS, expected_SS[-num_tokens:], atol=1e-5, rtol=0)


def test_lengths_of_packed_sequences_are_refused_where_attention_does_not_heed_them(tiny_vlm):
    tiny = tiny_vlm("llava")
    capture = install_row_capture(tiny.model)
    with pytest.raises(ValueError, match="cu_seq_lens_q"), torch.no_grad(), capture.record(8):
        tiny.model(**tiny.inputs, cu_seq_lens_q=torch.tensor([0, 10, 23]))


def test_which_sequence_a_position_belongs_to_by_hand():
    assert packed_sequences(1, 5, torch.tensor([0, 2, 5]), None).tolist() == [0, 0, 1, 1, 1]
    assert packed_sequences(1, 5, None, torch.tensor([[0, 1, 0, 1, 2]])).tolist() == [1, 1, 2, 2, 2]
    # Positions of one family start at two.
    assert packed_sequences(1, 4, None, torch.tensor([[2, 3, 2, 3]])).tolist() == [1, 1, 2, 2]
    assert packed_sequences(1, 3, None, torch.tensor([[7, 8, 9]])) is None
    assert packed_sequences(1, 3, None, None) is None
    # Of a batch of several rows flash attention does not read the positions.
    assert packed_sequences(2, 3, None, torch.tensor([[0, 0, 1], [0, 1, 2]])) is None
    with pytest.raises(ValueError, match="one row"):
        packed_sequences(2, 3, torch.tensor([0, 3, 6]), None)


def test_layers_of_linear_attention_have_no_rows_and_do_not_count(tiny_vlm):
    model = tiny_vlm("qwen3_5").model
    assert install_row_capture(model, num_layers=1).layer_indices == [7]
    assert install_row_capture(model, num_layers=2).layer_indices == [3, 7]


def test_row_masks_by_hand():
    cpu = torch.device("cpu")
    assert rows_of_mask(None, 2, 3, cpu).tolist() == [[[[True, True, False], [True, True, True]]]]
    assert rows_of_mask(None, 2, 3, cpu, sliding_window=2).tolist() == [[[[True, True, False], [False, True, True]]]]
    assert rows_of_mask(None, 2, 3, cpu, is_causal=False) is None
    left_padded = torch.tensor([[0, 1, 1]])
    assert rows_of_mask(left_padded, 2, 3, cpu).tolist() == [[[[False, True, False], [False, True, True]]]]
    full = torch.zeros(1, 1, 3, 3)
    assert rows_of_mask(full, 2, 3, cpu).shape == (1, 1, 2, 3)


# Installing.


def test_installing_twice_and_removing_leave_the_model_as_it_was(tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    text, vision = tiny.model.config.text_config, tiny.model.config.vision_config
    install_row_capture(tiny.model)
    capture = install_row_capture(tiny.model, num_layers=2)
    assert capture.layer_indices == [3, 4]
    assert text._attn_implementation == "sdpa_with_rows"
    assert vision._attn_implementation == "sdpa"
    assert "with_rows" not in tiny.model.config.to_json_string()
    capture.remove()
    assert text._attn_implementation == "sdpa"


def test_a_copy_of_a_prepared_model_is_never_recorded(tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    capture = install_row_capture(tiny.model)
    reference = copy.deepcopy(tiny.model)
    with torch.no_grad(), capture.record(8) as recording:
        reference(**tiny.inputs)
    with pytest.raises(ValueError, match="No forward pass"):
        recording.rows("own")


def test_a_model_without_a_text_decoder_is_refused():
    with pytest.raises(ValueError, match="no transformers model"):
        install_row_capture(torch.nn.Linear(2, 2))


# From padded rows to one footprint per response.


def test_attention_rows_are_cut_to_the_valid_rows_and_columns(tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    recording = recorded(tiny.model, tiny.inputs)
    visual_BS = visual_columns(tiny.model.config, tiny.inputs["input_ids"])
    assert torch.equal(visual_BS, tiny.visual_BS)
    entropy_BT = torch.arange(24.0).reshape(3, 8)
    attention_B = split_attention_rows(
        recording.rows("own"), tiny.inputs["attention_mask"], visual_BS, tiny.response_mask_BT, entropy_BT
    )
    # Prompts of 15, 10 and 3 tokens; responses of 8, 5 and 8; two images, one and none, of four tokens each.
    assert [tuple(f.rows_TS.shape) for f in attention_B] == [(8, 23), (5, 15), (8, 11)]
    assert [int(f.visual_S.sum()) for f in attention_B] == [8, 4, 0]
    assert attention_B[1].entropy_T.tolist() == [8, 9, 10, 11, 12]
    torch.testing.assert_close(attention_B[1].rows_TS.sum(dim=1), torch.ones(5))


def test_a_config_without_image_tokens_is_refused():
    with pytest.raises(ValueError, match="names no image token"):
        visual_columns(SimpleNamespace(), torch.zeros(1, 3, dtype=torch.long))


def test_a_recording_is_left_alone_by_torch_compile_and_loads_its_compiler_only_where_something_is_compiled():
    program = """
import sys, torch
from atrl_bench.credit.capture import left_uncompiled
assert "torch._dynamo" not in sys.modules

compiling = []
note = left_uncompiled(lambda: compiling.append(torch.compiler.is_compiling()))
note()
assert compiling == [False] and "torch._dynamo" not in sys.modules

def forward(x):
    note()
    return 2 * x, torch.compiler.is_compiling()

twice, compiled = torch.compile(forward, backend="eager")(torch.ones(3))
assert compiling == [False, False] and twice.tolist() == [2, 2, 2]
"""
    printed("-c", program)

"""The credit of a batch from a forward pass of any trainer: that of each response alone, wherever its tokens are."""

import zlib

import pytest
import torch

from atrl_bench.credit import AttentionRows, CreditConfig, token_credit
from atrl_bench.credit.trl import CreditWeights

CONFIG = CreditConfig(num_layers=2)


class NoWords:
    def decode(self, ids):
        return ""


def weights_of(tiny, rule="atrl"):
    return CreditWeights(rule, CONFIG, tiny.model, NoWords(), 7)


def test_only_the_tokens_that_the_mask_names_get_a_credit_and_it_is_that_of_their_rows(tiny_vlm, eager_rows):
    rows_BSS = eager_rows(tiny_vlm("qwen2_5_vl"), CONFIG.num_layers)
    tiny = tiny_vlm("qwen2_5_vl")
    ids_BS, columns_BS = tiny.inputs["input_ids"], tiny.inputs["attention_mask"]
    mask_BT = tiny.response_mask_BT.clone()
    mask_BT[0, :2] = 0  # unlike in TRL, where every response begins with the frame
    credit_BT = weights_of(tiny).of_pass(lambda: tiny.model(**tiny.inputs), ids_BS, columns_BS, mask_BT)
    assert credit_BT.shape == mask_BT.shape
    assert bool((credit_BT[mask_BT == 0] == 1).all())
    for b, row_T in enumerate(mask_BT.bool()):
        places_T = torch.arange(ids_BS.shape[1])[-mask_BT.shape[1] :][row_T]
        valid_S = columns_BS[b].bool()
        rows_TS = rows_BSS[b][places_T - 1][:, valid_S]
        visual_S = ids_BS[b][valid_S] == tiny.model.config.image_token_id
        seed = zlib.crc32(str((7, ids_BS[b][places_T].tolist())).encode())
        expected = token_credit(AttentionRows(rows_TS, visual_S), "atrl", CONFIG, seed)
        torch.testing.assert_close(credit_BT[b][row_T], expected.credit_T, atol=1e-4, rtol=1e-4)


def test_a_batch_whose_padding_was_removed_is_refused_with_what_to_switch_off(tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    ids_BS, columns_BS = tiny.inputs["input_ids"], tiny.inputs["attention_mask"]
    last = {"input_ids": ids_BS[2:], "attention_mask": columns_BS[2:]}  # which shows no image
    with pytest.raises(ValueError, match="Switch padding-free, packed and sequence-parallel passes off"):
        weights_of(tiny).of_pass(lambda: tiny.model(**last), ids_BS, columns_BS, tiny.response_mask_BT)


def test_a_rule_that_reads_more_than_attention_is_refused(tiny_vlm):
    tiny = tiny_vlm("qwen2_5_vl")
    batch = tiny.inputs["input_ids"], tiny.inputs["attention_mask"], tiny.response_mask_BT
    with pytest.raises(ValueError, match="reads entropy of each token"):
        weights_of(tiny, "high_entropy").of_pass(list, *batch)

"""The credit of one response as transformers' own attention matrices give it, for the tests of other engines."""

import zlib

import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText

from atrl_bench.credit import AttentionRows, CreditConfig, token_credit
from atrl_bench.mini import BASE


def eager_credit(ids_S: Tensor, is_response_S: Tensor, pixels: Tensor, grid: Tensor, run_seed: int) -> Tensor:
    """Return credit_T of a response to one image by the mini base, from a pass over its sequence alone, unpadded."""
    model = AutoModelForImageTextToText.from_pretrained(BASE, dtype=torch.float32, attn_implementation="eager").eval()
    visual_S, config = ids_S == model.config.image_token_id, CreditConfig()
    with torch.no_grad():
        attentions = model(
            input_ids=ids_S[None],
            pixel_values=pixels,
            image_grid_thw=grid[None],
            mm_token_type_ids=visual_S[None].int(),
            output_attentions=True,
        ).attentions
    rows_SS = torch.stack(attentions[-config.num_layers :]).mean((0, 2))[0]
    places_T = is_response_S.nonzero()[:, 0]
    # The row of the query before a token is the one that the token was drawn from.
    attention = AttentionRows(rows_SS[places_T - 1], visual_S)
    seed = zlib.crc32(str((run_seed, ids_S[places_T].tolist())).encode())
    return token_credit(attention, rule="atrl", config=config, seed=seed).credit_T

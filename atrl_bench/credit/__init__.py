"""AT-RL's credit assignment (section 4 of the paper): attention rows -> connectivity -> graph -> refinement -> credit.

Usable alone, with any transformers VLM; nothing in here knows about a trainer.

Attention rows, from a forward pass that happens anyway:

    capture = install_row_capture(model, num_layers=4)                   # once per model; RowCapture
    with capture.record(num_response_tokens=T) as recording:             # Recording; the last T positions
        model(...)                                                       # one or several (micro-batched) passes
    rows_BTS = recording.rows("predicting")                              # or "own"; float32, CPU, padding included
    attention_B = split_attention_rows(rows_BTS, attention_mask_BS, visual_BS, response_mask_BT, entropy_BT=None)
    visual_BS = visual_columns(model.config, input_ids_BS)               # or mm_token_type_ids != 0

Credit of one response, and of many, which takes less time and gives each the same to the last bit:

    token_credit(attention, rule="atrl", config=CreditConfig(), seed=0) -> Credit
    token_credits(attentions, rule="atrl", config=CreditConfig(), seeds=None) -> [Credit, ...]
    AttentionRows(rows_TS, visual_S)       # and entropy_T, logprob_T, blackened_logprob_T, parts where rules read them
    Credit.credit_T, .connectivity_T, .importance_T, .cluster_T, .diagnostics
    CreditConfig.preset("default" | "literal"), .replace(field=value); .num_layers and .reading belong to the capture
    RULES: name -> rule(attention, config, seed)

A rule of your own is such a function; anything that takes a rule takes its name or the function itself:

    connectivity_density(attention, config) -> C_i of each token
    credit_of_weights(weight_T, connectivity_T, config, **diagnostics) -> Credit

In a TRL trainer of your own: `atrl_bench.credit.trl.with_credit(GRPOTrainer, rule="atrl")`. In any other, from a
forward pass of its own:

    weights = CreditWeights("atrl", CreditConfig(), model, tokenizer, run_seed)      # atrl_bench.credit.trl; once
    credit_BT = weights.of_pass(run, input_ids_BS, attention_mask_BS, response_mask_BT)
    advantages_BT = credited(advantages, credit_BT)

Is it on the right tokens:

    transcribed_tokens(token_texts, transcription) -> BoolTensor
    tokens_of_part(TokenTruth(transcription, patterns), "perception", token_texts) -> BoolTensor
    anchor_auc(score_T, is_anchor_T) -> float
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atrl_bench.credit.anchors import anchor_auc, tokens_of_part, transcribed_tokens
    from atrl_bench.credit.attention_rows import AttentionRows, split_attention_rows, visual_columns
    from atrl_bench.credit.capture import Recording, RowCapture, install_row_capture
    from atrl_bench.credit.config import PRESETS, CreditConfig
    from atrl_bench.credit.rule import Credit, CreditRule, connectivity_density, credit_of_weights, reads
    from atrl_bench.credit.rules import RULES, credit_rule, token_credit, token_credits
    from atrl_bench.credit.truth import TokenTruth

# Looked up on first use: the settings need no torch, and a finished table is rendered without it.
_HOMES = {
    "anchors": ("anchor_auc", "tokens_of_part", "transcribed_tokens"),
    "capture": ("Recording", "RowCapture", "install_row_capture"),
    "config": ("PRESETS", "CreditConfig"),
    "attention_rows": ("AttentionRows", "split_attention_rows", "visual_columns"),
    "rule": ("Credit", "CreditRule", "connectivity_density", "credit_of_weights", "reads"),
    "rules": ("RULES", "credit_rule", "token_credit", "token_credits"),
    "truth": ("TokenTruth",),
}

__all__ = [
    "PRESETS",
    "RULES",
    "AttentionRows",
    "Credit",
    "CreditConfig",
    "CreditRule",
    "Recording",
    "RowCapture",
    "TokenTruth",
    "anchor_auc",
    "connectivity_density",
    "credit_of_weights",
    "credit_rule",
    "install_row_capture",
    "reads",
    "split_attention_rows",
    "token_credit",
    "token_credits",
    "tokens_of_part",
    "transcribed_tokens",
    "visual_columns",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

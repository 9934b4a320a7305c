"""The model that is trained, and the one that it may not leave: the policy and its reference."""

from __future__ import annotations

from typing import Any

from accelerate.utils import set_seed
from trl.trainer.utils import add_fused_lm_head

from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.models.mrope import put_words_after_videos
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.sharding import sharded_reference, shards_models
from atrl_bench.training.trainer_inputs import TrainerInputs


def policy_of(inputs: TrainerInputs[RolloutRecipe], *, recomputes: bool) -> Any:
    """The base model, with adapters where the recipe trains those, and a head that tells log-probabilities by itself.

    The head goes through the vocabulary in chunks: the logits of a batch are never there as a whole.
    """
    set_seed(inputs.seed)  # of the adapters
    model, tokenizer = inputs.model, inputs.processor.tokenizer
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    add_fused_lm_head(model, temperature=_temperature(inputs), outputs=("log_probs", "entropy"))
    if inputs.peft_config is None:
        return model
    from peft import get_peft_model

    model = get_peft_model(model, inputs.peft_config)
    if recomputes:  # the base passes no gradient on, which torch's checkpoints take for nothing to compute
        model.enable_input_require_grads()
    return model


def reference_of(inputs: TrainerInputs[RolloutRecipe], accelerator: Any) -> Any:
    """The base model once more, frozen; None without a KL term, or where the policy is the base but for adapters."""
    recipe = inputs.recipe
    if not recipe.kl_coef or recipe.finetuning != "full":
        return None
    base, dtype = inputs.model.config._name_or_path, recipe.sizes(inputs.profile).dtype
    if shards_models():
        reference = sharded_reference(base, dtype, accelerator.device)
    else:
        from transformers import AutoModelForImageTextToText

        reference = AutoModelForImageTextToText.from_pretrained(base, dtype=inputs.model.dtype).requires_grad_(False)
    prefer_flash_attention(reference, dtype)
    put_words_after_videos(reference)
    add_fused_lm_head(reference, temperature=_temperature(inputs))
    return reference if shards_models() else accelerator.prepare_model(reference.eval(), evaluation_mode=True)


def _temperature(inputs: TrainerInputs[RolloutRecipe]) -> float:
    return inputs.recipe.sizes(inputs.profile).temperature

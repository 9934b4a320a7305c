"""The model that is trained, and the one that it may not leave: the policy and its reference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import set_seed
from trl.trainer.utils import add_fused_lm_head

from atrl_bench.errors import InvalidFileError
from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.models.mrope import put_words_after_videos
from atrl_bench.profiles import Profile
from atrl_bench.training.recipe import Part, Recipe, RolloutRecipe
from atrl_bench.training.sharding import go_back_through_all_layers, load_model

if TYPE_CHECKING:
    from atrl_bench.training.trainer import TrainerInputs


def load_policy(folder: Path | str, recipe: Recipe, profile: Profile, seed: int) -> Any:
    """The model in `folder`, to be trained by this recipe.

    Full training keeps float32 weights under bfloat16 compute: steps of 1e-6 would vanish in bfloat16.
    """
    computes_in = getattr(torch, recipe.sizes(profile).dtype)
    weights = computes_in if recipe.finetuning == "lora" else torch.float32
    return load_model(folder, weights, computes_in, partial(trainable, recipe=recipe, profile=profile, seed=seed))


def trainable(model: Any, recipe: Recipe, profile: Profile, seed: int) -> Any:
    """A model ready for training: with its head, and with adapters where the recipe trains those."""
    _with_head(model, recipe, profile, ("log_probs", "entropy"))
    freeze(model, recipe.freeze)
    go_back_through_all_layers(model)
    if recipe.finetuning == "full":
        if not any(weight.requires_grad for weight in model.parameters()):
            raise InvalidFileError("Nothing is left to train.", why="All is frozen.", next_step="freeze fewer parts")
        return model
    from peft import LoraConfig, get_peft_model

    set_seed(seed)
    # Never the head, whose adapter the fused head would not see.
    rank, named = recipe.lora_rank, recipe.lora_targets
    adapters = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=named if named == "all-linear" else [name.strip() for name in named.split(",")],
        exclude_modules=pattern(recipe.freeze),
    )
    try:
        return get_peft_model(model, adapters)
    except ValueError as error:
        why, then = str(error).partition("\n")[0], "give other lora_targets, or freeze fewer parts"
        raise InvalidFileError("PEFT cannot give this model adapters.", why=why, next_step=then) from None


def reference_of(inputs: TrainerInputs[Any]) -> Any:
    """The base model once more, frozen; None where the policy is the base but for adapters."""
    recipe, profile = inputs.recipe, inputs.profile
    if recipe.finetuning != "full":
        return None
    computes_in = getattr(torch, recipe.sizes(profile).dtype)
    prepare = partial(_with_head, recipe=recipe, profile=profile, outputs=("log_probs",))
    return load_model(inputs.model.config._name_or_path, computes_in, computes_in, prepare).requires_grad_(False).eval()


def _with_head(model: Any, recipe: Recipe, profile: Profile, outputs: tuple[str, ...]) -> Any:
    """The model with a head that tells log-probabilities by itself, in float32.

    The head goes through the vocabulary in chunks: the logits of a batch are never there as a whole.
    """
    sizes = recipe.sizes(profile)
    put_words_after_videos(model)
    prefer_flash_attention(model, sizes.dtype)
    temperature = sizes.temperature if isinstance(recipe, RolloutRecipe) else 1.0
    add_fused_lm_head(model, temperature=temperature, cast_lm_head_to_fp32=True, outputs=outputs)
    return model


# The parts of a vision-language model, by the names of its modules in transformers -----------------------------------

_TOWERS = "visual|vision_tower|vision_model|vision_encoder|image_tower"
_PROJECTORS = "merger|deepstack_merger_list|multi_modal_projector|connector"


def _below(names: str) -> str:
    return rf"(?:.*\.)?(?:{names})(?:\..*)?"


# The projector of some families is inside of the module of the tower.
PATTERNS: Mapping[Part, str] = {
    "tower": rf"(?!{_below(_PROJECTORS)}$){_below(_TOWERS)}",
    "projector": _below(_PROJECTORS),
    "language": rf"(?!{_below(f'{_TOWERS}|{_PROJECTORS}')}$).*",
}


def pattern(parts: Iterable[Part]) -> str | None:
    """What the names of all modules and parameters in these parts match, and no others."""
    return "|".join(f"(?:{PATTERNS[part]})" for part in parts) or None


def freeze(model: Any, parts: Iterable[Part]) -> None:
    names = dict(model.named_parameters())
    for part in parts:
        frozen = [parameter for name, parameter in names.items() if re.fullmatch(PATTERNS[part], name)]
        if not frozen:
            raise InvalidFileError(
                f"A {type(model).__name__} has no part that is known as its {part}.",
                why=f"Its parameters are called like {next(iter(names))}.",
                next_step="leave freeze out",
            )
        for parameter in frozen:
            parameter.requires_grad_(False)

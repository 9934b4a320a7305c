"""A recipe and a profile as a configuration of verl: what `train --engine verl` writes. verl itself is not needed.

It goes on from verl's own `ppo_trainer` and holds what differs from that, or what verl's defaults would decide
otherwise than this package's trainer. Pure arithmetic: nothing heavy is imported.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from atrl_bench.credit.config import PRESETS
from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import credit_rule, part_of_oracle
from atrl_bench.engines.devices import GPUS_PER_NODE
from atrl_bench.engines.verl.settings import KEY, MODULE, VerlCredit
from atrl_bench.errors import InvalidFileError
from atrl_bench.models.shape import model_shape
from atrl_bench.profiles import Profile
from atrl_bench.training.arguments import recomputes
from atrl_bench.training.recipe import Recipe, RolloutRecipe
from atrl_bench.training.rewards.accuracy import overlong_cache

REWARD = "pkg://atrl_bench.training.rewards.verl"
# verl's loss for each objective, and how it is averaged; a recipe without one of these cannot be trained by verl.
LOSSES = {
    "grpo": ("vanilla", "seq-mean-token-mean"),
    "dapo": ("vanilla", "token-mean"),
    "gspo": ("gspo", "seq-mean-token-mean"),
    "sapo": ("sapo", "seq-mean-token-mean"),
}
NEVER = 1.0e9  # a bound that no ratio reaches: verl clips a third time, which none of the methods does
SAMPLER_SHARE = 0.5  # of a GPU's memory, while it samples; verl takes it back for the update
SAMPLER_GB = 24.0  # of weights, that one GPU may hold of the model that samples


def require_verl_form(recipe: Recipe, profile: Profile) -> None:
    """Raise if verl has no form of this recipe, or of a setting of it."""
    for is_so, what, instead in _without_form(recipe, profile):
        if is_so:
            raise InvalidFileError(
                f"Recipe {recipe.name} cannot be trained by verl: {what}.",
                why="Its configuration would leave that out, and train something else.",
                next_step=instead,
            )


_HERE = "leave --engine verl out, so that TRL trains it"


def _without_form(recipe: Recipe, profile: Profile) -> list[tuple[bool, str, str]]:
    """Return what verl cannot do, whether this recipe has it, and what to do instead."""
    if not isinstance(recipe, RolloutRecipe):
        return [(True, f"method {recipe.method!r} samples no rollouts", _HERE)]
    rule = credit_rule(recipe.credit.rule)
    needs = sorted(needs_of(rule) - {"entropy", "logprob"})
    return [
        (recipe.objective not in LOSSES, f"verl has no loss for objective {recipe.objective!r}", _HERE),
        (recipe.start_from is not None, f"it starts from the checkpoint of {recipe.start_from}", _HERE),
        (recipe.finetuning != "full", "its adapters would not be merged into the checkpoint", "--set finetuning=full"),
        (recipe.entropy_fraction is not None, "entropy_fraction", _HERE),
        (recipe.vppo is not None, "vppo", _HERE),
        (recipe.temporal is not None, "temporal", _HERE),
        (recipe.critic is not None, "critic", _HERE),
        (recipe.step_rewards is not None, "step_rewards", _HERE),
        (recipe.rewards != "accuracy", f"rewards {recipe.rewards!r}", "--set rewards=accuracy"),
        (bool(recipe.format_reward), "format_reward", "--set format_reward=0"),
        (part_of_oracle(rule) is not None, f"credit {recipe.credit.rule} reads the truth of generated data", _HERE),
        (bool(needs), f"credit {recipe.credit.rule} reads {', '.join(needs)}, from passes over changed images", _HERE),
        (bool(recipe.sizes(profile).checks), "checks of a world", _HERE),
    ]


def verl_configuration(
    recipe: RolloutRecipe,
    profile: Profile,
    *,
    num_rollouts: int,
    seed: int,
    folder: Path,
    gpus: int,
    model: str | None = None,
) -> dict[str, Any]:
    """Return what verl is started with, as a file beside its own `ppo_trainer`; data and checkpoints are in `folder`.

    `model` is the folder of the base model; the profile's name for it if not given.
    """
    require_verl_form(recipe, profile)
    chosen = _credit(recipe, seed)
    nodes = max(1, math.ceil(gpus / GPUS_PER_NODE))
    return {
        "defaults": ["ppo_trainer", "_self_"],
        "hydra": {"searchpath": ["pkg://verl.trainer.config"], "run": {"dir": str(folder / "hydra")}},
        "data": _data(recipe, profile, folder, seed),
        "actor_rollout_ref": _actor_rollout_ref(recipe, profile, num_rollouts, seed, model or profile.model),
        "reward": _reward(recipe, profile),
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": True,
            "use_kl_in_reward": False,
            "filter_groups": {"enable": recipe.dynamic_sampling is not None, "metric": "acc"},
            "rollout_correction": {"bypass_mode": False},
        },
        "trainer": {
            "use_v1": True,
            "v1": {"trainer_mode": "sync"},
            "nnodes": nodes,
            "n_gpus_per_node": max(1, gpus // nodes),
            "total_epochs": max(1, math.ceil(recipe.sizes(profile).num_epochs)),
            "total_training_steps": num_rollouts,
            "save_freq": recipe.sizes(profile).save_every_rollouts,
            "max_actor_ckpt_to_keep": 2,
            "test_freq": -1,
            "val_before_train": False,
            "logger": ["console"],
            "project_name": f"atrl-bench-{profile.name}",
            "experiment_name": recipe.name,
            "default_local_dir": str(folder / "checkpoints"),
        },
        "ray_kwargs": {
            "ray_init": {"runtime_env": {"env_vars": {"VERL_USE_EXTERNAL_MODULES": MODULE} if chosen else {}}}
        },
        **({KEY: chosen.document()} if chosen else {}),
    }


def differences_from_trl(recipe: RolloutRecipe) -> list[str]:
    """Return in words where a training by verl is not quite that by TRL."""
    differ = ["The advantage is divided by the group's standard deviation + 1e-6; by TRL + 1e-4."]
    differ.append("vLLM samples, and its log-probabilities are not corrected for: the old policy is scored again.")
    if recipe.kl_coef:
        differ.append("The k3 estimate is bounded to 10 for a token.")
    if recipe.dynamic_sampling is not None:
        differ.append(
            "Dynamic sampling goes on until the batch is full; max_extra_generations and oversampling are not read."
        )
    if recipe.objective == "gspo":
        differ.append("GSPO has its token form, whose gradient is that of the plain one where credit is uniform.")
    return differ


def _credit(recipe: RolloutRecipe, seed: int) -> VerlCredit | None:
    """Return the choice that the engine and the trainer read; a recipe with uniform credit is verl's own."""
    if recipe.credit.rule == "uniform":
        return None
    credit = VerlCredit(recipe.credit.rule, {**PRESETS[recipe.credit.preset], **recipe.credit.settings}, seed)
    credit.credit_config()
    return credit


def _data(recipe: RolloutRecipe, profile: Profile, folder: Path, seed: int) -> dict[str, Any]:
    sizes, table = recipe.sizes(profile), str(folder / "train.parquet")
    return {
        "train_files": table,
        "val_files": table,  # verl wants some, and with test_freq -1 asks none
        "train_batch_size": sizes.prompts_per_rollout,
        "max_prompt_length": sizes.max_prompt_tokens,
        "max_response_length": sizes.max_response_tokens,
        "filter_overlong_prompts": True,
        "truncation": "error",
        "shuffle": False,  # the rows lie in the order of training/order.py
        "seed": seed,
        "prompt_key": "prompt",
        "image_key": "images",
    }


def _actor_rollout_ref(
    recipe: RolloutRecipe, profile: Profile, num_rollouts: int, seed: int, model: str
) -> dict[str, Any]:
    sizes = recipe.sizes(profile)
    updates = recipe.updates_per_rollout(sizes)
    bfloat16 = sizes.dtype == "bfloat16"
    gathered = {"param_dtype": "bf16" if bfloat16 else "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    sharding = {"model_dtype": "fp32", "ulysses_sequence_parallel_size": 1}
    at_once = sizes.completions_per_device
    return {
        "model": {
            "path": model,
            "use_remove_padding": True,
            "enable_gradient_checkpointing": recomputes(sizes),
            "use_fused_kernels": False,
        },
        "actor": {
            "strategy": "fsdp2",
            "ppo_mini_batch_size": sizes.prompts_per_rollout // updates,
            "ppo_micro_batch_size_per_gpu": at_once,
            "ppo_epochs": 1,
            "shuffle": False,
            "data_loader_seed": seed,
            "grad_clip": sizes.max_grad_norm,
            "entropy_coeff": recipe.entropy_coef,
            "use_kl_loss": bool(recipe.kl_coef),
            "kl_loss_coef": recipe.kl_coef,
            "kl_loss_type": "low_var_kl",
            **_loss(recipe),
            "optim": {
                "lr": sizes.learning_rate,
                "lr_warmup_steps": sizes.warmup_steps,
                "lr_scheduler_type": sizes.learning_rate_schedule,
                "betas": [0.9, sizes.adam_beta2],
                "weight_decay": sizes.weight_decay,
                "clip_grad": sizes.max_grad_norm,
                "total_training_steps": num_rollouts * updates,
            },
            "fsdp_config": {**sharding, "mixed_precision": dict(gathered), "seed": seed},
            # `hf_model` is what everything here can load.
            "checkpoint": {"save_contents": ["model", "optimizer", "extra", "hf_model"]},
        },
        "ref": {
            "log_prob_micro_batch_size_per_gpu": at_once,
            # A policy that only scores keeps its weights in main memory, whole in bfloat16.
            "fsdp_config": {**sharding, "mixed_precision": gathered, "model_dtype": gathered["param_dtype"]},
        },
        "rollout": {
            "name": "vllm",
            "n": sizes.group_size,
            "temperature": sizes.temperature,
            "top_p": sizes.top_p,
            "top_k": -1,
            "seed": seed,
            "dtype": sizes.dtype,
            "gpu_memory_utilization": SAMPLER_SHARE,
            "tensor_model_parallel_size": _sampler_gpus(profile),
            "max_num_batched_tokens": max(8192, sizes.max_prompt_tokens + sizes.max_response_tokens),
            "log_prob_micro_batch_size_per_gpu": at_once,
            "multi_turn": {"enable": False},
        },
    }


def _loss(recipe: RolloutRecipe) -> dict[str, Any]:
    """Return the settings of verl's loss."""
    mode, average = LOSSES[recipe.objective]
    settings: dict[str, Any] = {"policy_loss": {"loss_mode": mode}, "loss_agg_mode": average, "clip_ratio_c": NEVER}
    if recipe.objective == "sapo":
        temperatures = {"tau_pos": recipe.sapo_temperature_positive, "tau_neg": recipe.sapo_temperature_negative}
        return settings | temperatures
    return settings | {
        "clip_ratio": recipe.clip_low,
        "clip_ratio_low": recipe.clip_low,
        "clip_ratio_high": recipe.clip_high,
    }


def _reward(recipe: RolloutRecipe, profile: Profile) -> dict[str, Any]:
    reward = {"custom_reward_function": {"path": REWARD, "name": "compute_score"}}
    if recipe.overlong_cache_fraction is None:
        return {**reward, "reward_manager": {"name": "naive"}}
    longest = recipe.sizes(profile).max_response_tokens
    cache = overlong_cache(longest, recipe.overlong_cache_fraction)
    punishment = {"enable": True, "len": cache, "penalty_factor": 1.0, "log": True}
    return {
        **reward,
        "reward_manager": {"name": "dapo"},
        "reward_kwargs": {"max_resp_len": longest, "overlong_buffer_cfg": punishment},
    }


def _sampler_gpus(profile: Profile) -> int:
    """Return over how many GPUs of a node one copy of the model that samples is spread."""
    shape = model_shape(profile.model)
    gb = 0.0 if shape is None else 2 * shape.num_parameters / 1e9
    gpus = 1
    while gb / gpus > SAMPLER_GB and gpus < GPUS_PER_NODE:
        gpus *= 2
    return gpus

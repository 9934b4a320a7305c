"""Plain TRL beside one of our trainers, on the same responses."""

import tempfile
from typing import Any

import torch
from accelerate.utils import set_seed
from datasets import Dataset
from transformers import AutoModelForImageTextToText
from trl import GRPOConfig, GRPOTrainer

from atrl_bench.results.records import Gold
from atrl_bench.training.arguments import at_once, per_update
from atrl_bench.training.order import problem_order, rollout_seed
from atrl_bench.training.rollout import joined_visuals

# TRL's name for each objective's reduction and gate; GSPO is a mean over responses, like GRPO. REINFORCE is a sum over
# tokens like DAPO's.
LOSS_TYPES = {"grpo": "grpo", "dapo": "dapo", "gspo": "grpo", "sapo": "sapo", "reinforce": "dapo"}


def trl_arguments(recipe: Any, profile: Any, *, rollouts: int) -> dict[str, Any]:
    """Return the GRPOConfig fields of a run as ours: each that TRL's defaults would decide otherwise is written out."""
    sizes = recipe.sizes(profile)
    updates = recipe.updates_per_rollout(sizes)
    responses = at_once(recipe, profile, 1)
    accumulation = per_update(recipe, profile) // responses
    token_form = recipe.objective != "gspo" or recipe.weighs_tokens
    arguments: dict[str, Any] = {
        "num_generations": sizes.group_size,
        "max_completion_length": sizes.max_response_tokens,
        "temperature": sizes.temperature,
        "top_p": sizes.top_p,
        "top_k": 0,
        "steps_per_generation": accumulation * updates,
        "num_iterations": 1,
        "shuffle_dataset": False,  # the rows come in the order of training/order.py
        "loss_type": LOSS_TYPES[recipe.objective],
        "importance_sampling_level": "token" if token_form else "sequence",
        "beta": recipe.kl_coef,
        "use_bias_correction_kl": False,  # the paper's k3 is not multiplied by the ratio
        "scale_rewards": "group",
        "mask_truncated_completions": False,
        "top_entropy_quantile": recipe.entropy_fraction or 1.0,
        "entropy_coef": recipe.entropy_coef,
        "max_steps": rollouts * updates,
        "per_device_train_batch_size": responses,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": sizes.learning_rate,
        "lr_scheduler_type": {"constant": "constant_with_warmup", "cosine": "cosine"}[sizes.learning_rate_schedule],
        "warmup_steps": sizes.warmup_steps,
        "adam_beta2": sizes.adam_beta2,
        "weight_decay": sizes.weight_decay,
        "max_grad_norm": sizes.max_grad_norm,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        "seed": 0,  # what is black is drawn from it
        "disable_tqdm": True,
    }
    if recipe.objective == "sapo":
        arguments["sapo_temperature_pos"], arguments["sapo_temperature_neg"] = recipe.gate_temperatures
    elif recipe.objective != "reinforce":
        arguments["epsilon"], arguments["epsilon_high"] = recipe.clip_low, recipe.clip_high
    return arguments


class SeededTRL(GRPOTrainer):
    """Plain TRL that seeds each rollout as we do; nothing else differs from GRPOTrainer."""

    updates_per_rollout = 1

    def _generate_and_score_completions(self, inputs):
        set_seed(rollout_seed(0, self.state.global_step // self.updates_per_rollout))
        return super()._generate_and_score_completions(inputs)


def plain_trl(ours, trainer_class=SeededTRL, *, steps=None):
    """Return a trainer of this class on the same problems in the same order, with the same arguments and a fresh model.

    It is handed the completions that ours samples, so it has to train after ours. What saves ours work is off: a matrix
    product over fewer positions rounds differently. `steps`: both take plain steps of this size against the gradient,
    which do not enlarge how they round.
    """
    ours.passes.trim_padding = ours.keeps_logprobs = False
    arguments = trl_arguments(ours.recipe, ours.profile, rollouts=2)
    order = problem_order(len(ours.data.problems), 8, 0)
    model = AutoModelForImageTextToText.from_pretrained(ours.model.config._name_or_path, dtype=torch.float32)
    optimizers = (None, None)
    if steps is not None:
        ours.optimizer = torch.optim.SGD(ours.weights, steps)
        ours.sizes = ours.sizes.model_copy(update={"learning_rate": steps, "warmup_steps": 0})
        plain = torch.optim.SGD(model.parameters(), steps)
        optimizers = (plain, torch.optim.lr_scheduler.LambdaLR(plain, lambda _: 1.0))
    trainer = trainer_class(
        model=model,
        optimizers=optimizers,
        reward_funcs=[_of_texts(reward) for reward in ours.rewards.functions],
        args=GRPOConfig(output_dir=tempfile.mkdtemp(), use_cpu=True, **arguments),
        train_dataset=Dataset.from_list([_plain(ours.data.example(row, 0)) for row in order]),
        processing_class=ours.processor,
    )
    trainer.updates_per_rollout = ours.updates_per_rollout
    sampled, sample = [], ours.sample

    def record(*asked, **options):
        sampled.append(sample(*asked, **options))
        return sampled[-1]

    ours.sample = record
    trainer._generate_single_turn = lambda *_, **__: (sampled[0].token_ids, sampled.pop(0).logprobs)
    return trainer


def _plain(example):
    """Return what a table of TRL's can hold of an example; no reward reads the truth of its tokens."""
    return {name: value for name, value in example.items() if name not in ("token_truth", "graded_as")}


def _of_texts(reward):
    """Return a reward that is given the answers of a published set as texts."""

    def asked(answer, **columns):
        return reward(answer=answer, graded_as=[Gold(text) for text in answer], **columns)

    asked.__name__ = reward.__name__
    return asked


def plain_logprobs(trainer, rollout, temperature=None):
    """Return the log-probabilities of a rollout's responses, with their gradient, by a plain pass row by row."""
    num_tokens, ids_BS = rollout.mask_BT.shape[1], rollout.input_ids
    output = trainer.model(
        input_ids=ids_BS,
        attention_mask=rollout.attention_mask,
        logits_to_keep=num_tokens + 1,
        **rollout.token_fields,
        **joined_visuals(rollout.visuals_B, ids_BS.device),
    )
    logprob_BTV = (output.logits[:, :-1] / (temperature or trainer.sizes.temperature)).log_softmax(-1)
    return logprob_BTV.gather(-1, rollout.response_ids_BT[..., None])[..., 0] * rollout.mask_BT

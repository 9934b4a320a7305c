"""Plain TRL beside one of our trainers, on the same responses."""

from __future__ import annotations

import torch
from accelerate.utils import set_seed
from datasets import Dataset
from transformers import AutoModelForImageTextToText
from trl import GRPOConfig, GRPOTrainer

from atrl_bench.training.arguments import trl_arguments
from atrl_bench.training.multimodal import joined_visuals
from atrl_bench.training.order import problem_order, rollout_seed


class SeededTRL(GRPOTrainer):
    """Plain TRL that seeds each rollout as we do; nothing else differs from GRPOTrainer."""

    updates_per_rollout = 1

    def _generate_and_score_completions(self, inputs):
        set_seed(rollout_seed(0, self.state.global_step // self.updates_per_rollout))
        return super()._generate_and_score_completions(inputs)


def plain_trl(ours, trainer_class=SeededTRL):
    """Return a trainer of this class on the same problems in the same order, with the same arguments and a fresh model.

    It is handed the completions that ours samples, so it has to train after ours. What saves ours work is off: a matrix
    product over fewer positions rounds differently.
    """
    ours.passes.trim_padding = ours.keeps_logprobs = False
    arguments = trl_arguments(ours.recipe, ours.profile, rollouts=2)
    order = problem_order(len(ours.data.problems), 8, 0)
    trainer = trainer_class(
        model=AutoModelForImageTextToText.from_pretrained(ours.model.config._name_or_path, dtype=torch.float32),
        reward_funcs=list(ours.rewards.functions),
        args=GRPOConfig(output_dir=str(ours.args.output_dir), use_cpu=True, **arguments),
        train_dataset=Dataset.from_list([_plain(ours.data.example(row, 0)) for row in order]),
        processing_class=ours.processing_class,
    )
    trainer.updates_per_rollout = ours.updates_per_rollout
    sampled, sample = [], ours.sample

    def record(*asked, **options):
        sampled.append(sample(*asked, **options))
        return sampled[-1]

    ours.sample = record
    trainer._generate_single_turn = lambda *_, **__: sampled.pop(0)
    return trainer


def _plain(example):
    """Return what a table of TRL's can hold of an example; no reward reads the truth of its tokens."""
    return {name: value for name, value in example.items() if name != "truth"}


def plain_logprobs(trainer, rollout):
    """Return the log-probabilities of a rollout's responses, with their gradient, by a plain pass row by row."""
    num_tokens, ids_BS = rollout.mask_BT.shape[1], rollout.input_ids
    output = trainer.model(
        input_ids=ids_BS,
        attention_mask=rollout.attention_mask,
        logits_to_keep=num_tokens + 1,
        **rollout.token_fields,
        **joined_visuals(rollout.visuals_B, ids_BS.device),
    )
    logprob_BTV = (output.logits[:, :-1] / trainer.sizes.temperature).log_softmax(-1)
    return logprob_BTV.gather(-1, rollout.response_ids_BT[..., None])[..., 0] * rollout.mask_BT

"""Plain TRL beside one of our trainers, on the same responses."""

from __future__ import annotations

from functools import partial

import torch
from accelerate.utils import set_seed
from datasets import Dataset
from trainer_parts import kinds_of_token
from transformers import AutoModelForImageTextToText
from trl import GRPOTrainer

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
    ours.trim_padding = ours.keeps_logprobs = False
    order = problem_order(len(ours.data.problems), 8, 0)
    trainer = trainer_class(
        model=AutoModelForImageTextToText.from_pretrained(ours.model.config._name_or_path, dtype=torch.float32),
        reward_funcs=list(ours.reward_funcs),
        args=ours.args,
        train_dataset=Dataset.from_list([_plain(ours.data.example(row, 0)) for row in order]),
        processing_class=ours.processing_class,
    )
    trainer.updates_per_rollout = ours.updates_per_rollout
    sampled, sample = [], ours._generate_single_turn

    def record(*arguments, **options):
        sampled.append(sample(*arguments, **options))
        return sampled[-1]

    ours._generate_single_turn = record
    trainer._generate_single_turn = lambda *_, **__: sampled.pop(0)
    return trainer


def _plain(example):
    """Return what a table of TRL's can hold of an example; no reward reads the truth of its tokens."""
    return {name: value for name, value in example.items() if name != "truth"}


def plain_logprobs(trainer, batch):
    """Return the log-probabilities of a batch's responses, with their gradient, by TRL's pass row by row."""
    ids_BS = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    logprobs_BT, _, _ = GRPOTrainer._get_per_token_logps_and_entropies(
        trainer,
        partial(trainer.model, **joined_visuals(batch["visuals"], ids_BS.device)),
        ids_BS,
        torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
        batch["completion_ids"].shape[1],
        mm_token_type_ids=kinds_of_token(trainer, ids_BS),
    )
    return logprobs_BT

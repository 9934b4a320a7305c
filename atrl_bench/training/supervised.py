"""Supervised training: imitate the responses of a data set, as the start of reinforcement learning.

The loss is the mean negative log-likelihood of the tokens of the response and of the token that ends it, over the whole
batch: the prompt and the places of images and videos have none. (The released code of Video-R1 trains on the prompt
too and, for Qwen2.5-VL, on the places of its video.) Prompts are those of the rollouts, pixel for pixel.

Shapes: B responses, T response tokens.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from atrl_bench.errors import MissingDataError
from atrl_bench.models.chat_template import begun_thought
from atrl_bench.training.arguments import num_rollouts
from atrl_bench.training.data import TrainingData
from atrl_bench.training.losses import token_mean
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import SupervisedRecipe
from atrl_bench.training.rollout import Rollout, SampledResponse, given_group
from atrl_bench.training.trainer import Trainer, TrainerInputs

THINK_TAGS = re.compile(r"</?think>")


def response_of(process: str, answer: str, form: str) -> str:
    r"""The text to imitate: the reasoning and the answer in one of the forms of `SupervisedRecipe.response`.

    `boxed`: "3+4=7. The answer is \boxed{7}."; `tags`: "<think>3+4=7.</think>\n<answer>7</answer>"; `process`: the
    reasoning as it stands, for sets whose text already ends in the answer.
    """
    if form == "process":
        return process.strip()
    reasoning = THINK_TAGS.sub("", process).strip()
    if form == "tags":
        return f"<think>{reasoning}</think>\n<answer>{answer}</answer>"
    return f"{reasoning} The answer is \\boxed{{{answer}}}.".lstrip()


def with_responses(data: TrainingData, tokenizer: Any, form: str, max_response_tokens: int) -> TrainingData:
    """The data without rows that have no reasoning, or whose response is longer than this with its end."""
    with_process = [problem for problem in data.problems if problem.process]
    if not with_process:
        raise MissingDataError(
            f"{data.name} has no responses to imitate.",
            why="Its rows have no column `process`.",
            next_step="train on a set with reasoning, such as video_r1_cot",
        )
    texts = [response_of(problem.process, problem.answer, form) for problem in with_process]
    lengths = [len(ids) + 1 for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    kept = [problem for problem, length in zip(with_process, lengths, strict=True) if length <= max_response_tokens]
    num_read = len(with_process)
    left_out = {"no response": len(data.problems) - num_read, "response too long": num_read - len(kept)}
    if not kept:
        raise MissingDataError(
            f"Every response of {data.name} is longer than {max_response_tokens} tokens.",
            next_step="raise max_response_tokens",
        )
    return replace(data, problems=kept, left_out=data.left_out | {why: n for why, n in left_out.items() if n})


class Imitation(Trainer):
    """Imitates the responses of a TrainingData, a batch of them in each update."""

    def __init__(self, inputs: TrainerInputs[SupervisedRecipe], rows: Sequence[int]) -> None:
        """`rows`: the examples of all updates, in order."""
        self.rows, self.form = list(rows), inputs.recipe.response
        self.begun = begun_thought(inputs.processor).strip()
        self.per_update = inputs.recipe.sizes(inputs.profile).prompts_per_rollout
        super().__init__(inputs, num_updates=len(rows) // self.per_update)

    def updates(self, rollout: int) -> list[list[Rollout]]:
        """The one update on a batch: of each process its share, in micro-batches."""
        rows = self.rows[rollout * self.per_update :][: self.per_update]
        own = rows[self.processes.index * len(rows) // self.processes.count :][: len(rows) // self.processes.count]
        with self.clock.phase("batching"):
            batches = [self.batch(own[start : start + self.at_once]) for start in range(0, len(own), self.at_once)]
            num_tokens = self.processes.total(torch.stack([batch.mask_BT.sum() for batch in batches]).sum())
            for batch in batches:
                batch.counts_BT = token_mean(batch.mask_BT, num_tokens)
        return [batches]

    def batch(self, rows: Sequence[int]) -> Rollout:
        """These examples, each with its response as if it had been sampled."""
        tokenizer, responses = self.processor.tokenizer, []
        for row in rows:
            example = self.data.example(row, self.run_seed)
            # Without the tag that the prompt ends in already.
            response = response_of(example["process"], example["answer"], self.form).removeprefix(self.begun)
            group = given_group(self.processor, row, example, [response], self.model.dtype)
            responses.append(SampledResponse(group, 0))
        nothing_B = torch.zeros(len(rows), device=self.device)
        return Rollout.of(responses, nothing_B, 0, tokenizer.pad_token_id)

    def loss(self, batch: Rollout) -> Tensor:
        """-sum_t log pi(y_t) over the response tokens of the update, divided by how many they are."""
        scored = self.passes.train(self.model, batch)
        assert scored.entropy_BT is not None
        assert batch.counts_BT is not None
        self.note_mean("entropy", scored.entropy_BT, batch.mask_BT)
        return -(scored.logprob_BT * batch.counts_BT).sum()


@contextlib.contextmanager
def build(inputs: TrainerInputs[SupervisedRecipe]) -> Iterator[Imitation]:
    recipe, profile = inputs.recipe, inputs.profile
    sizes = recipe.sizes(profile)
    data = with_responses(inputs.data, inputs.processor.tokenizer, recipe.response, sizes.max_response_tokens)
    batches = num_rollouts(recipe, profile, len(data.problems))
    rows = problem_order(len(data.problems), batches * sizes.prompts_per_rollout, inputs.seed)
    yield Imitation(replace(inputs, data=data), rows)

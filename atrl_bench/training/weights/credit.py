"""The credit that a recipe chooses, as what a trainer multiplies its advantages by."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from atrl_bench.credit import CreditConfig
from atrl_bench.credit.rules import credit_rule, part_of_oracle
from atrl_bench.credit.trl import CreditWeights
from atrl_bench.errors import InvalidFileError
from atrl_bench.grading.thought import split_thought
from atrl_bench.resources import usable_cores
from atrl_bench.training.data import TrainingData
from atrl_bench.training.recipe import CreditChoice

_MOST_WORKERS = 8


def credit_weights(choice: CreditChoice, model: nn.Module, processor: Any, run_seed: int) -> CreditWeights:
    num_workers = num_credit_workers(next(model.parameters()).device)
    classes = {"thought": thought_tokens}
    return CreditWeights(choice.rule, credit_config(choice), model, processor, run_seed, num_workers, classes=classes)


def thought_tokens(token_texts: Sequence[str]) -> Tensor:
    """Which tokens of a response are thought, (T,): the grader reads the answer in the others."""
    thought, _ = split_thought("".join(token_texts))
    lengths_T = torch.tensor([len(text) for text in token_texts])
    return lengths_T.cumsum(0) - lengths_T < len(thought)


def require_truth(rule: str, data: TrainingData, *, next_step: str) -> None:
    """Raise if this rule is an oracle and the data does not say which tokens it puts credit on."""
    part = part_of_oracle(rule)
    if part is not None and not any(part in problem.truth.parts for problem in data.problems if problem.truth):
        raise InvalidFileError(
            f"{data.name} does not say which tokens of a response are {part}.",
            why=f"Credit {rule} is for generated data that carries the truth: code_words has all parts.",
            next_step=next_step,
        )


def num_credit_workers(device: torch.device) -> int:
    """How many processes compute credit beside a training on this device.

    On a GPU those cores that its training leaves idle, at most as many as can have something to do; on a CPU none: the
    model has all cores, and a response of the mini world costs less than its way to another process.
    """
    if device.type != "cuda":
        return 0
    return min(_MOST_WORKERS, max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1))


def credit_config(choice: CreditChoice) -> CreditConfig:
    """The credit hyperparameters that a recipe chose; an unknown rule or field is the recipe's error."""
    credit_rule(choice.rule)
    try:
        return CreditConfig.preset(choice.preset).replace(**choice.settings)
    except (TypeError, ValueError) as error:
        raise InvalidFileError(
            f"credit {choice.rule}: {error}", next_step="give settings that are fields of CreditConfig"
        ) from None

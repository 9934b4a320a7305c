"""The credit that a recipe chooses, as what a trainer multiplies its advantages by."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate, count
from typing import Any

import torch
from torch import Tensor, nn

from atrl_bench.credit import CreditConfig
from atrl_bench.credit.rules import credit_rule, part_of_oracle
from atrl_bench.credit.trl import CreditWeights, SampledRows
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.grading.thought import split_thought
from atrl_bench.profiles import TrainingSizes
from atrl_bench.resources import usable_cores
from atrl_bench.training.data import TrainingData
from atrl_bench.training.group_sampling import RowsOfDraws, head_numbers
from atrl_bench.training.recipe import CreditChoice
from atrl_bench.training.rollout import Group, SampledResponse

_MOST_WORKERS = 8
MOST_ROWS_GB = 1.0  # of a process's rollout, with what they are made of, kept until its rewards are known


def credit_weights(choice: CreditChoice, model: nn.Module, processor: Any, run_seed: int) -> CreditWeights:
    num_workers = num_credit_workers(next(model.parameters()).device)
    classes = {"thought": thought_tokens}
    return CreditWeights(choice.rule, credit_config(choice), model, processor, run_seed, num_workers, classes=classes)


def comes_of_sampling(credit: CreditWeights, sizes: TrainingSizes, num_processes: int) -> bool:
    """Whether the rows that sampling leaves are all that a credit reads, and can be kept until rewards are known."""
    of_credit = credit.config
    reads_rows_alone = not credit.inputs.needs and of_credit.reading == "predicting" and of_credit.rows == "exact"
    # A cache of sliding windows has forgotten the first columns.
    config: Any = credit.model.config
    layers = getattr(config.get_text_config(), "layer_types", None) or ()
    num_responses = sizes.prompts_per_rollout * sizes.group_size / num_processes
    num_tokens, num_positions = sizes.max_response_tokens, sizes.max_prompt_tokens + sizes.max_response_tokens
    of_queries, of_keys = (
        len(credit.capture.layer_indices) * of_layer * getattr(torch, sizes.dtype).itemsize
        for of_layer in head_numbers(config)
    )
    size = num_responses * (num_tokens * (of_queries + 4 * num_positions) + num_positions * of_keys)
    return reads_rows_alone and "sliding_attention" not in layers and size <= MOST_ROWS_GB * 1e9


def credit_sampled(credit: CreditWeights, groups: Sequence[Group], rows: RowsOfDraws, needed_P: Sequence[bool]) -> None:
    """Write down the credit of the responses in groups that need one, by their rows.

    Responses of a group with the same tokens were drawn by the same queries: what the first of them gets, all get.
    """
    distinct: dict[int, tuple[Group, list[int], Tensor]] = {}
    needed: list[tuple[Group, int]] = []  # every response, with the number of the first that is the same
    numbers = count()
    for group, is_needed in zip(groups, needed_P, strict=True):
        kinds = group.token_fields.get("mm_token_type_ids")
        kinds_1S = None if kinds is None else torch.tensor([kinds])
        visual_S = credit.visual_columns(torch.tensor([group.prompt_ids]), kinds_1S)[0]
        if not visual_S.any():
            credit.note_without_visual(len(group.response_ids))
        first_of: dict[tuple[int, ...], int] = {}
        for ids, number in zip(group.response_ids, numbers, strict=False):
            if is_needed:
                first = first_of.setdefault(tuple(ids), number)
                needed.append((group, first))
                if first == number:
                    # A response has no token of an image.
                    distinct[number] = group, ids, torch.nn.functional.pad(visual_S, (0, len(ids)))
    rows_of = rows.of({number: len(group.prompt_ids) for number, (group, _, _) in distinct.items()})
    times = Counter(number for _, number in needed)
    responses = [
        SampledRows(rows_of[number], visual_S, ids, group.example.get("token_truth"), times[number])
        for number, (group, ids, visual_S) in distinct.items()
    ]
    credit_of = dict(zip(distinct, credit.of_sampled(responses), strict=True))
    for group, number in needed:
        group.credits.append(credit_of[number])


def credit_of_sampling(responses: Sequence[SampledResponse]) -> Tensor:
    """credit_BT of these responses, one for those that needed none."""
    credits = [one.group.credits[one.repeat] if one.group.credits else torch.ones(1) for one in responses]
    longest = max(len(one.token_ids) for one in responses)
    padded_BT = torch.nn.utils.rnn.pad_sequence([*credits, torch.ones(longest)], batch_first=True, padding_value=1.0)
    return padded_BT[:-1]


def thought_tokens(token_texts: Sequence[str]) -> Tensor:
    """Which tokens of a response are thought, (T,): the grader reads the answer in the others."""
    thought, _ = split_thought("".join(token_texts))
    starts = accumulate(map(len, token_texts), initial=0)
    return torch.tensor([start < len(thought) for start, _ in zip(starts, token_texts, strict=False)], dtype=torch.bool)


def require_truth(rule: str, data: TrainingData, *, next_step: str) -> None:
    """Raise if this rule is an oracle and the data does not say which tokens it puts credit on."""
    part = part_of_oracle(rule)
    truths = [problem.token_truth for problem in data.problems if problem.token_truth]
    if part is not None and not any(part in truth.parts for truth in truths):
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
    known = {field.name for field in fields(CreditConfig)}
    if unknown := sorted(choice.settings.keys() - known):
        raise UnknownNameError("credit setting", unknown[0], known, next_step="give one of CreditConfig's fields")
    try:
        return CreditConfig.preset(choice.preset).replace(**choice.settings)
    except (TypeError, ValueError) as error:
        raise InvalidFileError(f"credit {choice.rule}: {error}", next_step="give another value") from None

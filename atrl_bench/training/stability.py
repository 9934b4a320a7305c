"""What a run does to its policy on the way: greedy answers to problems it does not train on, and drift.

A few times in a run the policy answers held-out training problems greedily. A run whose sampled accuracy is high may
break on its greedy path, and a run that is good at its end may have been lost in between. An answer that can be read
says that the form of a response is still there, right or wrong. Drift is the KL divergence
from the base per token of these answers that nobody rewarded: neither read from the image nor reasoned, where the data
says which tokens those are, else all of them. Nothing here draws a random number or moves a weight, so that a run's key
does not say whether it was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.func import functional_call

from atrl_bench.credit.anchors import tokens_of_parts
from atrl_bench.credit.truth import TokenTruth
from atrl_bench.training.group_sampling import completions_of, prompt_inputs, sample_groups
from atrl_bench.training.order import further_problems
from atrl_bench.training.rewards.combined import Rewards
from atrl_bench.training.rollout import PromptBatch, joined_visuals, messages_of
from atrl_bench.training.sharding import whole

if TYPE_CHECKING:
    from atrl_bench.training.loop import Loop

NUM_PROBLEMS = 24
MAX_PARAMETERS = 100_000_000  # a copy of a larger base is too much to keep beside the policy
UNREADABLE = "grading/unparseable"  # what the reward calls the share of responses without an answer
REWARDED = ("perception", "reasoning")  # parts of a response that decide whether it is right


class StabilityChecks:
    """Looks at the policy so many times in a run, the last time at its end; notes `check/greedy` and others."""

    def __init__(self, loop: Loop, num_checks: int, trained_rows: Sequence[int]) -> None:
        self._loop, self._num_checks = loop, num_checks
        num_problems = len(loop.data.problems)
        self._rows = list(islice(further_problems(num_problems, trained_rows, loop.run_seed, 0), NUM_PROBLEMS))
        is_small = sum(weight.numel() for weight in loop.model.parameters()) <= MAX_PARAMETERS
        # Before any step, and before a resumed run reads its weights: this is the base. Its weights alone, since a copy
        # of the model would still have the forward pass of the original, which its head has bound to it.
        named = loop.model.named_parameters() if is_small else ()
        self._base_weights = {name: weight.detach().clone() for name, weight in named}

    def __call__(self) -> None:
        loop = self._loop
        before, now = (step * self._num_checks // loop.num_updates for step in (loop.step - 1, loop.step))
        if before < now:
            with self._loop.clock.phase("checks"):
                self._check()

    def _check(self) -> None:
        loop = self._loop
        examples = [loop.data.example(row, loop.run_seed) for row in self._rows]
        messages = [messages_of(example) for example in examples]
        prompts = loop.read(messages, [f"check:{row}" for row in self._rows])
        with torch.no_grad(), whole(loop.model) as model, loop.passes.computing(loop.device):
            responses = sample_groups(
                model,
                prompts,
                loop.sizes.model_copy(update={"temperature": 0.0}),
                group_size=1,
                run_seed=loop.run_seed,
                pad_id=loop.processor.tokenizer.pad_token_id,
                eos_ids=loop.eos_ids,
            ).token_ids
            drifts = list(self._drifts(model, prompts, responses)) if self._base_weights else []
        completions = completions_of(loop.processor, responses)
        shares: dict[str, float] = {}
        accuracy = Rewards(loop.rewards.functions[:1])
        rewards_R1 = accuracy.of_responses(
            examples, messages, responses, completions, lambda name, share, **_: shares.update({name: share})
        )
        loop.note("check/greedy", fmean(max(0.0, reward) for reward in rewards_R1[:, 0].tolist()))
        if UNREADABLE in shares:
            loop.note("check/readable", 1.0 - shares[UNREADABLE])
        if drifts:
            loop.note("check/drift", fmean(drifts))

    def _drifts(self, model: Any, prompts: PromptBatch, responses: Sequence[list[int]]) -> Iterator[float]:
        """Yield the mean divergence over the unrewarded tokens of each response that has any.

        As many responses are in a pass as the run scores in one.
        """
        loop, size = self._loop, self._loop.at_once
        for start in range(0, len(responses), size):
            part = slice(start, start + size)
            inputs = _whole(prompts, responses, part, model.device)
            outputs = model(**inputs), functional_call(model, self._base_weights, kwargs=inputs)
            for number, (row, response) in enumerate(zip(self._rows[part], responses[part], strict=True)):
                is_free_T = unrewarded(loop.data.problems[row].token_truth, loop.token_texts(response))
                if is_free_T.any():
                    of_response = number, slice(-len(response) - 1, -1)
                    policy_TV, base_TV = (output.logits[of_response].float().log_softmax(-1) for output in outputs)
                    divergence_T = (policy_TV.exp() * (policy_TV - base_TV)).sum(-1)
                    yield float(divergence_T[is_free_T.to(divergence_T.device)].mean())


def unrewarded(truth: TokenTruth | None, token_texts: Sequence[str]) -> Tensor:
    """Which tokens of a response decide nothing: all of them where nothing is known."""
    parts = tokens_of_parts(truth, token_texts)
    is_free_T = torch.ones(len(token_texts), dtype=torch.bool)
    for part in REWARDED:
        if part in parts:
            is_free_T &= ~parts[part].bool()
    return is_free_T


def _whole(
    prompts: PromptBatch, responses: Sequence[list[int]], part: slice, device: torch.device
) -> dict[str, Tensor]:
    texts = responses[part]
    ids = [[*prompt, *text] for prompt, text in zip(prompts.token_ids_P[part], texts, strict=True)]
    fields = {
        name: [[*row, *[0] * len(text)] for row, text in zip(rows_P[part], texts, strict=True)]
        for name, rows_P in prompts.token_fields_P.items()
    }
    return prompt_inputs(ids, fields, 0, device) | joined_visuals(prompts.visuals_P[part], device)

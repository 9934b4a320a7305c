"""The two values that TRL's loss is handed, by hand."""

from __future__ import annotations

import torch

from atrl_bench.training.objectives import gspo_token_reference, items_for_selected_mean


def test_the_token_ratio_against_the_reference_is_the_sequence_ratio_with_a_gradient_per_token():
    logprobs = torch.tensor([[-1.0, -2.0, -9.0]], requires_grad=True)
    old, mask = torch.tensor([[-1.2, -2.4, -5.0]]), torch.tensor([[1, 1, 0]])
    ratio = torch.exp(logprobs - gspo_token_reference(logprobs, old, mask))
    # log ratios 0.2 and 0.4, the third is padding: their mean is 0.3.
    assert torch.allclose(ratio, torch.full((1, 3), 0.3).exp())
    ratio.sum().backward()
    # d ratio_t / d logprob_t = ratio_t, and no token sees another's.
    assert torch.allclose(logprobs.grad, torch.full((1, 3), 0.3).exp())


def test_the_item_count_turns_trls_normaliser_into_the_number_of_selected_tokens():
    # TRL: items / processes * accumulation / steps. With 2 processes, 8 steps and 4 accumulated micro-batches, 30
    # selected tokens: each process divides its sum by 30 / 2 and by the 4 micro-batches it averages over.
    items = items_for_selected_mean(torch.tensor(30), steps_per_generation=8)
    assert items / 2 * 4 / 8 == 30 / 2 * 4

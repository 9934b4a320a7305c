"""Trimming on a batch small enough to read: prompts padded on the left, responses on the right."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.training.passes import joined, parts_of


def batch_of(prompt_lengths, response_lengths, num_prompt, num_response):
    """Return ids that say where they are: 100 * row + position, 0 for padding."""
    positions = torch.arange(num_prompt + num_response)
    rows = zip(prompt_lengths, response_lengths, strict=True)
    mask = torch.stack([(positions >= num_prompt - p) & (positions < num_prompt + r) for p, r in rows]).long()
    ids = (100 * torch.arange(1, len(prompt_lengths) + 1)[:, None] + positions) * mask
    return {"input_ids": ids, "attention_mask": mask, "row": torch.arange(len(prompt_lengths))[:, None].expand_as(ids)}


def test_rows_of_similar_length_go_together_without_the_padding_they_share():
    batch = batch_of([2, 5, 3, 1], [1, 4, 2, 2], num_prompt=5, num_response=4)
    short, long = parts_of(batch, 4, 2, trim=True)
    assert short.rows.tolist() == short.batch["row"][:, 0].tolist() == [0, 3]
    # Prompts of 2 and 1, responses of 1 and 2: four positions are left of nine.
    assert short.batch["input_ids"].tolist() == [[103, 104, 105, 0], [0, 404, 405, 406]]
    assert (short.num_tokens, long.num_tokens) == (2, 4)
    assert long.batch["input_ids"].shape == (2, 9)


def test_without_trimming_the_batch_is_split_as_it_comes():
    batch = batch_of([2, 5, 3, 1], [1, 4, 2, 2], num_prompt=5, num_response=4)
    parts = parts_of(batch, 4, 2, trim=False)
    assert [part.rows.tolist() for part in parts] == [[0, 1], [2, 3]]
    assert torch.equal(torch.cat([part.batch["input_ids"] for part in parts]), batch["input_ids"])


@given(
    lengths=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=8),
    size=st.integers(1, 8),
    trim=st.booleans(),
)
def test_the_response_tokens_come_back_where_they_were(lengths, size, trim):
    batch = batch_of(*map(list, zip(*lengths, strict=True)), num_prompt=5, num_response=4)
    parts = parts_of(batch, 4, size, trim=trim)
    values = [part.batch["input_ids"][:, -part.num_tokens :] for part in parts]
    assert torch.equal(joined(values, parts, 4), batch["input_ids"][:, -4:])

"""From recorded rows to weights: what gets a credit, what gets one, and what is counted."""

import math
import os

import pytest
import torch

from atrl_bench.credit.truth import TokenTruth
from atrl_bench.training.recipe import CreditChoice
from atrl_bench.training.weights.credit import credit_weights, num_credit_workers, thought_tokens

NUM_PROMPT, NUM_RESPONSE = 4, 6


class Rows:
    """A finished recording of two responses: three image columns, the second token looks at them most."""

    def __init__(self, scale=1.0):
        rows_TS = torch.full((NUM_RESPONSE, NUM_PROMPT + NUM_RESPONSE), 0.05)
        rows_TS[1, :3] = 0.3
        self.rows_BTS = torch.stack([rows_TS, rows_TS * scale])

    def rows_on_device(self, reading):
        assert reading == "predicting"
        return self.rows_BTS


class Letters:
    def decode(self, token_ids):
        return "".join(chr(token) for token in token_ids)


@pytest.fixture
def batch():
    ids = torch.tensor([[ord(letter) for letter in "7 is+1"]] * 2)
    visual = torch.zeros(2, NUM_PROMPT + NUM_RESPONSE, dtype=torch.bool)
    visual[:, :3] = True
    return {
        "attention_mask_BS": torch.ones(2, NUM_PROMPT + NUM_RESPONSE, dtype=torch.long),
        "visual_BS": visual,
        "response_ids_BT": ids,
        "response_mask_BT": torch.ones(2, NUM_RESPONSE, dtype=torch.long),
        "needed_B": [True, True],
        "truths": [None, None],
    }


@pytest.fixture
def weigher(tiny_model):
    found = credit_weights(CreditChoice(rule="raw_attention"), tiny_model, Letters(), run_seed=0)
    yield found
    found.capture.remove()


def test_weights_have_mean_one_and_favour_the_token_that_looks_at_the_image(weigher, batch):
    weights_BT = weigher.begin(Rows(), **batch)()
    assert torch.allclose(weights_BT.mean(1), torch.ones(2))
    assert (weights_BT.argmax(1) == 1).all()


def test_a_training_on_a_cpu_computes_its_credit_itself_and_one_on_a_gpu_beside_it(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert num_credit_workers(torch.device("cpu")) == 0
    # Of eight cores four for each of two GPUs, one of them for the training itself.
    assert num_credit_workers(torch.device("cuda")) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2), raising=False)
    assert num_credit_workers(torch.device("cuda")) == 1


def test_a_response_without_advantage_is_skipped(weigher, batch):
    weights_BT = weigher.begin(Rows(), **{**batch, "needed_B": [True, False]})()
    assert (weights_BT[1] == 1).all()
    assert not (weights_BT[0] == 1).all()


def test_padding_after_a_response_gets_one_and_its_tokens_still_have_mean_one(weigher, batch):
    mask = batch["response_mask_BT"].clone()
    mask[0, 4:] = 0
    columns = torch.cat([torch.ones(2, NUM_PROMPT, dtype=torch.long), mask], 1)
    weights_BT = weigher.begin(Rows(), **{**batch, "response_mask_BT": mask, "attention_mask_BS": columns})()
    assert (weights_BT[0, 4:] == 1).all()
    assert weights_BT[0, :4].mean().item() == pytest.approx(1.0)


def test_empty_visual_tokens_and_rows_that_overflowed_are_counted_and_get_one(weigher, batch):
    visual = batch["visual_BS"].clone()
    visual[0] = False
    weights_BT = weigher.begin(Rows(scale=float("nan")), **{**batch, "visual_BS": visual})()
    assert (weights_BT == 1).all()
    diagnostics = weigher.pop_diagnostics()
    assert diagnostics["credit/num_empty_visual"][0] == 1
    assert diagnostics["credit/num_non_finite_rows"][0] == 1


def test_the_anchor_auc_is_over_responses_that_transcribe_their_image(weigher, batch):
    # The image shows a 7; the response begins with it, and the credit is on the token after it.
    weigher.begin(Rows(), **{**batch, "truths": [TokenTruth("7"), TokenTruth("9")]})()
    diagnostics = weigher.pop_diagnostics()
    assert diagnostics["credit/num_with_anchors"][0] == 1
    # One of five other tokens is above the anchor, four have the same weight: (0 + 4 / 2) / 5.
    assert diagnostics["credit/anchor_auc"][0] == pytest.approx(0.4)
    assert weigher.pop_diagnostics()["credit/num_with_anchors"][0] == 0
    assert not math.isnan(diagnostics["credit/anchor_auc_connectivity"][0])


def test_the_credit_of_a_response_follows_the_seed_of_the_run_and_not_its_place_in_the_batch(tiny_model, batch):
    of_runs = []
    for run_seed in range(4):
        weigher = credit_weights(CreditChoice(rule="random"), tiny_model, Letters(), run_seed)
        weights_BT = weigher.begin(Rows(), **batch)()
        weigher.capture.remove()
        assert torch.equal(weights_BT[0], weights_BT[1])
        of_runs.append(weights_BT[0])
    assert not all(torch.equal(weights_T, of_runs[0]) for weights_T in of_runs)


def test_the_share_of_the_credit_on_a_thought_is_told_beside_the_share_of_its_tokens(weigher, batch):
    texts = ["<th", "ink>", "a", "</thi", "nk>", "7"]
    assert thought_tokens(texts).tolist() == [True] * 5 + [False]
    assert thought_tokens(["7", " is"]).tolist() == [False, False]
    assert thought_tokens([]).tolist() == []
    weigher._text = dict(enumerate(texts)).__getitem__
    batch["response_ids_BT"] = torch.arange(NUM_RESPONSE).repeat(2, 1)
    weights_BT = weigher.begin(Rows(), **batch)()
    told = weigher.pop_diagnostics()
    assert told["credit/thought_share"][0] == pytest.approx(float(weights_BT[:, :5].sum() / weights_BT.sum()))
    assert told["credit/thought_tokens"][0] == pytest.approx(5 / 6)

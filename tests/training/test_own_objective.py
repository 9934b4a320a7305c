"""Terms of the loss and advantages that are not ours: the shipped example's against formulas, and mistakes in them."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from plain_trl import plain_logprobs
from trainer_parts import gradients_of, largest_difference, loss_of, noted, rollout_of

from atrl_bench.errors import AtrlBenchError, InvalidFileError, UnknownNameError
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rollout import SampledResponse, of_groups
from atrl_bench.training.run_spec import run_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_objective" / "perception"
PAPO = f"{EXAMPLE / 'papo.py'}:PerceptionKL"
GTPO = f"{EXAMPLE / 'gtpo.py'}:shaped_by_entropy"
PAPO_SETTINGS = {"weight": 0.02, "black_probability": 0.6, "entropy": 0.05}

CODE = """
def cost(batch, scored, of=1.0):
    return of * scored.logprob_BT.exp()

def short(batch, scored):
    return scored.logprob_BT.sum(1)

def numbers(batch, scored):
    return scored.logprob_BT.detach().cpu().numpy()

def broken(batch, scored):
    return batch.nothing

def ones(rollout, responses, tools):
    return rollout.advantages.new_ones(len(rollout))

def array(rollout, responses, tools):
    return rollout.advantages.new_ones(len(rollout)).double().cpu().numpy()

def few(rollout, responses, tools):
    return rollout.advantages[:1]
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def gtpo(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    from perception import gtpo

    yield gtpo
    sys.modules.pop("perception.gtpo")
    sys.modules.pop("perception")


def test_papos_term_changes_the_gradient_by_what_its_formula_says(make_trainer):
    trainer = make_trainer("grpo", losses={PAPO: PAPO_SETTINGS})
    batch = rollout_of(trainer)
    with_term = gradients_of(trainer, batch)
    trainer.terms = SimpleNamespace(of=lambda *_: [])
    without = gradients_of(trainer, batch)

    # By hand, from the logits of the model itself: d = log pi(hidden) - log pi of each token, then for GRPO's mean of
    # means d(loss)/d(log pi) = -0.02 (1 - exp(d)) - 0.05, where d is within its limits.
    trainer.model.zero_grad()
    logprob_BT = plain_logprobs(trainer, batch)
    d_BT = (batch.extra["hidden_BT"] - logprob_BT).detach()
    assert d_BT[batch.mask_BT.bool()].abs().max() > 1e-3, "the image is seen"
    by_token_BT = (-0.02 * (1 - d_BT.exp()) - 0.05) * batch.mask_BT
    share_BT = by_token_BT / batch.mask_BT.sum(1, keepdim=True) / len(batch)
    (logprob_BT * share_BT).sum().backward()
    expected = {name: value.grad for name, value in trainer.model.named_parameters() if value.grad is not None}
    largest = max(value.abs().max().item() for value in expected.values())
    found = {name: with_term[name] - without[name] for name in expected}
    assert largest_difference(found, expected) < 1e-4 * largest


def test_the_hidden_image_is_the_same_one_whatever_the_micro_batch(make_trainer):
    trainer = make_trainer("grpo", losses={PAPO: PAPO_SETTINGS})
    batch = rollout_of(trainer)
    again = rollout_of(trainer)
    assert torch.equal(batch.extra["hidden_BT"], again.extra["hidden_BT"])
    assert torch.equal(batch.take([3, 1]).extra["hidden_BT"], batch.extra["hidden_BT"][[3, 1]])


def test_gtpos_token_rewards_by_hand(gtpo):
    # Two right responses of two and one tokens, a wrong one of two; entropies 1, 3 | 3 | 2, 4.
    entropy_BGT = torch.tensor([[[1.0, 3.0], [3.0, 0.0], [2.0, 4.0]]]).clamp(min=1e-6)
    mask_BGT = torch.tensor([[[True, True], [True, False], [True, True]]])
    right_BG1 = torch.tensor([[[True], [True], [False]]])
    reward_BGT = gtpo.token_rewards(entropy_BGT, mask_BGT, right_BG1, 1.0, 0.1)
    # First tokens: 1 + 0.1 * 2 * 1/4, 1 + 0.1 * 2 * 3/4; alone at its place: 1 + 0.1; the wrong one: -1 - 0.1.
    assert torch.allclose(reward_BGT, torch.tensor([[[1.05, 1.1], [1.15, 0.0], [-1.1, -1.1]]]))


def test_a_group_is_whole_in_advantages_of_ones_own(make_trainer, gtpo):
    trainer = make_trainer("dapo", advantages={GTPO: {"entropy": 0.5}}, overlong_cache_fraction=None)
    batch = rollout_of(trainer)
    mask_BT = batch.mask_BT.bool()
    assert batch.advantages.shape == mask_BT.shape
    for start in range(0, len(batch), 4):
        of_group = batch.advantages[start : start + 4][mask_BT[start : start + 4]]
        assert of_group.mean().item() == pytest.approx(0, abs=1e-5)
        assert of_group.std(correction=0).item() == pytest.approx(1, abs=1e-2)
    assert loss_of(trainer, batch).isfinite()


def test_values_are_found_by_group_from_wherever_a_response_is(monkeypatch):
    group = SimpleNamespace(response_ids=[[5], [6, 7], [8]])
    responses = [SampledResponse(group, number) for number in (5, 3, 4)]  # the second group of three, in another order
    value_BT = torch.tensor([[50.0, 9.0], [30.0, 9.0], [40.0, 41.0]])
    expected = torch.tensor([[30.0, 0.0], [40.0, 41.0], [50.0, 0.0]])
    assert torch.equal(of_groups(value_BT, responses), expected.expand(3, 3, 2))
    # The first and the last are another process's, whose longest response is longer.
    others = [(3, [30.0]), (5, [50.0, 51.0, 52.0])]
    together = SimpleNamespace(gather=lambda own: [*own, *others])
    monkeypatch.setattr("atrl_bench.training.rollout.launched", lambda: together)
    found = of_groups(value_BT[2:], responses[2:])
    assert found.tolist() == [[[30.0, 0.0, 0.0], [40.0, 41.0, 0.0], [50.0, 51.0, 52.0]]]


def test_a_function_is_a_term_and_its_mean_a_metric(make_trainer, code):
    trainer = make_trainer("grpo", losses={f"{code}:cost": {"of": 2.0}})
    batch = rollout_of(trainer)
    found = loss_of(trainer, batch)
    probability_BT = trainer.score(batch).logprob_BT.exp()
    mean = (probability_BT * batch.mask_BT).sum() / batch.mask_BT.sum()
    assert noted(trainer, "loss/cost")[-1] == pytest.approx(2 * mean.item(), rel=1e-4)
    trainer.terms = SimpleNamespace(of=lambda *_: [])
    by_response = (2 * probability_BT * batch.mask_BT).sum(1) / batch.mask_BT.sum(1)
    assert (found - loss_of(trainer, batch)).item() == pytest.approx(by_response.mean().item(), rel=1e-3)


@pytest.mark.parametrize("name", ["ones", "array"])
def test_with_a_credit_advantages_of_ones_own_are_multiplied_by_it(make_trainer, code, name):
    trainer = make_trainer("grpo", advantages=f"{code}:{name}", credit="atrl")
    batch = rollout_of(trainer)
    assert batch.advantages.dtype == torch.float32
    mean_B = (batch.advantages * batch.mask_BT).sum(1) / batch.mask_BT.sum(1)
    assert torch.allclose(mean_B, torch.ones(len(batch)), atol=1e-4), "a credit has mean one"
    assert not torch.equal(batch.advantages, torch.ones_like(batch.advantages))


@pytest.mark.parametrize(
    ("field", "name", "why"),
    [
        ("losses", "short", r"It returned \(16,\)"),
        ("losses", "broken", r"has no attribute 'nothing' \(mine\.py, line 12\)"),
        ("losses", "numbers", "It returned a ndarray, which is no tensor"),
        ("advantages", "few", r"It returned \(1,\)"),
    ],
)
def test_a_mistake_in_it_is_told_with_its_name(make_trainer, code, field, name, why):
    with pytest.raises(AtrlBenchError, match=f"{code}:{name} failed") as error:
        loss_of(trainer := make_trainer("grpo", **{field: f"{code}:{name}"}), rollout_of(trainer))
    assert re.search(why, error.value.why)


def test_what_is_not_there_is_said_when_the_recipe_is_read(code):
    with pytest.raises(InvalidFileError, match="There is no loss term nowhere"):
        load_recipe("grpo", losses="nowhere.py:cost")
    with pytest.raises(UnknownNameError, match="loss term 'papo'"):
        load_recipe("grpo", losses="papo")
    with pytest.raises(InvalidFileError, match="advantages come from one place"):
        load_recipe("actor_critic", advantages=f"{code}:ones")


@pytest.mark.parametrize(
    ("field", "of_code"),
    [("rewards", "reward_code"), ("losses", "losses_code"), ("advantages", "advantages_code")],
)
def test_the_key_follows_code_and_no_folder(tmp_path, code, field, of_code):
    def spec(path):
        recipe = load_recipe("grpo", **{field: f"{path}:ones"})
        return run_spec(recipe, load_profile("mini"), "base", "data", 0)

    before = spec(code)
    assert "mine.py:ones" in before["recipe"][field]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text(CODE)
    assert spec(tmp_path / "other" / "mine.py") == before
    code.write_text(CODE + "\n")
    assert {name for name, value in spec(code).items() if value != before[name]} == {of_code}


def test_the_key_has_settings_and_of_a_plain_recipe_nothing(code):
    def spec(**fields):
        return run_spec(load_recipe("grpo", **fields), load_profile("mini"), "base", "data", 0)

    assert spec(losses={f"{code}:cost": {"of": 2.0}})["recipe"]["losses"] == {"mine.py:cost": {"of": 2.0}}
    assert {"reward_code", "losses_code", "advantages_code"}.isdisjoint(spec())
    assert {"losses", "advantages"}.isdisjoint(spec()["recipe"]), "stored runs keep their keys"

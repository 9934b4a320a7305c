"""verl's FSDP2 engine gives the credit and the gradient that TRL's trainer gives, on the same responses."""

import pytest
import torch
from verl_step import batch_of, gradient_of, scored

PADDING = pytest.mark.parametrize("use_remove_padding", [False, True], ids=["padded", "packed"])


def joined(parts):
    return torch.cat([part.float() for part in parts])


@PADDING
def test_the_credit_and_the_log_probabilities_are_those_of_trl(on_trl, make_engine, use_remove_padding):
    step = on_trl["atrl"]
    batch = batch_of(step, use_remove_padding=use_remove_padding)
    outputs = scored(make_engine(use_remove_padding=use_remove_padding), batch, "atrl")
    torch.testing.assert_close(joined(outputs["log_probs"]), joined(step.logprobs), atol=1e-5, rtol=0)
    torch.testing.assert_close(joined(outputs["token_credit"]), joined(step.credit), atol=1e-5, rtol=0)
    assert joined(step.credit).std() > 0.1, "a credit of one everywhere would be equal too"


@PADDING
def test_a_step_has_the_gradient_of_trls_step(on_trl, make_engine, use_remove_padding):
    step = on_trl["atrl"]
    engine = make_engine(use_remove_padding=use_remove_padding)
    batch = batch_of(step, use_remove_padding=use_remove_padding)
    outputs = scored(engine, batch, "atrl")
    advantages = [own * credit for own, credit in zip(step.advantages_B, outputs["token_credit"], strict=True)]
    gradient = gradient_of(engine, batch, advantages, outputs["log_probs"])
    assert gradient.keys() == step.gradient.keys()
    for name, expected in step.gradient.items():
        torch.testing.assert_close(
            gradient[name], expected, atol=1e-5, rtol=1e-3, msg=lambda text, n=name: f"{n}: {text}"
        )


@PADDING
def test_uniform_credit_is_plain_verl_bit_for_bit(on_trl, make_engine, use_remove_padding):
    step = on_trl["uniform"]
    engine = make_engine(use_remove_padding=use_remove_padding)
    batch = batch_of(step, use_remove_padding=use_remove_padding)
    plain, credited = scored(engine, batch, None), scored(engine, batch, "uniform")
    assert "token_credit" not in plain
    assert all(bool((credit == 1).all()) for credit in credited["token_credit"])
    for name in ("log_probs", "entropy"):
        assert torch.equal(joined(plain[name]), joined(credited[name])), "recording must not change the pass"
    advantages = [own.expand(len(credit)) for own, credit in zip(step.advantages_B, plain["log_probs"], strict=True)]
    products = [own * credit for own, credit in zip(advantages, credited["token_credit"], strict=True)]
    without = gradient_of(engine, batch, advantages, plain["log_probs"])
    with_credit = gradient_of(engine, batch, products, plain["log_probs"])
    assert all(torch.equal(with_credit[name], value) for name, value in without.items())

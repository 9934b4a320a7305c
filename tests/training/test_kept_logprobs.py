"""The local sampler's log-probabilities in place of a pass over what it has sampled."""

import pytest
import torch
from plain_trl import plain_logprobs
from tiny_vlms import make_tiny_vlm
from trainer_parts import change_what_is_sampled, noted, rollout_of

from atrl_bench.credit import install_row_capture
from atrl_bench.models.decoding import Draw, sample
from atrl_bench.models.prompt import Sampling
from atrl_bench.training.group_sampling import RowsOfDraws
from atrl_bench.training.loop import CHECK_EVERY
from atrl_bench.training.rollout import KINDS_OF_TOKEN, padded
from atrl_bench.training.sampler_check import agree
from atrl_bench.training.weights.credit import comes_of_sampling


def count_passes(trainer):
    """Return a list that gets the name of each pass of the policy or the reference."""
    names, original = [], trainer.clock.phase

    def phase(name):
        names.append(name)
        return original(name)

    trainer.clock.phase = phase
    return names


@pytest.mark.parametrize(
    ("check_every", "of_rollouts"),
    # The reference's, and the policy's to compare: in the first rollout, or in each.
    [(CHECK_EVERY, [2, 1]), (1, [2, 2])],
)
def test_they_are_those_of_a_plain_pass_and_save_one_where_they_are_not_compared(
    make_trainer, monkeypatch, check_every, of_rollouts
):
    monkeypatch.setattr("atrl_bench.training.loop.CHECK_EVERY", check_every)
    trainer = make_trainer("grpo")
    passes, counts = count_passes(trainer), []
    for _ in range(2):
        passes.clear()
        batch = rollout_of(trainer, range(4))
        counts.append(passes.count("scoring"))
        mask = batch.mask_BT.bool()
        expected = plain_logprobs(trainer, batch)[mask]
        assert expected.abs().min() > 0.01, "this test would see nothing"
        assert torch.allclose(batch.old_BT[mask], expected, atol=1e-5)
        assert batch.sampled_BT is None
    assert counts == of_rollouts
    assert trainer.pass_record["old_logprobs"] == "of the sampler"


def test_a_sampler_of_another_policy_is_found_out_and_its_log_probabilities_are_not_used(make_trainer):
    trainer = make_trainer("grpo")
    change_what_is_sampled(
        trainer, lambda ids, logprobs: (ids, logprobs and [[value - 0.01 for value in of] for of in logprobs])
    )
    for _ in range(2):
        batch = rollout_of(trainer, range(4))
        mask = batch.mask_BT.bool()
        assert torch.allclose(batch.old_BT[mask], plain_logprobs(trainer, batch)[mask], atol=1e-5)
    assert trainer.pass_record["old_logprobs"] == "of a pass"


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("grpo", {"credit": {"rule": "atrl", "preset": "literal"}}),  # reads a token's own row
        ("grpo", {"credit": "high_entropy"}),
        ("grpo", {"schedule": "strict"}),
        ("vppo", {}),
        ("actor_critic", {}),
    ],
)
def test_a_method_that_needs_the_pass_makes_it(make_trainer, recipe, options):
    assert not make_trainer(recipe, **options).keeps_logprobs


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "qwen3_5", "llava"])
def test_sampling_leaves_the_rows_of_a_scoring_pass(family):
    """Left-padded prompts of several lengths, answers that part, share a row and end at different steps."""
    tiny = make_tiny_vlm(family)
    of_tokens = ("input_ids", "attention_mask", *KINDS_OF_TOKEN)
    prompts = {name: v[:, : -tiny.num_response_tokens] if name in of_tokens else v for name, v in tiny.inputs.items()}
    capture, draws = install_row_capture(tiny.model), [Draw(p, f"{p}", repeat) for p in range(3) for repeat in range(4)]
    with capture.record_next() as recording:
        kept = RowsOfDraws(recording, 10)
        drawn = sample(tiny.model, prompts, draws, range(5, 15), Sampling(10, run_seed=3), before_draw=kept)
    lengths = [len(one.token_ids) + (one.end is not None) for one in drawn]
    assert min(lengths) < max(lengths)
    num_prompt_tokens = prompts["attention_mask"].sum(1)
    wanted = {number: int(num_prompt_tokens[draw.prompt]) for number, draw in enumerate(draws) if number != 5}
    rows = kept.of(wanted)
    assert rows.keys() == wanted.keys()
    for number, rows_TS in rows.items():
        draw, one = draws[number], drawn[number]
        # The batch as it is, with this answer behind each prompt.
        ids = torch.tensor([*one.token_ids, *([] if one.end is None else [one.end])]).expand(3, -1)
        more = {name: torch.cat([v, torch.zeros_like(ids)], 1) for name, v in prompts.items() if name in of_tokens}
        more["input_ids"] = torch.cat([prompts["input_ids"], ids], 1)
        more["attention_mask"] = torch.cat([prompts["attention_mask"], torch.ones_like(ids)], 1)
        with torch.no_grad(), capture.record(ids.shape[1]) as whole:
            tiny.model(**prompts | more)
        valid_S = more["attention_mask"][draw.prompt].bool()
        expected_TS = whole.rows("predicting")[draw.prompt][:, valid_S]
        assert expected_TS.shape == rows_TS.shape
        torch.testing.assert_close(rows_TS, expected_TS, atol=1e-5, rtol=0)


@pytest.mark.parametrize("sampler_gb", [15.0, 1e-9])  # all prompts at once, one by one
def test_credit_by_the_rows_of_sampling_is_that_of_a_pass_which_it_saves(make_trainer, monkeypatch, sampler_gb):
    monkeypatch.setattr("atrl_bench.training.group_sampling.SAMPLER_GB", sampler_gb)
    sampled, passed = (make_trainer("grpo", credit="atrl") for _ in range(2))
    passed.keeps_logprobs = False
    assert sampled.keeps_rows
    for _ in range(2):
        passes = count_passes(sampled)
        found, expected = (rollout_of(trainer, range(4)) for trainer in (sampled, passed))
        assert torch.equal(found.response_ids_BT, expected.response_ids_BT)
        assert found.advantages.std(1).max() > 0.01, "no credit"
        mask_BT = found.mask_BT
        assert torch.allclose(found.advantages * mask_BT, expected.advantages * mask_BT, atol=1e-4)
    assert passes.count("scoring") == 1, "the reference's"
    for name in ("credit/entropy", "credit/top15_share", "credit/num_with_anchors", "credit/num_empty_visual"):
        assert noted(sampled, name) == pytest.approx(noted(passed, name), abs=1e-4)


def test_responses_with_the_same_tokens_have_one_credit_which_counts_for_each_of_them(make_trainer):
    sampled, passed = (make_trainer("grpo", credit="atrl") for _ in range(2))
    passed.keeps_logprobs, begin, num_computed = False, sampled.credit.workers.begin, []

    def counted(prepare):
        num_computed.append(len(prepare()))
        return begin(prepare)

    sampled.credit.workers.begin = counted
    for trainer in (sampled, passed):
        trainer.sizes = trainer.sizes.model_copy(update={"temperature": 0.05})
        trainer.estimator.every_group = True  # the same responses have the same rewards, and no advantage
        trainer.sampler_agrees = True  # at this temperature rounding is twenty times as large
        ids_BT = rollout_of(trainer, range(4)).response_ids_BT
    assert num_computed == [len({(row // 4, *ids) for row, ids in enumerate(ids_BT.tolist())})]
    assert num_computed[0] < 16
    for name in ("credit/entropy", "credit/cut", "credit/connectivity_correlation"):
        [(mean, count)], [(expected, _)] = sampled.notes[name], passed.notes[name]
        assert (mean, count) == (pytest.approx(expected, abs=1e-4), 16)


def test_credit_is_of_a_pass_where_the_sampler_is_another_policy(make_trainer):
    trainer, passed = (make_trainer("grpo", credit="atrl") for _ in range(2))
    passed.keeps_logprobs = False
    change_what_is_sampled(
        trainer, lambda ids, logprobs: (ids, logprobs and [[value - 0.01 for value in of] for of in logprobs])
    )
    for _ in range(2):
        assert torch.equal(rollout_of(trainer, range(4)).advantages, rollout_of(passed, range(4)).advantages)
    assert not trainer.keeps_rows


def test_rows_are_kept_where_there_is_room_for_them(make_trainer):
    trainer = make_trainer("grpo", credit="atrl")
    # 4 layers, 4 heads and 2 of keys of 32 numbers in 4 bytes. A token has 2,048 bytes of queries and a row of 4 x
    # (256 + 10) bytes, a position 1,024 of keys: 16 x (10 x 3,112 + 266 x 1,024) = 4,856,064 for 4 problems.
    sizes = trainer.sizes.model_copy(update={"max_prompt_tokens": 256})
    assert comes_of_sampling(trainer.credit, sizes, 1)
    sizes = sizes.model_copy(update={"prompts_per_rollout": 4 * 205})
    assert comes_of_sampling(trainer.credit, sizes, 1)
    sizes = sizes.model_copy(update={"prompts_per_rollout": 4 * 206})
    assert not comes_of_sampling(trainer.credit, sizes, 1)
    assert comes_of_sampling(trainer.credit, sizes, 2)


def test_padding_is_zero_and_a_nan_never_agrees():
    sampled_BT = padded([[-1.0, -2.0], [-3.0]], 0.0, "right")
    assert sampled_BT.tolist() == [[-1.0, -2.0], [-3.0, 0.0]]
    mask_BT = sampled_BT != 0
    assert agree(sampled_BT, sampled_BT + 5e-5, mask_BT)
    assert not agree(sampled_BT, sampled_BT + 2e-4, mask_BT)
    assert not agree(sampled_BT * float("nan"), sampled_BT, mask_BT)

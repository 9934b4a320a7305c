"""What a training needs, by sums that a reader can redo."""

import json

import pytest

from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.cost import (
    ASSUMED,
    RATES,
    answering_needs,
    decoding_step_seconds,
    expected_draws,
    load_rates,
    prompt_tokens,
    training_needs,
)
from atrl_bench.models.shape import KNOWN_SHAPES
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import DynamicSampling, load_recipe

PAPER = load_profile("paper")
SHAPE_7B = KNOWN_SHAPES["Qwen/Qwen2.5-VL-7B-Instruct"]


def paper(size):
    return PAPER.model_copy(update={"model": f"Qwen/Qwen2.5-VL-{size}-Instruct"})


def needs(name, size="7B", *, gpus=None, sampler="local", **overrides):
    return training_needs(load_recipe(name, **overrides), paper(size).sampled_by(sampler), gpus=gpus)


def test_responses_are_decoded_from_one_prefill_a_prompt_whether_weights_are_divided_or_not():
    divided, alone = needs("grpo", gpus=8), needs("grpo", finetuning="lora")
    # 28 layers of 0.9 ms, longer than reading 16.58 GB at 1.4e12.
    assert decoding_step_seconds(SHAPE_7B, ASSUMED) == pytest.approx(28 * 0.9e-3)
    # 75 rollouts of 4,096 responses, 512 for each of 8 devices, 42 at once: 13 batches of 3 * 0.3 * 2,048 steps.
    decoding = 75 * 13 * 1843.2 * 28 * 0.9e-3 * 8 / 3600
    # 38,400 prompts * (200 + 0.8 * 1,280 tokens) * 2 * 8.29e9 FLOPs at 124.8e12.
    prefill = 38_400 * 1224 * 2 * 8.29e9 / 124.8e12 / 3600
    assert divided.phases["generation"] == pytest.approx(decoding + prefill, rel=1e-3)
    assert alone.phases["generation"] == pytest.approx(divided.phases["generation"], rel=0.1)


def test_scoring_and_updates_are_counted_in_passes():
    grpo, no_kl, strict = needs("grpo").phases, needs("grpo_kl_free").phases, needs("reinforce").phases
    # One forward pass over 307,200 sequences of 1,224 + 614.4 tokens.
    one_pass = 2 * 8.29e9 * 307_200 * 1838.4 / 124.8e12 / 3600
    assert no_kl["scoring"] == pytest.approx(one_pass, rel=1e-3)  # the old policy
    assert grpo["scoring"] == pytest.approx(2 * one_pass, rel=1e-3)  # and the reference
    assert strict["scoring"] == 0  # one update a rollout: the policy is the old one
    assert grpo["updates"] == pytest.approx(4 * one_pass, rel=1e-3)  # forward, recomputed, twice backward


def test_vppo_pays_for_a_second_pass_over_blackened_images():
    # Its rollouts of 384 problems come 101 times: 310,272 responses.
    passes = needs("vppo").phases["scoring"] / needs("dapo").phases["scoring"]
    assert passes == pytest.approx(2 * 310_272 / 307_200)


def test_dynamic_sampling_draws_twice_as_many_groups_where_half_of_them_are_mixed(monkeypatch):
    dapo = DynamicSampling(max_extra_generations=2, oversampling=2)
    # Half is missing; twice that is drawn, of which half is mixed: full.
    assert expected_draws(dapo) == [1.0, 1.0]
    assert expected_draws(None) == [1.0]
    assert needs("dapo").counts["sampled_responses"] == 2 * needs("dapo").counts["responses"]
    assert needs("dapo").phases["generation"] > 1.9 * needs("sapo").phases["generation"]
    monkeypatch.setattr("atrl_bench.experiments.cost.MIXED_FRACTION", 0.25)
    # 3/4 missing: 3/2 drawn, 3/8 found; 3/8 missing: 3/4 drawn; then it stops.
    assert expected_draws(dapo) == [1.0, 1.5, 0.75]


def test_t_grpo_samples_a_second_group_on_shuffled_frames():
    t_grpo = needs("t_grpo")
    assert t_grpo.counts == {"rollouts": 1200, "responses": 38_400, "sampled_responses": 57_600}
    plain = needs("t_grpo", temporal=None)
    # A rollout is one batch on each device either way, so the second group doubles the decoding.
    assert t_grpo.phases["generation"] == pytest.approx(2 * plain.phases["generation"], rel=0.02)


@pytest.mark.parametrize(
    ("name", "size", "overrides", "gpus", "nodes"),
    [
        ("grpo", "3B", {}, 2, 1),
        ("grpo", "7B", {}, 4, 1),
        ("grpo", "7B", {"finetuning": "lora"}, 1, 1),
        ("sft_steps", "32B", {}, 16, 2),
        ("sft_steps", "72B", {}, 64, 8),
    ],
)
def test_devices_keep_a_margin_and_several_nodes_are_taken_where_one_is_too_small(name, size, overrides, gpus, nodes):
    found = needs(name, size, **overrides)
    assert (found.gpus, found.nodes) == (gpus, nodes)
    assert found.gb_per_gpu <= 0.9 * 80


def test_a_device_holds_its_part_and_what_a_pass_copies_or_all_weights_while_it_samples():
    # While sampling 14 bytes (weights, Adam, reference in bfloat16) for each of 8.29e9 parameters over 8 devices, 14.5
    # GB; all of them gathered in bfloat16, 16.6; keys and values 15, reserve 4.
    assert needs("grpo", gpus=8).gb_per_gpu == pytest.approx(14.5 + 16.6 + 15 + 4, abs=0.1)
    # Over 2 devices an update takes more: 18 bytes with the gradients, 74.6 GB; activations 10.0; of what is in no
    # layer, 2 * 152,000 * 3,584 + 0.7e9 weights, 2 + 2 + 4 + 4 / 2 bytes each, 17.9.
    assert needs("grpo", gpus=2).gb_per_gpu == pytest.approx(74.6 + 10.0 + 17.9 + 4, abs=0.1)
    # Whole on one: 149.2, a copy of all in bfloat16, 16.6, and another gradient of what is in no layer, 7.2.
    assert needs("grpo", gpus=1).gb_per_gpu == pytest.approx(149.2 + 10.0 + 16.6 + 7.2 + 4, abs=0.1)


def test_the_memory_of_a_full_training_at_the_shape_of_3b_is_that_of_one_h100():
    """2026-11-26: 78.4 GB at most where the model was whole, 79.5 where FSDP2 divided it among one process."""
    sizes = {"max_prompt_tokens": 768, "max_response_tokens": 128, "completions_per_device": 2}
    profile = PAPER.model_copy(update={"model": "Qwen/Qwen2.5-VL-3B-Instruct"})
    profile = profile.model_copy(update={"training": profile.training.model_copy(update=sizes)})
    whole = training_needs(load_recipe("grpo"), profile, gpus=1).gb_per_gpu - ASSUMED.reserved_gb
    assert 78.4 < whole < 1.05 * 78.4


def test_no_number_of_devices_holds_a_32b_model_that_each_of_them_samples_from():
    # 2 * 33.45 GB for all weights, 15 and 4, whatever the number.
    found = needs("grpo", "32B")
    assert found.gb_per_gpu > 2 * 33.45 + 15 + 4 > 0.9 * 80


def test_vllm_is_priced_by_its_tokens_a_second():
    served = needs("sapo", sampler="vllm")
    # 307,200 responses of 614.4 tokens, 2,500 a second; and a prefill for each of 38,400 prompts.
    decoding, prefill = 307_200 * 614.4 / 2500, 38_400 * 1224 * 2 * 8.29e9 / 124.8e12
    assert served.phases["generation"] == pytest.approx((decoding + prefill) / 3600, rel=1e-3)


@pytest.mark.parametrize("name", ["dpo", "sft_steps"])
def test_a_training_that_vllm_does_not_sample_for_costs_the_same_with_it(name):
    assert needs(name, sampler="vllm") == needs(name)


def test_a_profile_whose_rollouts_are_vllms_is_priced_with_its_memory_and_its_pass():
    def priced(name, sampler):
        return training_needs(load_recipe(name), PAPER.sampled_by(sampler), gpus=8)

    local, by_vllm, served = (priced("reinforce", sampler) for sampler in ("local", "vllm", "http://gpu:8000"))
    assert (local.sampler, by_vllm.sampler, served.sampler) == ("transformers", "vLLM", "vLLM")
    # Without a reference 12 bytes while it samples, all weights and 15 GB. vLLM's share, 28 GB, is less than those,
    # and less than what an update takes: 16 bytes, activations, 8.5 bytes for what is in no layer.
    assert local.gb_per_gpu == pytest.approx(12 * 8.29 / 8 + 2 * 8.29 + 15 + 4, abs=0.1)
    assert by_vllm.gb_per_gpu == served.gb_per_gpu == pytest.approx(16 * 8.29 / 8 + 10.0 + 15.2 + 4, abs=0.1)
    # One update a rollout: only the correction needs the old policy, a forward pass over what is trained on.
    one_pass = 2 * 8.29e9 * 307_200 * 1838.4 / 124.8e12 / 3600
    assert local.phases["scoring"] == 0
    assert by_vllm.phases["scoring"] == pytest.approx(one_pass, rel=1e-3)


def test_disk_and_host_memory_of_full_training_and_of_adapters():
    full, lora = needs("grpo"), needs("grpo", finetuning="lora")
    # Float32 weights stay; weights and two moments of Adam, of the last checkpoint and the one being written.
    assert (full.checkpoint_gb, full.resume_gb) == (pytest.approx(4 * 8.29), pytest.approx(24 * 8.29))
    assert lora.disk_gb == pytest.approx(2.1 * 8.29)
    # Weights and two moments, copied before they are written, and 4 GB for each of four processes.
    assert full.host_gb_per_node == pytest.approx(12 * 8.29 + 4 * 4)
    assert needs("grpo", gpus=32).host_gb_per_node == pytest.approx(4 * 8.29 + 8 * 4), "of four nodes each its part"


def test_a_mini_training_is_minutes_of_a_core():
    mini = training_needs(load_recipe("grpo"), load_profile("mini"))
    assert mini.gpus == 0
    assert 0.1 < mini.minutes < 5
    assert set(mini.document()) == {"rollouts", "responses", "gpus", "minutes", "disk_gb", "basis"}


def test_a_model_of_unknown_size_has_no_estimate_and_says_so():
    document = training_needs(load_recipe("grpo"), PAPER.model_copy(update={"model": "some/model"})).document()
    assert document == {"rollouts": 75, "responses": 307_200, "basis": "the size of some/model is not known here"}


def test_more_frames_are_longer_prompts():
    sizes = PAPER.evaluation
    # 256 tokens for two frames.
    assert [prompt_tokens(sizes, frames) for frames in (16, 32, 64)] == [2248, 4296, 8392]
    hours = [answering_needs(PAPER, 5130, 8, 400, num_frames=frames).gpu_hours for frames in (16, 32, 64)]
    assert hours == sorted(hours)
    # 5,130 prefills of 4,096 more tokens.
    assert hours[2] - hours[1] == pytest.approx(5130 * 4096 * 2 * 8.29e9 / 124.8e12 / 3600)


def test_answers_are_priced_by_their_length_and_a_model_too_large_for_a_device_by_vllm():
    # 1,000 problems with eight answers of 400 tokens, 64 at once: 125 batches of 1,200 steps of 25.2 ms.
    alone = answering_needs(PAPER, 1000, 8, 400)
    prefill = 1000 * 1224 * 2 * 8.29e9 / 124.8e12
    assert alone.gpu_hours == pytest.approx((125 * 1200 * 25.2e-3 + prefill) / 3600, rel=1e-3)
    assert answering_needs(PAPER, 1000, 8, 200).gpu_hours < 0.6 * alone.gpu_hours
    # By vLLM 2,500 tokens a second: no answer waits for a longer one.
    served = answering_needs(PAPER, 1000, 8, 400, vllm=True)
    assert (served.sampler, served.gpus) == ("vLLM", 1)
    assert served.gpu_hours == pytest.approx((8000 * 400 / 2500 + prefill) / 3600, rel=1e-3)
    large = answering_needs(paper("72B"), 1000, 8, 400)
    assert (large.sampler, large.gpus) == ("vLLM", 4)


def written(tmp_path, rates):
    path = tmp_path / "gpu_check.json"
    path.write_text(json.dumps({"rates": rates}))
    return path


def test_every_rate_has_a_unit_and_says_what_it_rests_on():
    assert all(rate.title and rate.description for rate in RATES.values())


def test_measured_rates_replace_the_assumed_ones_in_the_sums_and_on_smaller_devices(tmp_path):
    rates = load_rates(written(tmp_path, {"hardware": "NVIDIA H100", "decoding_seconds_per_layer": 0.45e-3}))
    before, after = (training_needs(load_recipe("grpo"), PAPER, each) for each in (ASSUMED, rates))
    assert after.phases["generation"] < 0.6 * before.phases["generation"]
    assert "assumed rates" in before.basis
    assert "1 of 7 rates measured on NVIDIA H100, the others assumed" in after.basis
    assert (rates.device_gb, rates.on([48.0, 24.0]).device_gb) == (80.0, 24.0)
    assert rates.on([24.0]).basis == rates.basis


@pytest.mark.parametrize(
    ("rates", "why"),
    [
        ({"hardware": "H100", "speed": 1}, "speed"),
        ({"hardware": "H100", "training_flops": 0}, "training_flops"),
        ({"hardware": "H100", "training_flops": "fast"}, "fast"),
        ({"training_flops": 4e14}, "hardware"),
    ],
)
def test_a_file_with_a_wrong_rate_is_refused_with_the_reason(tmp_path, rates, why):
    with pytest.raises(InvalidFileError, match=why):
        load_rates(written(tmp_path, rates))

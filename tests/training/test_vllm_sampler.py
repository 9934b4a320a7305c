"""Rollouts by vLLM as far as they can be held without one: what it is handed, and what becomes of its answers.

`tests/real_vllm` has the same trainings with a real one.
"""

import json
import math
import os
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fake_vllm
import numpy as np
import pytest
import torch
from forks import launcher
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from trainer_parts import loss_of, noted, prompts_of, rollout_of, without_advantage
from training.launched_rollouts import answers_of

from atrl_bench.digests import spec_key
from atrl_bench.engines.devices import ONE_PROCESS
from atrl_bench.errors import AtrlBenchError, InvalidFileError, MissingDataError, UnknownNameError
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.experiments import run_dir as run_dir_module
from atrl_bench.experiments.cost import training_needs
from atrl_bench.experiments.memory_check import require_training_fits
from atrl_bench.experiments.price import price_of_training
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.video import Video
from atrl_bench.printable import Rows
from atrl_bench.profiles import Rollouts, load_profile
from atrl_bench.training import rollout_engine, vllm_sampler
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rollout import PromptBatch
from atrl_bench.training.rollout_engine import (
    devices_of_an_engine,
    engine_spec,
    require_even_parts,
    require_sampler,
)
from atrl_bench.training.run_spec import run_spec
from atrl_bench.training.sampler_check import (
    LogprobDifferences,
    differences,
    left_by_correction,
    require_proper_end,
    require_same_policy,
    require_same_prompt,
)
from atrl_bench.training.vllm_sampler import collapsed, response_seed, vllm_request

IMAGE, VIDEO, START = 7, 8, 5


@pytest.fixture
def fake(monkeypatch):
    fake_vllm.install(monkeypatch)


@pytest.fixture
def make_by_vllm(fake, make_trainer, profile):  # in this order: the fake outlives its trainers
    """Return a factory of trainers for which the fake samples."""

    def make(name="grpo", *, most=None, correction="sequence_mask", **overrides):
        rollouts = Rollouts(engine="vllm", max_logprob_difference=most, correction=correction)
        return make_trainer(name, profile=profile.model_copy(update={"rollouts": rollouts}), **overrides)

    return make


# What vLLM is handed ----------------------------------------------------------------------------------------------


def test_each_image_and_video_is_one_token_of_the_prompt():
    expanded = [1, START, IMAGE, IMAGE, IMAGE, 6, START, IMAGE, IMAGE, 6, VIDEO, VIDEO, 2, 2]
    assert collapsed(expanded, [IMAGE, VIDEO]) == [1, START, IMAGE, 6, START, IMAGE, 6, VIDEO, 2, 2]


def test_a_video_is_handed_over_with_the_moments_of_its_frames():
    video = Video(np.zeros((4, 28, 28, 3), dtype=np.uint8), (0, 10, 20, 30), 40, 10.0)
    request = vllm_request([1, VIDEO, VIDEO, 2], {"image": [], "video": [video]}, [IMAGE, VIDEO])
    ((frames, metadata),) = request["multi_modal_data"]["video"]
    assert frames is video.frames
    assert metadata == {
        "total_num_frames": 40,
        "fps": 10.0,
        "frames_indices": [0, 10, 20, 30],
        "do_sample_frames": False,
    }
    # Once more, for the processor: vLLM 0.30 keeps them from Qwen2.5-VL's, which would take 24 frames a second.
    assert request["mm_processor_kwargs"] == {"do_sample_frames": False, "video_metadata": [video.metadata]}
    assert request["prompt_token_ids"] == [1, VIDEO, 2]
    assert "image" not in request["multi_modal_data"]


def test_the_seed_of_a_response_follows_from_run_problem_and_repeat_alone():
    assert response_seed(0, "0:0:3", 1) == response_seed(0, "0:0:3", 1)
    assert len({response_seed(run, key, repeat) for run in (0, 1) for key in "ab" for repeat in (0, 1)}) == 8
    assert 0 <= response_seed(0, "a", 0) < 2**32


def test_the_engine_gets_this_runs_limits_and_is_ended(make_by_vllm, profile):
    before = dict(os.environ)
    trainer = make_by_vllm()
    assert dict(os.environ) == before
    llm = trainer.vllm.llm
    assert llm.options["dtype"] == "float32"
    assert llm.options["limit_mm_per_prompt"] == {"image": 1, "video": 0}
    assert llm.options["max_model_len"] == profile.training.max_prompt_tokens + 10
    assert llm.processor.image_processor.size["longest_edge"] == profile.training.max_pixels
    trainer.close()
    assert llm.log == ["end"]


def test_trainings_that_begin_side_by_side_meet_their_engines_at_different_ports(make_by_vllm):
    first, second = make_by_vllm(), make_by_vllm()  # nothing listens at the first one's when the second chooses
    assert first.vllm.llm.port != second.vllm.llm.port


def test_the_weights_of_each_rollout_are_there_before_it_is_sampled_and_no_image_is_remembered(make_by_vllm):
    trainer = make_by_vllm()
    llm = trainer.vllm.llm
    trainer.train()
    assert llm.log == ["weights", "forget prefixes", "forget images", "generate"] * 2
    for name, value in trainer.model.state_dict().items():
        assert value.shape == llm.model.state_dict()[name].shape


def test_on_a_gpu_it_sleeps_while_the_model_trains_and_gets_the_weights_anew(make_by_vllm):
    trainer = make_by_vllm()
    trainer.vllm.enable_sleep_mode = True  # as on a GPU
    trainer.train()
    awake = ["wake weights", "weights", "forget prefixes", "forget images", "wake kv_cache", "generate"]
    assert trainer.vllm.llm.log == [*awake, "sleep 2"] * 2


# What becomes of its answers --------------------------------------------------------------------------------------


def test_a_run_by_vllm_logs_how_it_compares_and_says_who_sampled(fake, run, profile, tmp_path):
    result = run(tmp_path, profile=profile.model_copy(update={"rollouts": Rollouts(engine="vllm")}))
    assert json.loads((result.checkpoint / "done.json").read_text())["rollouts"] == {
        "engine": "vllm",
        "version": "0.30.0",
        "on_server": False,
        "dtype": "float32",
    }
    lines = [json.loads(line) for line in (result.checkpoint / "metrics.jsonl").read_text().splitlines()]
    line = lines[0]
    assert line["sampling/sampling_logp_difference/max"] < 1e-4
    assert line["sampling/media_tokens"] == 4
    assert 0 <= line["sampling/ended"] <= 1
    assert line["seconds/weights_to_vllm"] >= 0


def test_metrics_of_sampling_are_of_the_problems_that_count(make_by_vllm):
    trainer = make_by_vllm()
    trainer.generate_own([3, 4, 5], ["0:0:3", "0:0:4", "0:0:5"], 2)  # the third evens out processes
    assert (
        len(noted(trainer, "sampling/ended")) == len(noted(trainer, "sampling/media_tokens")) == 2 * trainer.group_size
    )


def test_a_response_is_the_same_in_whatever_order_and_company_it_is_sampled(make_by_vllm):
    trainer = make_by_vllm()
    trainer.vllm.load(0)
    together = trainer.vllm.sample(prompts_of(trainer, range(3)), 4)
    alone = trainer.vllm.sample(prompts_of(trainer, [2]), 4)
    assert [one.token_ids for one in together[8:]] == [one.token_ids for one in alone]
    assert len({tuple(one.token_ids) for one in together}) > 3


def test_with_one_update_a_rollout_credit_is_recorded_in_the_pass_of_the_correction(make_by_vllm):
    strict = rollout_of(make_by_vllm(schedule="strict", credit="atrl"))
    usual = rollout_of(make_by_vllm(schedule="minibatch4", credit="atrl"))
    assert torch.equal(strict.response_ids_BT, usual.response_ids_BT)
    assert torch.allclose(strict.advantages, usual.advantages, atol=1e-5)
    assert strict.advantages.shape == strict.response_ids_BT.shape
    assert not strict.credit_follows  # the training pass records nothing more
    assert usual.old_BT is not None
    assert strict.old_BT is None  # the ratio to the policy is one, as without vLLM


@pytest.mark.parametrize(
    ("correction", "of_tokens"),
    [
        ("sequence_mask", lambda n: math.exp(0.15 * n) if n <= 7 else 0.0),
        ("sequence_truncate", lambda n: min(3.0, math.exp(0.15 * n))),
        ("token_mask", lambda n: math.exp(0.15)),
    ],
)
def test_a_correction_is_the_ratio_of_probabilities_up_to_three(make_by_vllm, correction, of_tokens):
    # vLLM says that each token is less likely by 0.15 than the trainer finds: exp(0.15 n) for n tokens, so that seven
    # tokens have 2.86 and eight 3.32, which is more than three.
    trainer = make_by_vllm(most=0.2, correction=correction)
    trainer.vllm.llm.shift = -0.15
    batch = rollout_of(trainer)
    lengths_B = batch.mask_BT.sum(1).tolist()
    assert max(lengths_B) > 7
    expected_B1 = torch.tensor([[of_tokens(n)] for n in lengths_B])
    torch.testing.assert_close(batch.correction * batch.mask_BT, expected_B1 * batch.mask_BT, rtol=1e-3, atol=0)
    assert noted(trainer, "sampling/masked") == [pytest.approx((expected_B1 == 0).float().mean().item())]


def test_without_a_correction_the_sampler_is_compared_all_the_same(make_by_vllm):
    trainer = make_by_vllm(most=0.2, correction="none", schedule="strict")
    trainer.vllm.llm.shift = -0.15
    assert rollout_of(trainer).correction is None
    trainer.vllm.llm.shift = -0.3
    with pytest.raises(AtrlBenchError, match="does not sample from the policy"):
        rollout_of(trainer)


def test_a_correction_that_was_chosen_is_in_the_key_and_the_usual_one_is_not(profile):
    def spec(correction):
        rollouts = Rollouts(engine="vllm", correction=correction)
        return engine_spec(load_recipe("grpo"), profile.model_copy(update={"rollouts": rollouts}))["rollouts"]

    assert "correction" not in spec("sequence_mask")
    assert spec("token_truncate")["correction"] == "token_truncate"


@pytest.mark.parametrize(
    ("ratio_BT", "masked", "effective"),
    [
        ([[1.0], [1.0], [0.0], [0.0]], 0.5, 0.5),  # 2^2 / (4 * 2)
        ([[1.0, 3.0], [2.0, 9.0]], 0.0, 6**2 / (3 * 14)),  # the last is padding
        ([[0.0], [0.0]], 1.0, 0.0),
    ],
)
def test_what_a_correction_leaves_is_counted_in_what_it_weighs(ratio_BT, masked, effective):
    left = left_by_correction(torch.tensor(ratio_BT), torch.tensor([[1, 1], [1, 0]]))
    assert left == pytest.approx((masked, effective))


RECIPES = {
    "grpo": {},
    "dapo": {"dynamic_sampling": None},
    "gspo": {},
    "gspo+atrl": {"credit": "atrl"},
    "sapo": {},
    "reinforce": {},
    "ft_rl": {"dynamic_sampling": None},
    "vppo": {"dynamic_sampling": None},
    "actor_critic": {},
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_correction_multiplies_the_policy_term_of_every_objective_and_no_other(make_by_vllm, name):
    """With the policy term P, and K for KL divergence and entropy, L(w) = w P + K and 2 L(1/2) = L(1) + L(0)."""
    trainer = make_by_vllm(name.partition("+")[0], **RECIPES[name])
    batch = rollout_of(trainer)
    # Responses of one length and an advantage that does not cancel out: P is no zero.
    batch.advantages = batch.advantages.abs() + 1

    def loss(ratio):
        changed = replace(batch, correction=torch.full((16, 1), ratio))
        with torch.no_grad():
            return loss_of(trainer, changed).item()

    whole, half, none = loss(1.0), loss(0.5), loss(0.0)
    assert half == pytest.approx((whole + none) / 2, rel=1e-4)
    assert abs(whole - none) > 1e-3
    batch = without_advantage(batch)
    assert loss(1.0) == pytest.approx(none, abs=1e-6)


@pytest.mark.slow
def test_processes_that_share_an_engine_ask_it_together_and_keep_the_answers_to_their_own_prompts(
    tmp_path, base_folder, data_dir, profile
):
    world = ("fake", base_folder, data_dir)
    by_vllm = profile.model_copy(update={"rollouts": Rollouts(engine="vllm")})
    with launcher(Path(__file__).parent) as forked:

        def launch(order):
            assert forked("launched_rollouts:main", 2, *order) == [0, 0]

        apart, together = (
            answers_of(*world, tmp_path / str(count), by_vllm, sharing=count, launch=launch) for count in (1, 2)
        )
    for expected, found in zip(apart[:2], together[:2], strict=True):
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    assert apart[0] != apart[1]
    assert [report["alone"] for report in together[2]] == [2, 0]  # one asks, the other takes part


@pytest.mark.parametrize(
    ("devices", "processes", "why"),
    [(2, 3, "2 does not divide the 3 processes"), (4, 8, "4 does not divide the 2 heads of keys")],
)
def test_an_engine_is_shared_evenly_or_not_at_all(tiny_model, devices, processes, why):
    with pytest.raises(InvalidFileError, match=f"{devices} GPUs cannot share") as error:
        require_even_parts(devices, processes, tiny_model.config)
    assert why in error.value.why
    assert "rollouts.tensor_parallel" in error.value.next_step
    require_even_parts(2, 8, tiny_model.config)
    require_even_parts(1, 3, tiny_model.config)


@pytest.mark.parametrize(
    ("billions", "device_gb", "settings", "devices"),
    [
        (8.29, 80, {}, 1),  # 16.6 GB in 0.75 * 0.35 * 80 = 21 GB
        (33.45, 80, {}, 4),  # 66.9 / 4 = 16.7
        (33.45, 80, {"gpu_memory_fraction": 0.6}, 2),  # 66.9 / 2 = 33.5 in 36
        (33.45, 80, {"tensor_parallel": 8}, 8),
        (33.45, 80, {"server": "http://x"}, 1),
        (33.45, math.inf, {}, 1),  # on a CPU
    ],
)
def test_as_many_devices_share_an_engine_as_its_weights_need(billions, device_gb, settings, devices):
    assert devices_of_an_engine(Rollouts(engine="vllm", **settings), billions * 1e9, device_gb) == devices


def test_an_estimate_counts_a_part_of_the_engine_on_each_device_and_no_fewer_devices_than_share_it():
    paper = load_profile("paper").model_copy(update={"model": "Qwen/Qwen2.5-VL-32B-Instruct"})

    def needs(**settings):
        by_vllm = paper.model_copy(update={"rollouts": Rollouts(engine="vllm", **settings)})
        return training_needs(load_recipe("grpo", finetuning="lora"), by_vllm)

    # Adapters on 64 devices: 66.9 / 64 GB of weights, an engine of 66.9, 4 reserved: just below 72; on 32 it is more.
    assert needs(tensor_parallel=1).gb_per_gpu == pytest.approx(66.9 / 64 + 66.9 + 4, abs=0.1)
    assert needs(tensor_parallel=1).gpus == 64
    assert needs().gpus == needs(tensor_parallel=4).gpus == 4  # 66.9 / 4 + 0.35 * 80 + 4 while it samples
    assert needs(tensor_parallel=16).gpus == 16


# What stops a run -------------------------------------------------------------------------------------------------


def test_an_image_that_is_expanded_twice_stops_the_run(make_by_vllm, monkeypatch):
    monkeypatch.setattr(vllm_sampler, "collapsed", lambda token_ids, _: list(token_ids))  # as TRL hands them over
    with pytest.raises(AtrlBenchError, match="7 tokens of images and videos where the trainer has 4") as error:
        make_by_vllm().train()
    assert "--rollouts local" in error.value.next_step


def test_an_image_that_is_remembered_from_before_an_update_stops_the_run(make_by_vllm, monkeypatch):
    monkeypatch.setattr(vllm_sampler.VLLMSampler, "_drop_seen_images", lambda _: None)  # as TRL leaves it
    trainer = make_by_vllm(overrides={"learning_rate": 1e-2})
    trainer.vllm.load(0)
    trainer.vllm.sample(prompts_of(trainer, range(16)), 1)  # so every image of the run has been seen
    with pytest.raises(AtrlBenchError, match="in rollout 1 the log-probability") as error:
        trainer.train()
    assert trainer.step == 2  # those of rollout 0: none by responses of another policy
    assert "rollouts.max_logprob_difference" in error.value.next_step


def test_log_probabilities_are_compared_over_the_response_tokens():
    sampled_BT, scored_BT = torch.tensor([[-1.0, -2.0], [-3.0, 9.0]]), torch.tensor([[-1.5, -2.0], [-2.0, 0.0]])
    # 0.5, 0 and 1 of three tokens; the fourth is padding.
    assert differences(sampled_BT, scored_BT, torch.tensor([[1, 1], [1, 0]])) == LogprobDifferences(0.5, 1.0)


@pytest.mark.parametrize(
    ("mean", "dtype", "most", "stops"),
    [
        (5e-4, "float32", None, False),
        (2e-3, "float32", None, True),
        (2e-2, "bfloat16", None, False),
        (0.2, "bfloat16", None, True),
        (0.2, "bfloat16", 0.3, False),
        (math.nan, "float32", 1.0, True),
    ],
)
def test_a_rollout_beyond_rounding_stops_the_run(mean, dtype, most, stops):
    with pytest.raises(AtrlBenchError, match="in rollout 3") if stops else nullcontext():
        require_same_policy(LogprobDifferences(mean, mean), dtype, most, 3)


def test_a_prompt_of_other_words_stops_the_run():
    require_same_prompt((1, 7, 2), [1, 7, 2], [7])
    with pytest.raises(AtrlBenchError, match="3 tokens that are not the trainer's 3"):
        require_same_prompt([1, 7, 3], [1, 7, 2], [7])


@pytest.mark.parametrize("token_ids", [[4, 2], [2], [4, 4, 4]])
def test_a_response_stops_at_its_first_end_or_is_cut(token_ids):
    require_proper_end(token_ids, [2], 3)


@pytest.mark.parametrize("token_ids", [[4, 4], [2, 4], [2, 4, 2], []])
def test_a_response_that_ends_elsewhere_stops_the_run(token_ids):
    with pytest.raises(AtrlBenchError, match="end token"):
        require_proper_end(token_ids, [2], 3)


# Who samples ------------------------------------------------------------------------------------------------------


def test_the_key_of_a_run_names_who_sampled_only_where_that_is_vllm(monkeypatch):
    mini, recipe = load_profile("mini"), load_recipe("grpo")
    local = run_spec(recipe, mini, "base", "data", 0)
    assert "rollouts" not in local
    assert run_spec(recipe, mini.sampled_by("local"), "base", "data", 0) == local
    monkeypatch.setattr(rollout_engine, "installed_vllm", lambda: "0.30.0")
    by_vllm = run_spec(recipe, mini.sampled_by("vllm"), "base", "data", 0)
    assert by_vllm == local | {
        "rollouts": {"engine": "vllm", "version": "0.30.0", "on_server": False, "dtype": "float32"}
    }
    on_server = run_spec(recipe, mini.sampled_by("http://localhost:8000"), "base", "data", 0)
    monkeypatch.setattr(rollout_engine, "installed_vllm", lambda: None)
    recorded = run_spec(recipe, mini.sampled_by("vllm"), "base", "data", 0, "0.29.0")
    assert len({spec_key(spec) for spec in (local, by_vllm, on_server, recorded)}) == 4


@pytest.mark.parametrize("name", ["sft_steps", "dpo"])
def test_a_training_without_rollouts_has_one_key_whoever_samples(name):
    mini, recipe = load_profile("mini"), load_recipe(name)
    assert run_spec(recipe, mini.sampled_by("vllm"), "b", "d", 0) == run_spec(recipe, mini, "b", "d", 0)


def test_who_samples_is_an_option_of_the_command_that_is_printed_and_no_setting_that_is_usual():
    mini = load_profile("mini")
    assert mini.training_option == mini.option == "--profile mini"
    assert mini.sampled_by("vllm").training_option == "--profile mini --rollouts vllm"
    assert mini.sampled_by("vllm").option == "--profile mini"  # an evaluation has no such option
    assert "rollouts" not in mini.settings()
    assert mini.sampled_by("vllm").settings()["rollouts"]["engine"] == "vllm"
    with pytest.raises(UnknownNameError, match="Did you mean vllm"):
        mini.sampled_by("vlm")


@pytest.mark.parametrize(
    ("version", "sizes", "server", "has_videos", "error", "message"),
    [
        (None, {}, None, False, MissingDataError, r"(?s)not installed.*or --rollouts local"),
        ("0.21.1", {}, None, False, MissingDataError, "vLLM 0.21.1 cannot sample"),
        ("0.33.0", {}, None, False, MissingDataError, "vLLM 0.33.0 cannot sample"),
        ("0.30.0", {"top_p": 0.9, "temperature": 0.7}, None, False, InvalidFileError, "top_p 0.9"),
        ("0.30.0", {"top_p": 0.9}, "http://x", False, InvalidFileError, "top_p 0.9"),
        ("0.30.0", {}, "http://x", True, InvalidFileError, "has videos"),
    ],
)
def test_what_vllm_cannot_do_is_refused_before_anything_is_trained(
    monkeypatch, version, sizes, server, has_videos, error, message
):
    mini = load_profile("mini")
    profile = mini.model_copy(
        update={
            "rollouts": Rollouts(engine="vllm", server=server),
            "training": mini.training.model_copy(update=sizes),
        }
    )
    monkeypatch.setattr(rollout_engine, "installed_vllm", lambda: version)
    with pytest.raises(error, match=message):
        require_sampler(load_recipe("grpo"), profile, has_videos=has_videos)


@pytest.mark.parametrize("version", ["0.22.0", "0.30.0", "0.30.0+cpu"])
def test_the_versions_that_are_known_to_work_may_sample(monkeypatch, version):
    monkeypatch.setattr(rollout_engine, "installed_vllm", lambda: version)
    profile = load_profile("mini").sampled_by("vllm")
    require_sampler(load_recipe("t_grpo"), profile, has_videos=True)


def test_a_run_folder_remembers_who_samples_for_its_tables(tmp_path):
    mini, own = load_profile("mini"), load_profile("mini").model_copy(update={"rollouts": Rollouts(engine="vllm")})
    RunDir.at(tmp_path, mini.sampled_by("http://gpu:8000")).keep_choices()
    assert RunDir.at(tmp_path, mini).profile.rollouts == Rollouts(engine="vllm", server="http://gpu:8000")
    assert RunDir.at(tmp_path, own).profile.rollouts == Rollouts(engine="vllm")  # a file of one's own decides
    assert RunDir.at(tmp_path, mini.sampled_by("vllm")).profile.rollouts == Rollouts(engine="vllm")
    RunDir.at(tmp_path, mini.sampled_by("local")).keep_choices()
    assert RunDir.at(tmp_path, mini).profile == mini


def test_a_plan_says_that_vllm_samples(tmp_path):
    def lines(option):
        run_dir = RunDir.at(tmp_path, load_profile("smoke").sampled_by(option))
        estimate = price_of_training("grpo", load_recipe("grpo"), run_dir, 0)
        return [line for block in estimate.blocks() if isinstance(block, Rows) for line in block.rows]

    assert ("rollouts: by vLLM",) in lines("vllm")
    assert ("rollouts: by vLLM",) not in lines("local")


def test_a_training_without_its_engine_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_engine, "installed_vllm", lambda: None)
    run_dir = RunDir.at(tmp_path, load_profile("smoke").sampled_by("vllm"))
    with pytest.raises(MissingDataError, match="not installed"):
        require_training_fits(load_recipe("grpo"), run_dir, ONE_PROCESS, 0)
    require_training_fits(load_recipe("sft_steps"), run_dir, ONE_PROCESS, 0)  # it has no rollouts


def test_where_it_is_installed_it_samples_for_a_model_that_needs_gpus_in_a_folder_that_is_not_begun(
    tmp_path, monkeypatch
):
    def engine(profile, folder="new"):
        return RunDir.at(tmp_path / folder, profile).profile.rollouts.engine

    paper, mini = load_profile("paper"), load_profile("mini")
    monkeypatch.setattr(rollout_engine, "installed_vllm", lambda: "0.30.0")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "store.sqlite").touch()
    assert [engine(paper), engine(paper, "begun"), engine(mini), engine(paper.sampled_by("local"))] == [
        "vllm",
        "local",
        "local",
        "local",
    ]
    for version in (None, "0.31.0"):
        monkeypatch.setattr(rollout_engine, "installed_vllm", lambda version=version: version)
        assert engine(paper) == "local"


# A server ---------------------------------------------------------------------------------------------------------


def test_a_server_that_tells_other_log_probabilities_is_refused():
    sampler = SimpleNamespace(logprobs_mode="raw_logprobs", server_base_url="http://x")
    vllm_sampler.VLLMSampler._check_server(sampler, "raw_logprobs")
    with pytest.raises(InvalidFileError, match="tells processed_logprobs") as error:
        vllm_sampler.VLLMSampler._check_server(sampler, "processed_logprobs")
    assert "--logprobs-mode raw_logprobs" in error.value.next_step


def test_a_server_is_asked_for_a_whole_rollout_with_one_seed(monkeypatch):
    asked = []

    def generate(prompts, images, size):
        asked.append((prompts, images, size))
        return prompts, [[4, 2]] * 4, [[[-0.5], [None]]] * 4, None

    sampler = SimpleNamespace(generate=generate, _run_seed=0, _limits=lambda: {"stop_token_ids": [2]})
    prompts = PromptBatch(
        ["0:0:3", "0:0:4"], [[1, IMAGE, IMAGE], [1]], {}, [{}, {}], [{"image": ["a"], "video": []}, {"image": []}]
    )
    responses = vllm_sampler.VLLMSampler._sample_on_server(sampler, prompts, 2)
    ((prompt_ids, images, size),) = asked
    assert prompt_ids == [[1, IMAGE, IMAGE], [1, IMAGE, IMAGE], [1], [1]]  # expanded: TRL says where the images are
    assert (images, size) == ([["a"], ["a"], None, None], 2)
    assert sampler.generation_kwargs == {"seed": response_seed(0, "0:0:3", 0), "stop_token_ids": [2]}
    assert responses[0].token_ids == [4, 2]
    assert responses[0].logprobs[0] == -0.5
    assert math.isnan(responses[0].logprobs[1])  # which stops the run


def test_the_versions_that_are_taken_are_those_of_the_extra():
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    [extra] = pyproject["project"]["optional-dependencies"]["vllm"]
    assert Requirement(extra).specifier == SpecifierSet(rollout_engine.SUPPORTED_VLLM)


def test_a_folder_keeps_the_version_that_sampled_where_another_answers_or_none_is_installed(tmp_path, monkeypatch):
    def folder():
        return replace(
            RunDir.at(tmp_path, load_profile("mini").sampled_by("vllm"), None), engine=Engine("vllm", "0.29.0")
        )

    monkeypatch.setattr(run_dir_module, "installed_vllm", lambda: "0.30.0")
    folder().keep_choices()
    monkeypatch.setattr(run_dir_module, "installed_vllm", lambda: None)
    folder().record_environment()
    folder().keep_choices()
    assert folder().vllm == "0.30.0"
    assert folder().environment()["vllm"] == "0.29.0"

"""Trainings whose responses a real vLLM samples: what it sees, what it says of its tokens, and what stops a run."""

import json
import signal
import subprocess
import sys
from functools import partial
from importlib.metadata import version

import pytest
from programs import command
from trainer_parts import prompts_of
from training import killed_run
from training.launched_rollouts import answers_of, by_torchrun

from atrl_bench.errors import AtrlBenchError
from atrl_bench.experiments.definition import load_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.decoding import Draw, sample
from atrl_bench.models.prompt import Sampling
from atrl_bench.profiles import load_profile
from atrl_bench.training import vllm_sampler
from atrl_bench.training.group_sampling import prompt_inputs
from atrl_bench.training.rollout import joined_visuals


@pytest.fixture
def compared(monkeypatch):
    """The largest difference of a log-probability in each rollout that a trainer compares."""
    from atrl_bench.training import sampler_check

    largest, compare = [], sampler_check.differences

    def record(*tensors):
        largest.append(compare(*tensors).largest)
        return compare(*tensors)

    monkeypatch.setattr(sampler_check, "differences", record)
    return largest


def greedy(trainer):
    """Return the likeliest responses to the first problems, by vLLM and by transformers."""
    prompts = prompts_of(trainer, range(16))
    trainer.vllm.load(trainer.step)
    trainer.vllm.temperature = 0.0
    by_vllm = [response.token_ids for response in trainer.vllm.sample(prompts, 1)]
    trainer.vllm.temperature = 1.0
    inputs = prompt_inputs(prompts.token_ids_P, prompts.token_fields_P, trainer.pad_id, "cpu")
    inputs |= joined_visuals(prompts.visuals_P, "cpu")
    answers = sample(
        trainer.model.eval(),
        inputs,
        [Draw(row, "", 0) for row in range(16)],
        trainer.eos_ids,
        Sampling(trainer.sizes.max_response_tokens, 0.0),
    )
    trainer.model.train()
    return by_vllm, [list(a.token_ids) + ([] if a.end is None else [a.end]) for a in answers]


def test_grpo_with_credit_trains_on_what_vllm_samples_from_the_policy_of_each_rollout(make_trainer, compared):
    trainer = make_trainer("grpo", credit="atrl")
    by_vllm, by_transformers = greedy(trainer)
    assert by_vllm == by_transformers
    trainer.train()
    assert len(compared) == 2
    assert max(compared) < 1e-4
    after, by_transformers = greedy(trainer)
    assert after == by_transformers != by_vllm  # the updates have reached vLLM
    lines = [line for line in trainer.lines if "sampling/media_tokens" in line]
    assert [line["sampling/media_tokens"] for line in lines] == [4.0, 4.0]


def test_adapters_reach_vllm_merged_into_the_weights(make_trainer, compared):
    trainer = make_trainer("grpo", finetuning="lora", lora_rank=4, overrides={"learning_rate": 1e-2})
    before, _ = greedy(trainer)
    trainer.train()
    assert len(compared) == 2
    assert max(compared) < 1e-4
    after, by_transformers = greedy(trainer)
    assert after == by_transformers != before


def test_dapo_draws_further_problems_by_vllm(make_trainer, compared):
    trainer = make_trainer("dapo", credit="atrl")
    draws, draw = [], trainer.generate

    def record(rows, key):
        draws.append(key)
        groups = draw(rows, key)
        if key.endswith(":0"):
            groups[0].rewards_GF[:, 0] = 1.0  # all right: another problem is drawn for it
        return groups

    trainer.generate = record
    trainer.train()
    assert {"0:0", "0:1", "1:0", "1:1"} <= set(draws)
    assert len(compared) == 2
    assert max(compared) < 1e-4


def test_t_grpo_shows_vllm_videos_in_order_and_shuffled(make_video_trainer, compared):
    trainer = make_video_trainer(credit="atrl")
    shown, sample = [], trainer.vllm.sample

    def record(prompts, size):
        shown.extend(zip(prompts.keys_P, prompts.media_P, strict=True))
        return sample(prompts, size)

    trainer.vllm.sample = record
    by_vllm, by_transformers = greedy(trainer)
    assert by_vllm == by_transformers
    shown.clear()
    trainer.train()
    assert len(compared) == 2
    assert max(compared) < 1e-4
    about_videos = {key for key, media in shown if media["video"]}
    assert {key.removesuffix(":shuffled") for key in about_videos} < about_videos  # each in order, and shuffled
    assert any(media["image"] for _, media in shown)
    after, by_transformers = greedy(trainer)
    assert after == by_transformers != by_vllm


def test_an_image_that_is_expanded_twice_stops_the_run(make_trainer, monkeypatch):
    monkeypatch.setattr(vllm_sampler, "collapsed", lambda token_ids, _: list(token_ids))  # as TRL hands them over
    with pytest.raises(AtrlBenchError, match="tokens of images and videos where the trainer has 4"):
        make_trainer("grpo").train()


def test_an_image_that_is_remembered_from_before_an_update_stops_the_run(make_trainer, monkeypatch):
    monkeypatch.setattr(vllm_sampler.VLLMSampler, "_drop_seen_images", lambda _: None)  # as TRL leaves it
    trainer = make_trainer("grpo", overrides={"learning_rate": 1e-2, "prompts_per_rollout": 16})  # all 16, each time
    with pytest.raises(AtrlBenchError, match="in rollout 1 the log-probability"):
        trainer.train()
    assert trainer.step == 2


def test_a_killed_run_samples_what_an_uninterrupted_one_does(tmp_path, base_folder, data_dir, profile, coin_grader):
    recipe = {"name": "grpo", "credit": "atrl", "data": "geometry3k"}
    whole = killed_run.train_by({**recipe}, base_folder, data_dir, tmp_path / "whole", profile.model_dump_json())
    in_its_second_rollout = tmp_path / "killed" / whole.checkpoint.name / "metrics.jsonl"
    training = [json.dumps(recipe), base_folder, data_dir, tmp_path / "killed", profile.model_dump_json()]
    for awaited, code in ((in_its_second_rollout, -signal.SIGKILL), (tmp_path / "never", 0)):
        program = [sys.executable, killed_run.__file__, awaited, "3", "0", *training]
        assert subprocess.run(program, check=False).returncode == code
    record = json.loads((in_its_second_rollout.parent / "done.json").read_text())
    assert record["digest"] == whole.digest
    assert record["rollouts"]["engine"] == "vllm"


@pytest.mark.parametrize("divided", [False, True], ids=["a model each", "a model between them"])
def test_processes_that_share_an_engine_are_answered_as_by_one_each_before_and_after_updates(
    tmp_path, base_folder, data_dir, profile, divided
):
    world = ("real", base_folder, data_dir)
    *apart, whole = answers_of(*world, tmp_path / "apart", profile, sharing=1)
    launch = partial(by_torchrun, divided=divided)
    *together, parts = answers_of(*world, tmp_path / "together", profile, sharing=2, launch=launch)
    for expected, found in zip(apart, together, strict=True):
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
        assert all(of == pytest.approx(is_, abs=1e-3) for (_, of), (_, is_) in zip(found, expected, strict=True))
    assert apart[0] != apart[1]
    part, all_of_it = (max(report["weights"] for report in reports) for reports in (parts, whole))
    assert part < 0.6 * all_of_it  # half of each matrix, and the small rest


@pytest.mark.parametrize("table", ["kl_free", pytest.param("main_7b", marks=pytest.mark.large)])
def test_one_command_trains_each_row_of_a_table_on_rollouts_by_vllm_and_fills_every_cell(tmp_path, table):
    words = ["run-table", table, "--profile", "smoke", "--rollouts", "vllm", "--out", str(tmp_path)]
    command(*words)
    with RunDir.at(tmp_path, load_profile("smoke")).open_store() as store:
        samplers = [run.spec["rollouts"] for run in store.runs() if run.state == "done"]
    trained = [row.id for row in load_table(table).rows if row.recipe]
    assert [(by["engine"], by["version"]) for by in samplers] == [("vllm", version("vllm"))] * len(trained)
    report = json.loads((tmp_path / "reports" / f"{table}.json").read_text())
    assert all(cell["estimate"] for row in report["rows"] for cell in row["cells"])

"""Whole runs: the files they leave, and that a run that was killed ends like one that was not."""

import json
import os
import signal
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import needs
import pytest
from forks import launcher
from safetensors.torch import load_file

from atrl_bench.digests import spec_key
from atrl_bench.engines.stop import Stopped
from atrl_bench.models.local import model_ref
from atrl_bench.training.metrics import MetricsFile, read_metrics
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run_spec import run_spec


@pytest.fixture
def run(run, mini_world):
    """Train as everywhere, on generated videos where the recipe's data are those of Video-R1."""

    def start(out, name="grpo", **fields):
        about_videos = fields.get("data", "").startswith("video")
        return run(out, name, **fields, **({"data_dir": mini_world} if about_videos else {}))

    return start


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A folder for whole runs, in which each is trained by the first test that compares with it."""
    return tmp_path_factory.mktemp("uninterrupted")


TIMES = ("seconds/", "elapsed")
OF_FOUR_ROWS = {"num_rollouts": 2, "prompts_per_rollout": 4, "completions_per_device": 2, "save_every_rollouts": 1}
PAIRS = {"max_pairs_per_problem": 2}  # enough for four updates of four


def said_of(result):
    """Return the metrics of each update but how long it took."""
    lines = read_metrics(result.checkpoint / "metrics.jsonl")
    return [{name: value for name, value in line.items() if not name.startswith(TIMES)} for line in lines]


@pytest.mark.parametrize(
    ("name", "fields", "killed_in", "step"),
    [
        ("dapo", {"credit": "atrl"}, 2, 2),
        ("grpo", {"finetuning": "lora"}, 2, 2),
        ("t_grpo", {"data": "video_r1", "credit": "atrl", "schedule": "strict"}, 2, 1),
        ("actor_critic", {"credit": "atrl", "critic": {"updates_per_rollout": 2}}, 2, 1),
        ("sft_video", {"data": "video_r1_cot", "overrides": OF_FOUR_ROWS}, 2, 1),
        ("dpo", {"pairs": PAIRS, "credit": "atrl"}, 3, 2),
        ("dpo", {"pairs": PAIRS, "finetuning": "lora"}, 3, 2),
    ],
)
def test_a_run_that_was_killed_and_called_again_equals_an_uninterrupted_one(
    run, uninterrupted, pull_the_plug, tmp_path, base_folder, name, fields, killed_in, step
):
    whole = run(uninterrupted, name, **fields)
    pull_the_plug(partial(run, tmp_path / "killed", name, **fields), killed_in)
    assert not list((tmp_path / "killed").glob("*/done.json"))
    [checkpoint] = (tmp_path / "killed").glob("*/resume/checkpoint-*")
    assert checkpoint.name == f"checkpoint-{step}"
    assert (checkpoint / "critic.safetensors").is_file() == (name == "actor_critic")
    resumed = run(tmp_path / "killed", name, **fields)
    assert resumed.digest == whole.digest
    assert (whole.checkpoint / "model.safetensors").read_bytes() != (base_folder / "model.safetensors").read_bytes()
    assert said_of(resumed) == said_of(whole)


@needs.linux
def test_all_of_a_checkpoint_is_on_the_disk_before_it_has_its_name(run, tmp_path, monkeypatch):
    flushed, named, fsync, replace = set(), [], os.fsync, os.replace

    def noted(handle):
        flushed.add(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def name(source, target):
        if tmp_path in Path(target).parents:
            named.append(Path(target).name)
            assert {str(path) for path in (Path(source), *Path(source).rglob("*"))} <= flushed
        replace(source, target)

    monkeypatch.setattr("os.fsync", noted)
    monkeypatch.setattr("os.replace", name)
    run(tmp_path)
    assert {"checkpoint-2", "checkpoint-4", "model.safetensors", "done.json"} <= set(named)


@contextmanager
def sigterm_after(step):
    """Have this process sent a SIGTERM while it trains, once a step is logged."""
    write = MetricsFile.write

    def signalled(self, line):
        write(self, line)
        if line["step"] == step:
            signal.raise_signal(signal.SIGTERM)

    with patch.object(MetricsFile, "write", signalled):
        yield


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("grpo", {}),
        ("dapo", {"credit": "atrl", "finetuning": "lora"}),
        ("gspo", {"credit": "atrl"}),
        ("t_grpo", {"data": "video_r1"}),
    ],
)
def test_a_run_that_is_told_to_stop_saves_inside_its_rollout_and_ends_like_one_that_was_not(
    run, uninterrupted, tmp_path, name, fields
):
    whole = run(uninterrupted, name, **fields)
    # The first of two updates on the second rollout.
    with sigterm_after(3), pytest.raises(Stopped) as stopped:
        run(tmp_path / "stopped", name, **fields)
    assert stopped.value.code == 75
    assert [path.name for path in (tmp_path / "stopped").glob("*/resume/checkpoint-*")] == ["checkpoint-3"]
    resumed = run(tmp_path / "stopped", name, **fields)
    assert resumed.digest == whole.digest
    lines = (resumed.checkpoint / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]
    assert "reward" not in json.loads(lines[3])  # nothing was sampled again


@pytest.mark.slow
def test_kill_9_at_three_moments_and_the_same_call_again_give_the_same_bytes(
    run, uninterrupted, tmp_path, base_folder, data_dir, profile
):
    whole = run(uninterrupted, "dapo", credit="atrl")
    folder = tmp_path / whole.checkpoint.name
    recipe = json.dumps({"name": "dapo", "data": "geometry3k", "credit": "atrl"})
    training = [recipe, base_folder, data_dir, tmp_path, profile.model_dump_json()]
    with launcher(Path(__file__).parent) as forked:
        # In the first rollout's updates, while its checkpoint is written, once that has its name.
        metrics, checkpoint = folder / "metrics.jsonl", folder / "resume" / "checkpoint-2"
        for awaited, lines, seconds in ((metrics, 1, 0.0), (metrics, 2, 0.05), (checkpoint, 0, 0.0)):
            assert forked("killed_run:killed", 1, awaited, lines, seconds, *training) == [-signal.SIGKILL]
        assert checkpoint.is_dir()
        assert forked("killed_run:trained", 1, *training) == [0]
    assert model_ref(folder).digest == whole.digest


def test_a_finished_run_leaves_a_checkpoint_that_loads_and_returns_at_once_when_asked_again(run, tmp_path):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    progress = []
    first = run(tmp_path, on_progress=lambda done, total: progress.append((done, total)))
    assert progress == [(0, 2), (1, 2), (2, 2)]
    AutoModelForImageTextToText.from_pretrained(first.checkpoint)
    AutoProcessor.from_pretrained(first.checkpoint)
    names = {path.name for path in first.checkpoint.iterdir()}
    assert {"model.safetensors", "config.json", "recipe.yaml", "metrics.jsonl", "done.json"} <= names
    assert not names & {"resume", "unfinished", "training_args.bin"}
    again = run(tmp_path, on_progress=lambda *_: pytest.fail("it was finished"))
    assert again == first


def test_the_record_of_a_run_says_by_which_attention_it_was_computed_and_whose_rows_gave_the_credit(run, uninterrupted):
    result = run(uninterrupted, credit="atrl")
    record = json.loads((result.checkpoint / "done.json").read_text())
    assert record["attention"] == {"implementation": "sdpa", "credit_layers": [0, 1, 2, 3]}
    assert record["passes"] == {"prompts_read": "once in a micro-batch", "old_logprobs": "of the sampler"}


@pytest.mark.parametrize("finetuning", ["full", "lora"])
def test_activations_that_are_computed_again_change_no_weight_and_prompts_are_still_read_once(
    run, uninterrupted, tmp_path, monkeypatch, finetuning
):
    kept = run(uninterrupted, credit="atrl", finetuning=finetuning)
    monkeypatch.setattr("atrl_bench.training.arguments.CHECKPOINTING_TOKENS", 1)
    again = run(tmp_path / "again", credit="atrl", finetuning=finetuning)
    record = json.loads((again.checkpoint / "done.json").read_text())
    assert record["passes"]["prompts_read"] == "once in a micro-batch"
    trained, expected = (load_file(result.checkpoint / "model.safetensors") for result in (again, kept))
    for name, weights in expected.items():
        assert (trained[name] - weights).abs().max() < 1e-6, name


def test_the_digest_does_not_depend_on_how_the_base_was_loaded(run, uninterrupted, tmp_path, monkeypatch):
    from transformers import PreTrainedTokenizerBase

    online = run(uninterrupted)
    save = PreTrainedTokenizerBase.save_pretrained

    def offline(self, *arguments, **options):
        self.init_kwargs |= {"local_files_only": True, "is_local": False}
        return save(self, *arguments, **options)

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", offline)
    assert run(tmp_path / "offline").digest == online.digest


def test_another_seed_gives_other_weights(run, uninterrupted, tmp_path):
    assert run(uninterrupted).digest != run(tmp_path, seed=1).digest


def test_lora_trains_and_leaves_a_plain_checkpoint_with_the_adapter_beside_it(run, tmp_path, base_folder):
    result = run(tmp_path, "grpo", credit="atrl", finetuning="lora", lora_rank=4)
    trained, base = load_file(result.checkpoint / "model.safetensors"), load_file(base_folder / "model.safetensors")
    assert trained.keys() == base.keys()
    assert any(not trained[name].equal(base[name]) for name in base)
    assert (result.checkpoint / "adapter" / "adapter_model.safetensors").is_file()
    adapter = [path.read_text() for path in (result.checkpoint / "adapter").iterdir() if path.suffix != ".safetensors"]
    assert adapter
    assert not any(str(base_folder) in text for text in adapter), "a path of this machine is of no use elsewhere"


def test_the_key_of_a_run_follows_what_changes_its_weights_and_nothing_else(profile):
    recipe = load_recipe("grpo")

    def key(recipe=recipe, base="b", data="d", seed=0):
        return spec_key(run_spec(recipe, profile, base, data, seed))

    assert key() == key(recipe.model_copy(update={"title": "another name in print"}))
    others = {
        key(base="x"),
        key(data="x"),
        key(seed=1),
        key(load_recipe("grpo", credit="atrl")),
        key(load_recipe("dapo")),
    }
    assert len(others | {key()}) == 6

"""Two processes on one training: what they deal out, what they share, and what is left of it in the end."""

import json
import math
import shutil
import signal
from pathlib import Path

import pytest
from forks import launcher
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.training.data import load_training_data
from atrl_bench.training.metrics import read_metrics
from atrl_bench.training.recipe import list_recipes, load_recipe
from atrl_bench.training.trainer import means_of


@pytest.fixture(scope="module")
def forked():
    with launcher(Path(__file__).parent) as launch:
        yield launch


@pytest.fixture
def launch(forked, tmp_path, base_folder, data_dir, profile):
    """Return a function that trains in so many processes, each with a model of its own or all with one between them."""

    def run(kind, folder=data_dir, count=2, out=tmp_path, told=1, **recipe):
        out.mkdir(exist_ok=True)
        recipe = {"data": "geometry3k", **recipe}
        order = [kind, recipe, base_folder, folder, out, profile.model_dump_json(), told]
        assert forked("launched_run:process", count, *order) == [0] * count
        return [json.loads((out / f"process-{rank}.json").read_text()) for rank in range(count)]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("finetuning", ["lora", "full"])
def test_a_model_shared_by_two_processes_is_sampled_by_each_and_saved_whole(launch, base_folder, finetuning):
    first, second = launch("shared", name="grpo", credit="atrl", finetuning=finetuning, most_file_bytes=600_000)
    assert [len(report["rows"]) for report in (first, second)] == [2, 2], "of two rollouts a share each"
    assert first["digest"] == second["digest"]
    checkpoint = Path(first["checkpoint"])
    files = sorted(checkpoint.glob("model-*.safetensors"))
    trained = {name: value for file in files for name, value in load_file(file).items()}
    base = load_file(base_folder / "model.safetensors")
    # A process gathers what one file has, of at most 600,000 bytes, and writes it before it gathers more.
    assert second["files"] == []
    assert len(first["files"]) == len(files) > 3
    assert max(first["files"]) <= 600_000 < sum(value.nbytes for value in base.values()) / 3
    AutoModelForImageTextToText.from_pretrained(checkpoint)
    assert base.keys() == trained.keys()
    assert all(
        trained[name].shape == value.shape and trained[name].dtype == value.dtype for name, value in base.items()
    )
    assert any(not trained[name].equal(base[name]) for name in base)
    if finetuning == "full":
        # The embedding of 575 rows, which two processes do not share evenly, is the head too.
        assert json.loads((checkpoint / "config.json").read_text())["tie_word_embeddings"]
        assert base["model.embed_tokens.weight"].shape[0] % 2 == 1
        assert max(report["apart"] for report in (first, second)) < 1e-4, "after three updates"
    else:
        assert_merged(load_file(checkpoint / "adapter" / "adapter_model.safetensors"), trained, base)
        assert str(base_folder) not in (checkpoint / "adapter" / "adapter_config.json").read_text()


@pytest.mark.slow
def test_a_shared_model_in_bfloat16_keeps_in_float32_what_sums_and_a_part_of_what_is_large(launch, base_folder):
    sizes = {"dtype": "bfloat16", "completions_per_device": 1}  # and so several passes for an update
    reports = launch("shared", name="grpo", credit="atrl", overrides=sizes)
    sizes_of = {name: value.numel() for name, value in load_file(base_folder / "model.safetensors").items()}
    num_weights = sum(sizes_of.values())
    in_layers = sum(size for name, size in sizes_of.items() if name.startswith("model.layers."))
    num_layers = json.loads((base_folder / "config.json").read_text())["text_config"]["num_hidden_layers"]
    for report in reports:
        assert len(report["whole_gradient"]) > 8
        assert set(report["whole_gradient"]) == {0}, "between the passes of an update a device holds its part alone"
        assert set(report["dtypes"]) == {"torch.float32"}, (
            "log-probabilities of the policy, of old and of the reference"
        )
        for model, bytes_of_a_weight in (("policy", 4), ("reference", 2)):
            assert report["units"][model]["FSDPQwen2_5_VLDecoderLayer"] == num_layers
            assert report["held"][model] == pytest.approx(bytes_of_a_weight * num_weights / 2, rel=0.02)
        # As experiments/cost.py estimates it, in bfloat16: all weights while it samples, in passes those outside of
        # layers, here with one layer and the next.
        assert report["gathered"]["sampling"] == pytest.approx(2 * num_weights, rel=0.02)
        outside, layer = num_weights - in_layers, in_layers / num_layers
        assert 2 * (outside + layer) <= report["gathered"]["passes"] < 2.04 * (outside + 2 * layer)
        assert report["sharded"], "the optimiser has its part of each weight, of its gradient and of its moments"
    assert reports[0]["digest"] == reports[1]["digest"]


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes_and_to_the_same_bytes_with_the_same(launch, tmp_path):
    """Stopped inside a rollout, by a signal to one of the processes."""
    recipe = {"name": "grpo", "credit": "atrl", "finetuning": "full"}
    whole = launch("shared", out=tmp_path / "whole", **recipe)
    stopped = launch("shared", out=tmp_path / "two", stop_after=3, **recipe)
    assert [report["code"] for report in stopped] == [75, 75]
    [checkpoint] = (tmp_path / "two").glob("*/resume/checkpoint-*")
    assert checkpoint.name == "checkpoint-3"
    num_weights = sum(value.numel() for value in load_file(Path(whole[0]["checkpoint"]) / "model.safetensors").values())
    written = sum(path.stat().st_size for path in checkpoint.glob("*.distcp"))
    # Weights and two moments, once each, and a head for each tensor; what is left of the rollout lies beside them.
    assert 12 * num_weights <= written < 12 * num_weights + 1_100_000
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    assert launch("shared", out=tmp_path / "two", **recipe)[0]["digest"] == whole[0]["digest"]

    [alone] = launch("shared", out=tmp_path / "one", count=1, **recipe)
    far = distance(alone["checkpoint"], whole[0]["checkpoint"])
    assert far < 0.5 * distance(whole[0]["checkpoint"], whole[0]["base"]), "the rest of its rollout is sampled anew"

    [first] = launch("shared", out=tmp_path / "three", count=1, told=0, stop_after=1, **recipe)
    assert first["code"] == 75
    assert {report["code"] for report in launch("shared", out=tmp_path / "three", stop_after=3, **recipe)} == {75}
    [last] = launch("shared", out=tmp_path / "three", count=1, **recipe)
    assert distance(last["checkpoint"], whole[0]["checkpoint"]) < 0.5 * distance(last["checkpoint"], whole[0]["base"])


# A function at whose n-th call, in one of the processes, it is killed, and the steps that are saved then.
MOMENTS = {
    "sampling": ("atrl_bench.training.loop.sample_groups", 1, 1, []),
    "scoring": ("atrl_bench.training.passes.Passes.score", 2, 0, []),
    "backward": ("atrl_bench.training.trainer.Trainer.backward", 2, 1, []),
    "step": ("torch.optim.AdamW.step", 2, 0, []),
    "writing a checkpoint": ("torch.distributed.checkpoint.FileSystemWriter.write_data", 1, 1, []),
    "dropping the one before": ("shutil.rmtree", 3, 0, [2, 4]),  # the first two clear the way for either checkpoint
    "writing the model": ("atrl_bench.training.saving.save_file", 2, 0, [2, 4]),
    "moving its files": ("os.replace", 3, 0, [2, 4]),
    "the record that it is done": ("atrl_bench.training.run._write_done", 1, 0, [2, 4]),
    "dropping what resuming needs": ("shutil.rmtree", 2, 0, [2, 4]),  # the first clears the way for the model
}


@pytest.mark.slow
def test_a_shared_training_of_which_one_process_or_both_are_killed_in_each_phase_goes_on_to_the_same_bytes(
    forked, base_folder, data_dir, profile, tmp_path
):
    recipe = json.dumps({"name": "grpo", "data": "geometry3k", "credit": "atrl", "finetuning": "full"})

    def run(out, moment=None):
        order = [moment, recipe, base_folder, data_dir, out, profile.model_dump_json()]
        return forked("killed_together:process", 2, *order)

    whole = tmp_path / "whole"
    assert run(whole) == [0, 0]
    for everyone, killed in [(False, tmp_path / "one process"), (True, tmp_path / "both at once")]:
        for phase, (place, number, process, steps) in MOMENTS.items():
            moment = {"place": place, "number": number, "process": process, "everyone": everyone}
            assert -signal.SIGKILL in run(killed, moment), (killed.name, phase)
            saved = killed.glob("*/resume/checkpoint-*")
            assert sorted(int(path.name.removeprefix("checkpoint-")) for path in saved) == steps, (killed.name, phase)
        assert run(killed) == [0, 0]
        assert left_of(killed) == left_of(whole)


def test_a_process_that_hangs_as_it_writes_a_checkpoint_is_named_once_the_others_have_waited_long_enough(
    forked, tmp_path
):
    assert forked("hanging_writer:process", 2, tmp_path) == [1, -signal.SIGTERM]
    assert (tmp_path / "said.txt").read_text().startswith("Process 1 is not done with writing the checkpoint of step 4")


def left_of(out):
    """What a training has left: the digest of its model, its files, and the losses that it wrote down."""
    [folder] = out.iterdir()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    losses = [line["loss"] for line in read_metrics(folder / "metrics.jsonl")]
    return json.loads((folder / "done.json").read_text())["digest"], files, losses


def distance(one, other):
    """Return how far the weights in two folders are apart."""
    left, right = (load_file(Path(folder) / "model.safetensors") for folder in (one, other))
    return sum((left[name] - right[name]).square().sum() for name in left).sqrt().item()


def assert_merged(adapter, trained, base, name="model.layers.0.self_attn.q_proj"):
    """Check one layer by hand: W + alpha / r B A, where alpha is twice the rank."""
    before, after = (weights[f"{name}.weight"] for weights in (base, trained))
    [layer] = [key for key in adapter if key.endswith(f"{name.removeprefix('model.')}.lora_A.weight")]
    change = adapter[layer.replace("lora_A", "lora_B")].flatten(1) @ adapter[layer].flatten(1)
    assert after.allclose(before + 2 * change.view_as(before), atol=1e-6)
    assert not after.equal(before)


@pytest.mark.slow
def test_a_model_shared_by_two_processes_learns_from_images_and_videos_together(launch, mini_world):
    problems = load_training_data("video_r1", mini_world).problems
    assert {bool(problem.videos) for problem in problems} == {True, False}
    first, second = launch("shared", mini_world, name="t_grpo", credit="atrl", data="video_r1")
    assert first["digest"] == second["digest"]


@pytest.mark.slow
def test_adapters_of_a_model_shared_by_two_processes_learn_from_images_and_texts_together(
    launch, tmp_path, base_folder
):
    """A pass over an image goes back to the tower's adapters, and one over a text through as many layers."""
    Image.new("RGB", (56, 28)).save(tmp_path / "shown.png")
    rows = [{"question": f"{n} + 0?", "answer": n} | ({"image": "shown.png"} if n % 2 else {}) for n in range(16)]
    (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, rows)))
    mixed = {"data": str(tmp_path / "mixed.jsonl"), "overrides": {"completions_per_device": 1}}
    # Of the tower's `proj` one is a convolution, whose adapter no process can merge by its own part of the factors.
    adapted = {"finetuning": "lora", "lora_targets": "q_proj,qkv,proj"}
    first, second = launch("shared", name="grpo", **adapted, **mixed)
    assert first["digest"] == second["digest"]
    checkpoint = Path(first["checkpoint"])
    adapter = load_file(checkpoint / "adapter" / "adapter_model.safetensors")
    trained, base = (load_file(folder / "model.safetensors") for folder in (checkpoint, base_folder))
    for name in ("model.layers.0.self_attn.q_proj", "visual.patch_embed.proj"):
        assert_merged(adapter, trained, base, name)


@pytest.mark.slow
def test_two_processes_replace_problems_by_ones_that_neither_has_as_one_process_would(launch):
    reports = launch("apart", name="dapo", overlong_cache_fraction=None)
    for rollout in ("0", "1"):
        drawn = [row for report in reports for key, *rows in report["rows"] if key.startswith(rollout) for row in rows]
        # Four are missing, so eight are drawn, twice. There are sixteen, and none comes twice before all have come.
        assert len(drawn) == 4 + 8 + 8
        assert len(set(drawn)) == 16
    lines = read_metrics(Path(reports[0]["checkpoint"]) / "metrics.jsonl")
    # All are wrong: one response is left of an update, and the process without it says nothing of entropy.
    assert min(line["entropy"] for line in lines) > 5, "nearly the logarithm of all tokens"
    lines = [line for line in lines if "reward" in line]
    counts = ("num_generations", "num_dropped", "num_unfilled")
    assert [[line[f"dynamic_sampling/{name}"] for name in counts] for line in lines] == [[3, 16, 4]] * 2


VARIANTS = [(name, {}) for name in list_recipes()] + [(name, {"credit": "atrl"}) for name in ("grpo", "gspo", "dpo")]


@pytest.mark.slow
def test_every_recipe_has_the_gradient_and_metrics_of_one_process_on_two_of_which_one_has_no_folder(forked, tmp_path):
    """Of each update on a rollout: the same problems, responses, rewards, credit and share of the update."""
    sets = {load_recipe(name).data for name, _ in VARIANTS}
    data = RunDir.at(tmp_path / "world", load_profile("smoke")).provide(*sets)
    found = {}
    for count in (1, 2):
        (out := tmp_path / str(count)).mkdir()
        assert forked("launched_gradients:process", count, VARIANTS, data, out) == [0] * count
        found[count] = {path.stem: load_file(path) for path in out.glob("*.safetensors")}
    assert len(found[1]) == len(VARIANTS)
    assert found[1].keys() == found[2].keys()
    for name, updates in found[1].items():
        assert len(updates) == len(found[2][name]) >= 1
        for number, gradient in updates.items():
            error = (found[2][name][number] - gradient).norm() / gradient.norm()
            assert error < 1e-5, (name, number, error)
    told = {count: told_of_updates(tmp_path / str(count)) for count in found}
    assert len(told[1]) >= len(VARIANTS)
    assert told[2] == pytest.approx(told[1], rel=1e-4, abs=1e-5, nan_ok=True)


def told_of_updates(out):
    """What metrics.jsonl of each training says of each update, but for the time that it took."""
    return {
        (path.parent.name, line["step"], name): value
        for path in out.rglob("metrics.jsonl")
        for line in read_metrics(path)
        for name, value in line.items()
        if name != "elapsed" and not name.startswith("seconds/")
    }


def test_a_count_is_the_sum_over_processes_and_anything_else_the_mean_over_all_tokens_or_responses():
    # Two micro-batches on one process, of 3 and 1 tokens, and one on the other, of 2.
    one = {"entropy": [(1.0, 3.0), (3.0, 1.0)], "credit/num_empty_visual": [(1.0, 1.0), (3.0, 1.0)]}
    other = {"entropy": [(6.0, 2.0)], "credit/num_empty_visual": [(4.0, 1.0)]}
    assert means_of([one, other]) == {"entropy": (1 * 3 + 3 * 1 + 6 * 2) / 6, "credit/num_empty_visual": 8.0}
    # A micro-batch without a token has no mean. An update is skipped by all processes together.
    one = {"entropy": [(math.nan, 0.0), (3.0, 2.0)], "skipped_updates": [(1.0, 1.0)]}
    assert means_of([one, {"skipped_updates": [(1.0, 1.0)]}]) == {"entropy": 3.0, "skipped_updates": 1.0}


def test_what_only_another_process_noted_is_logged_too():
    other = {
        "credit/num_empty_visual": [(5.0, 1.0)],
        "temporal/rewarded": [(0.5, 1.0)],
        "vppo/anchor_auc": [(math.nan, 1.0)],
    }
    assert means_of([{"credit/num_empty_visual": [(1.0, 1.0)]}, other]) == {
        "credit/num_empty_visual": 6.0,
        "temporal/rewarded": 0.5,
        "vppo/anchor_auc": None,
    }

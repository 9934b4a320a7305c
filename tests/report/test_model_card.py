"""A trained model's card, and the checkpoint with it on a hub of this machine."""

import json
import math
import signal
import subprocess
import sys

import pytest
import yaml
from local_hub import NOBODY, Machine, environment
from stored import fill_cell

from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.exports import export, log_of
from atrl_bench.report.frame import frame
from atrl_bench.report.model_card import push
from atrl_bench.results.store import Store
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run_spec import run_spec

SMOKE = load_profile("smoke")


ASKED = "profile smoke; temperature 0.1; at most 64 tokens; 1 answer; three templates"


@pytest.fixture
def run_dir(tmp_path):
    """A folder with one finished training, which was right on three of four problems."""
    run_dir = RunDir.at(tmp_path / "runs", SMOKE)
    with run_dir.open_store() as store:
        key = store.add_run(run_spec(load_recipe("grpo", credit="atrl"), SMOKE, "base", "data", 3))
        folder = run_dir.checkpoints / key
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
        (folder / "model.safetensors").write_bytes(b"weights")
        (folder / "lock").touch()
        (folder / "resume").mkdir()
        (folder / "resume" / "optimizer.pt").write_bytes(b"only for resuming")
        store.finish_run(key, checkpoint=f"checkpoints/{key}", digest="d" * 16, seconds=75.0, summary={})
        decoding = {"repeats": 1, "temperature": 0.1, "top_p": 1.0, "max_new_tokens": 64}
        spec = {"kind": "evaluation", "task": "geoqa_test", "task_version": "1", "split": "test", "judge": None}
        spec |= {"model_name": key, "model_digest": "d" * 16, "decoding": decoding, "limit": None, "profile": "smoke"}
        fill_cell(store, spec | {"run_seed": 0}, "+++-")
    return run_dir, key


def test_a_card_has_the_numbers_their_intervals_and_how_to_redo_them(run_dir):
    run_dir, key = run_dir
    (path,) = export(run_dir, "card")
    assert path == run_dir.root / "exports" / "cards" / key / "README.md"
    _, front, text = path.read_text().split("---\n", 2)
    assert yaml.safe_load(front)["pipeline_tag"] == "image-text-to-text"
    assert "# grpo+atrl, seed 3" in text
    assert "A tiny model of the mini world" in text
    # Three of four: 75 percent. With t = 3.18 of three degrees and a standard error of 1/4, x = t^2 / (4^2 3/16) = 3.38
    # makes the centre (0.75 + x/2) / (1 + x) = 0.557 and the reach sqrt(3/16 x + x^2/4) / (1 + x) = 0.426.
    assert f"| GeoQA (test) | acc@1 | 75.0 | 13.1 to 98.4 | 4 | {ASKED} |" in text
    assert "in 1 min 15 s" in text
    assert yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])["credit"]["rule"] == "atrl"
    assert "atrl-bench train RECIPE --profile smoke" in text


def test_where_a_judge_failed_on_a_fifth_a_card_a_log_and_a_frame_have_no_score(run_dir):
    run_dir, _ = run_dir
    with run_dir.open_store() as store:
        (cell,) = store.cells(kind="evaluation")
        key = fill_cell(store, {**cell.spec, "task": "mathvision_testmini"}, "+" * 40 + "-" * 40 + "j" * 20)
        log = log_of(store, store.cell(key))
        other = {"task": "chartqapro_test", "image": "blank", "grader": "mathruler 0.1.0"}
        fill_cell(store, {**cell.spec, **other}, "----")
    (path,) = export(run_dir, "card")
    text = path.read_text()
    assert f"| MathVision (test) | acc@1 | none: the judge failed | 40.0 to 60.0 | 80 | {ASKED} |" in text
    assert f"| 4 | {ASKED}; pictures blank; graded by mathruler 0.1.0 |" in text
    (scorer,) = log["results"]["scores"]
    values = {name: metric["value"] for name, metric in scorer["metrics"].items()}
    assert values == {"acc@1, lowest": 0.4, "acc@1, highest": 0.6}
    scores = frame(run_dir).set_index("task").value
    assert scores["geoqa_test"] == 75.0
    assert math.isnan(scores["mathvision_testmini"])


def test_a_folder_without_a_training_has_no_card(tmp_path):
    with Store.open(tmp_path / "store.sqlite"), pytest.raises(MissingDataError, match="is a finished training"):
        export(RunDir.at(tmp_path, SMOKE), "card")


def test_under_another_profile_than_its_training_a_model_has_no_card(run_dir):
    run_dir, key = run_dir
    other = RunDir.at(run_dir.root, load_profile("mini"))
    for describe in (lambda: export(other, "card"), lambda: push(key, "me/digits", other)):
        with pytest.raises(InvalidFileError, match="trained under the profile smoke is described under mini"):
            describe()


def test_push_sends_the_checkpoint_and_its_card(run_dir, local_hub, tmp_path):
    run_dir, key = run_dir
    machine = Machine(tmp_path, local_hub)
    folder = str(run_dir.checkpoints / key)  # as `train` prints it
    done = machine.type("push", folder, "me/reader", "--out", str(run_dir.root), "--profile", "smoke")
    assert done.returncode == 0, done.stderr
    repository = local_hub.repositories["model", "me/reader"]
    files = repository.commits[repository.branches["main"]]
    assert set(files) == {"README.md", "config.json", "model.safetensors"}
    assert files["model.safetensors"] == b"weights"
    assert b"grpo+atrl, seed 3" in files["README.md"]
    assert repository.is_private
    assert f"url {local_hub.url}/me/reader private yes files config.json" in " ".join(done.stdout.split())


KILLED = """
import os, signal
from huggingface_hub import get_session
client = type(get_session())
left, send = [int(os.environ["KILLED_AFTER"])], client.send
def counted(*arguments, **options):
    reply = send(*arguments, **options)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return reply
client.send = counted
from atrl_bench.cli import main
main()
"""


def test_a_push_killed_after_any_request_leaves_nothing_half_and_is_made_good(run_dir, local_hub, tmp_path):
    run_dir, key = run_dir
    options = ("push", key, "me/reader", "--out", str(run_dir.root), "--profile", "smoke")
    codes = []
    for number in (1, 3, 4, 99):  # after the repository was made, what may be sent was asked, all was sent
        env = environment(tmp_path / "home", local_hub.url, KILLED_AFTER=str(number))
        done = subprocess.run([sys.executable, "-c", KILLED, *options], env=env, check=False, capture_output=True)
        [repository] = local_hub.repositories.values()
        sent = set(repository.commits[repository.branches["main"]])
        assert sent in (set(), {"README.md", "config.json", "model.safetensors"})
        codes.append(done.returncode)
    assert codes == [-signal.SIGKILL] * 3 + [0], done.stderr
    assert sent


@pytest.mark.full
def test_what_cannot_be_sent_is_said_with_the_next_step(run_dir, local_hub, tmp_path):
    run_dir, key = run_dir
    machine = Machine(tmp_path, local_hub)
    options = ("--out", str(run_dir.root), "--profile", "smoke")
    unknown = machine.type("push", "nothing", "me/reader", *options)
    assert "nothing is no finished training" in " ".join(unknown.stderr.split())
    untrained = machine.type("push", "main_7b:dapo", "me/reader", *options)
    assert "atrl-bench run-table main_7b --rows dapo" in untrained.stderr
    alone = machine.type("push", key, "me/reader", *options, HF_ENDPOINT=NOBODY)
    assert "me/reader did not take the model." in alone.stderr
    assert "Traceback" not in alone.stderr
    assert local_hub.repositories == {}

"""A training by verl, up to the process boundary: what verl is handed, what becomes of the model that it leaves.

In place of verl stands `verl_stand_in`: a program that reads the configuration it is started with and leaves the base
model.
"""

import os
import subprocess
import sys
import time
from functools import partial

import pytest
import yaml
from pyarrow import parquet

from atrl_bench.credit.config import PRESETS
from atrl_bench.errors import AtrlBenchError, InvalidFileError, MissingDataError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.experiments.train_command import train_recipe, verl_preview
from atrl_bench.profiles import load_profile
from atrl_bench.training import verl
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run_spec import run_spec
from atrl_bench.training.verl import PYTHON, require_verl_form


@pytest.fixture
def run_dir(tmp_path):
    profile = load_profile("smoke").sampled_by("verl")
    return RunDir.at(tmp_path / "run", profile)


def test_verls_model_is_taken_and_found_by_its_key(run_dir, verl_stand_in, monkeypatch):
    verl_stand_in()
    monkeypatch.setattr(verl, "_ROWS_AT_ONCE", 3)  # so that the table is written in several pieces
    trained = train_recipe("sapo", {"credit": "atrl"}, run_dir, quiet=True)
    again = train_recipe("sapo", {"credit": "atrl"}, run_dir, quiet=True)
    assert trained.digest == again.digest
    folder = run_dir.root / "checkpoints" / trained.checkpoint.rpartition("/")[2]
    config = yaml.safe_load((folder / "verl" / "verl.yaml").read_text(encoding="utf-8"))
    assert config["token_credit"] == {"rule": "atrl", "config": {}, "seed": 0}
    sizes = load_recipe("sapo").sizes(run_dir.profile)
    rows = parquet.read_table(folder / "verl" / "train.parquet").to_pylist()
    assert len(rows) == sizes.prompts_per_rollout * config["trainer"]["total_training_steps"]
    assert rows[0]["prompt"][0]["content"].count("<image>") == len(rows[0]["images"])
    assert rows[0]["images"][0]["min_pixels"] == sizes.min_pixels


def test_the_preview_has_every_value_filled_in_and_the_command_that_starts_verl(run_dir):
    recipe = load_recipe("dapo", credit={"rule": "atrl", "preset": "literal"})
    preview = verl_preview(recipe, run_dir, 3)
    config, sizes = preview["verl"], recipe.sizes(run_dir.profile)
    assert "$" not in yaml.safe_dump(config)
    assert config["actor_rollout_ref"]["actor"]["optim"]["lr"] == sizes.learning_rate
    assert config["actor_rollout_ref"]["actor"]["clip_ratio_high"] == recipe.clip_high
    assert config["reward"]["reward_kwargs"]["overlong_buffer_cfg"]["len"] < sizes.max_response_tokens
    assert config["token_credit"]["config"] == PRESETS["literal"]
    assert preview["command"].startswith("$ATRL_BENCH_VERL_PYTHON -m verl.trainer.main_ppo --config-name verl")


def test_what_verl_said_last_is_shown_where_it_fails(run_dir, verl_stand_in):
    verl_stand_in(fails=True)
    with pytest.raises(AtrlBenchError, match="CUDA out of memory"):
        train_recipe("sapo", {}, run_dir, quiet=True)


def test_verl_ends_with_its_command_and_the_next_one_waits_until_it_has(tmp_path):
    """A program in verl's place says when it begins and, told to end, takes its time to say that it did."""
    said, python = tmp_path / "said", tmp_path / "python"
    steps = f"import signal, time\nsay = lambda word: open({str(said)!r}, 'a').write(word + '\\n')\n"
    steps += "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), say('ended'), exit(1)))\n"
    python.write_text(f"#!{sys.executable}\n{steps}say('begun')\ntime.sleep(60)\n")
    python.chmod(0o755)
    command = [sys.executable, "-m", "atrl_bench", "train", "sapo", "--rollouts", "verl", "--profile", "smoke"]
    start = partial(subprocess.Popen, [*command, "--out", tmp_path / "run"], env=os.environ | {PYTHON: str(python)})

    def wait_for(words: list[str]) -> None:
        deadline = time.monotonic() + 120
        while not said.is_file() or said.read_text().split() != words:
            assert time.monotonic() < deadline, said.read_text() if said.is_file() else "nothing has begun"
            time.sleep(0.05)

    for words in (["begun"], ["begun", "ended", "begun"]):
        with start() as process:
            wait_for(words)
            process.kill()
    wait_for(["begun", "ended", "begun", "ended"])


def test_without_verls_python_the_next_step_names_it(run_dir, monkeypatch):
    monkeypatch.delenv(PYTHON, raising=False)
    with pytest.raises(MissingDataError) as refused:
        train_recipe("sapo", {}, run_dir, quiet=True)
    assert f"export {PYTHON}=" in refused.value.next_step


def test_a_key_says_that_verl_trained_and_other_keys_are_what_they_were():
    smoke = load_profile("smoke")
    specs = [run_spec(load_recipe("sapo"), profile, "base", "data", 0) for profile in (smoke, smoke.sampled_by("verl"))]
    assert specs[1] == specs[0] | {"engine": {"name": "verl", "version": "0.9.1"}}
    assert "engine" not in specs[0]


@pytest.mark.parametrize("name", ["vppo", "t_grpo", "actor_critic", "reinforce", "step_grpo", "sft_steps", "dpo"])
def test_a_recipe_that_verl_has_no_form_of_is_refused(name):
    with pytest.raises(InvalidFileError, match="cannot be trained by verl"):
        require_verl_form(load_recipe(name), load_profile("paper"))

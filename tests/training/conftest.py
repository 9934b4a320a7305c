"""A tiny world for the trainer: the random model in a folder, sixteen problems, a grader that finds half correct."""

import contextlib
import itertools
import stat
import sys
import zlib
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from atrl_bench.training.rewards.registry import ANSWER_REWARDS, AnswerReward
from atrl_bench.training.verl import PYTHON

SIZES = {
    "num_rollouts": 2,
    "prompts_per_rollout": 4,
    "group_size": 4,
    "updates_per_rollout": 2,
    "completions_per_device": 4,
    "max_response_tokens": 10,
    "num_frames": 4,  # one step in time is then two seconds: with eight it would be one, which is also the default
    "learning_rate": 1e-3,
    "save_every_rollouts": 1,
}


class CoinPool:
    """Grades by a hash of the response: no model is needed to get both kinds."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def grade_many(self, answers):
        states = ("correct", "wrong")
        return [SimpleNamespace(state=states[zlib.crc32(response.encode()) % 2]) for response, _ in answers]


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory, tiny_model, mini_processor):
    folder = tmp_path_factory.mktemp("base")
    tiny_model.save_pretrained(folder)
    mini_processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Sixteen rows in the columns of hiyouga/geometry3k, with the ground truth of the mini world."""
    import pyarrow
    import pyarrow.parquet
    from PIL import Image

    from atrl_bench.mini.benchmarks.dataset import png

    rng = np.random.default_rng(0)
    rows = []
    for place in range(16):
        image = png(Image.fromarray(rng.integers(0, 255, (56, 56, 3), dtype=np.uint8)))
        row = {"images": [{"bytes": image, "path": f"{place}.png"}], "problem": f"<image>What is {place}?"}
        rows.append({**row, "answer": str(place), "transcription": str(place % 10)})
    folder = tmp_path_factory.mktemp("data")
    (folder / "geometry3k").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "geometry3k" / "train-00000-of-00001.parquet")
    return folder


@pytest.fixture(scope="session")
def profile():
    from atrl_bench.profiles import load_profile

    smoke = load_profile("smoke")
    return smoke.model_copy(update={"training": smoke.training.model_copy(update=SIZES)})


def grade_by_coin(patch):
    for module in ("rollouts", "pairs"):
        patch.setattr(f"atrl_bench.training.{module}.GradingPool", CoinPool)


@pytest.fixture
def coin_grader(monkeypatch):
    grade_by_coin(monkeypatch)


@pytest.fixture(scope="module")
def coin_grader_of_all_tests():
    with pytest.MonkeyPatch.context() as patch:
        grade_by_coin(patch)
        yield


@pytest.fixture
def open_trainer(tmp_path, base_folder, profile):
    """Return a function that builds the trainer of a recipe, ready to `.train()`; all are closed after the test."""
    from atrl_bench.training.run import build_trainer, load_inputs

    numbers = itertools.count()
    with contextlib.ExitStack() as opened:

        def build(recipe, data_dir, profile=profile):
            inputs = load_inputs(tmp_path / f"run{next(numbers)}", recipe, profile, str(base_folder), data_dir, 0)
            trainer = opened.enter_context(build_trainer(inputs))
            trainer.profile = profile
            trainer.lines = []  # of metrics, one a step
            trainer.listeners.append(trainer.lines.append)
            return trainer

        yield build


@pytest.fixture
def make_trainer(open_trainer, data_dir, profile, coin_grader):
    """Return a factory of trainers on the sixteen rows."""
    from atrl_bench.training.recipe import load_recipe

    def make(name, *, profile=profile, **overrides):
        return open_trainer(load_recipe(name, data="geometry3k", **overrides), data_dir, profile)

    return make


@pytest.fixture
def run(base_folder, data_dir, profile, coin_grader):
    """Return a function that trains into a folder, on the sixteen rows where it is not told another `data_dir`."""
    from atrl_bench.training.recipe import load_recipe
    from atrl_bench.training.run import train

    def start(out, name="grpo", *, profile=profile, data_dir=data_dir, seed=0, on_progress=None, **overrides):
        recipe = load_recipe(name, **overrides)
        where = {"base_model": base_folder, "data_dir": data_dir, "out": out}
        return train(recipe, profile=profile, **where, seed=seed, on_progress=on_progress)

    return partial(start, data="geometry3k")


class CoinReward:
    """Half of the responses are right, by a hash of their text."""

    __name__ = "accuracy"

    def __init__(self, pool):
        pass

    def __call__(self, completions, **_):
        return [float(zlib.crc32(completion[0]["content"].encode()) % 2) for completion in completions]


@pytest.fixture
def coin_rewards(coin_grader, monkeypatch):
    monkeypatch.setitem(ANSWER_REWARDS, "typed", AnswerReward(CoinReward, 0.0, "a coin"))


@pytest.fixture
def make_video_trainer(open_trainer, mini_world, coin_rewards):
    """Return a factory of trainers on the rows about videos and images."""
    from atrl_bench.training.recipe import load_recipe

    return lambda name="t_grpo", **overrides: open_trainer(load_recipe(name, **overrides), mini_world)


# Runs that are killed ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pull_the_plug():
    """Return a function that starts a training and stops it once it tells of this rollout.

    A rollout is told before its checkpoint is written: the last checkpoint is that of the rollout before.
    """

    def pull(start, rollout):
        def stop(done, _total):
            if done == rollout:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            start(on_progress=stop)

    return pull


STAND_IN = """#!{python}
import pathlib, shutil, sys, yaml
assert sys.argv[1:5] == ["-m", "verl.trainer.main_ppo", "--config-name", "verl"], sys.argv
config = yaml.safe_load((pathlib.Path(sys.argv[6]) / "verl.yaml").read_text())
print("reading", config["data"]["train_files"])
if {fails}:
    sys.exit("CUDA out of memory")
trainer = config["trainer"]
model = pathlib.Path(trainer["default_local_dir"]) / f"global_step_{{trainer['total_training_steps']}}"
(model / "actor").mkdir(parents=True)
shutil.copytree(config["actor_rollout_ref"]["model"]["path"], model / "actor" / "huggingface")
"""


@pytest.fixture
def verl_stand_in(tmp_path, monkeypatch):
    """A function that puts a program in verl's place; it may fail."""

    def put(*, fails=False):
        program = tmp_path / "python"
        program.write_text(STAND_IN.format(python=sys.executable, fails=fails), encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv(PYTHON, str(program))

    return put

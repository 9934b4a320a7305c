"""What one run folder trained another one takes from the checkpoints' store, and does not train."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from atrl_bench.errors import AtrlBenchError, EndpointError, MissingDataError
from atrl_bench.experiments.jobs import LAUNCH_SPEC, TrainingJob
from atrl_bench.experiments.run_dir import RunDir, read_settings
from atrl_bench.experiments.train_command import train_recipe
from atrl_bench.models.checkpoint_store import CheckpointStore
from atrl_bench.models.local import DONE
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe


@pytest.fixture
def folder(tmp_path):
    """A function from a name to a run folder that keeps its checkpoints in one store with the others."""

    def run_dir(name: str, **changes) -> RunDir:
        there = RunDir.at(tmp_path / name, load_profile("smoke").sampled_by("verl"))
        return replace(there, **({"checkpoint_store": CheckpointStore(f"{tmp_path}/kept")} | changes))

    return run_dir


def train(run_dir: RunDir):
    return train_recipe("sapo", {}, run_dir, quiet=True)


def test_another_run_folder_takes_the_checkpoint_and_does_not_train(folder, verl_stand_in, tmp_path):
    verl_stand_in()
    trained = train(folder("one"))
    key = Path(trained.checkpoint).name
    assert json.loads((tmp_path / "kept" / key / DONE).read_text())["digest"] == trained.digest
    verl_stand_in(fails=True)
    taken = train(folder("two"))
    assert (taken.digest, taken.seconds) == (trained.digest, trained.seconds)
    assert Path(taken.checkpoint) == tmp_path / "two" / "checkpoints" / key
    with pytest.raises(AtrlBenchError, match="CUDA out of memory"):
        train(folder("three", checkpoint_store=None))


def test_a_later_command_fetches_what_the_folder_lost_and_remembers_where_from(folder, verl_stand_in, tmp_path):
    verl_stand_in()
    trained = train(folder("one"))
    shutil.rmtree(trained.checkpoint)
    again = RunDir.at(tmp_path / "one", load_profile("smoke"))
    assert again.checkpoint_store == CheckpointStore(f"{tmp_path}/kept")
    with again.open_store() as store:
        (run,) = store.runs()
        assert again.checkpoint_of(store, run.key) == Path(trained.checkpoint)
    assert (Path(trained.checkpoint) / "model.safetensors").is_file()


def test_a_store_that_is_named_later_gets_what_is_trained_already(folder, verl_stand_in, tmp_path):
    verl_stand_in()
    trained = train(folder("one", checkpoint_store=None))
    assert read_settings(tmp_path / "one").checkpoint_store is None
    verl_stand_in(fails=True)
    assert train(folder("one")) == trained
    assert folder("one").checkpoint_store.digest_of(Path(trained.checkpoint).name) == trained.digest


def test_a_store_with_another_checkpoint_of_that_training_is_refused(folder, verl_stand_in, tmp_path):
    verl_stand_in()
    trained = train(folder("one"))
    key = Path(trained.checkpoint).name
    (tmp_path / "kept" / key / DONE).write_text('{"digest": "0000000000000000"}')
    shutil.rmtree(trained.checkpoint)
    with pytest.raises(MissingDataError, match="is not the one of this run folder") as caught:
        train(folder("one"))
    assert caught.value.why == f"Its digest is 0000000000000000, that of the training here {trained.digest}."


def test_nothing_is_trained_for_a_store_that_cannot_be_used(folder, verl_stand_in, tmp_path):
    verl_stand_in(fails=True)
    run_dir = folder("one", checkpoint_store=CheckpointStore("s4://bucket"))
    with pytest.raises(EndpointError, match="Checkpoints cannot be kept in s4://bucket"):
        train(run_dir)
    assert not run_dir.checkpoints.exists()
    assert read_settings(tmp_path / "one").checkpoint_store is None


def test_the_processes_of_a_launch_are_told_of_the_store(folder):
    run_dir = folder("one")
    job = TrainingJob(run_dir=run_dir, name="sapo", recipe=load_recipe("sapo"), spec={}, seed=0, base_model="mini")
    read = LAUNCH_SPEC.validate_json(LAUNCH_SPEC.dump_json(job))
    assert isinstance(read, TrainingJob)
    assert (read.recipe, read.run_dir.checkpoint_store) == (job.recipe, run_dir.checkpoint_store)

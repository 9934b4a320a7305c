"""Checkpoints on a disk that is full, and those that are damaged."""

import os
import resource

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import CheckpointException

from atrl_bench.errors import StoreError
from atrl_bench.training.checkpoints import Checkpoints, last_checkpoint, saving

LARGE = {"weight": torch.zeros(100_000)}  # 400 kB


def save(folder, *, state=None, rest=None, beside=lambda _: None):
    checkpoints = Checkpoints(folder)
    checkpoints.begin(4, state or {}, rest, beside)
    checkpoints.finish()


def save_weights(folder):
    save_file(LARGE, folder / "model.safetensors")


@saving("the trained model")
def save_model(folder):
    save_weights(folder)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda folder: save(folder, state=LARGE), "the checkpoint of step 4"),
        (lambda folder: save(folder, rest=LARGE), "the checkpoint of step 4"),
        (lambda folder: save(folder, beside=save_weights), "the checkpoint of step 4"),
        (save_model, "the trained model"),
    ],
    ids=["state", "rest of a rollout", "beside", "model"],
)
def test_where_files_cannot_grow_one_error_says_so_whichever_library_writes(write, what, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StoreError) as refused:
            write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (refused.value.what, refused.value.why) == (f"Cannot write {what}.", "File too large.")
    assert refused.value.next_step == "allow larger files (ulimit -f), then the same command again: it resumes"


def test_what_processes_fail_of_together_is_the_first_ones_error_which_a_launch_writes_down():
    failed = CheckpointException("write", {1: (RuntimeError("unexpected pos 704 vs 598"), [])})
    with pytest.raises(RuntimeError, match="unexpected pos"), saving("it"):
        raise failed


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: cut(folder / "__0_0.distcp"),
        lambda folder: (folder / ".metadata").unlink(),
        lambda folder: cut(folder / "rest.pt"),
        lambda folder: (folder / "model.safetensors").unlink(),
    ],
    ids=["state", "names of the state", "rest of a rollout", "beside"],
)
def test_a_damaged_checkpoint_is_named_with_the_command_that_takes_it_away(damage, tmp_path):
    save(tmp_path, state=LARGE, rest=[LARGE], beside=save_weights)
    damage(checkpoint := tmp_path / "checkpoint-4")
    with pytest.raises(StoreError) as refused:
        Checkpoints(tmp_path).read(checkpoint, LARGE, lambda folder: load_file(folder / "model.safetensors"))
    assert refused.value.what == f"Cannot read the checkpoint {checkpoint}."
    assert f"rm -r {checkpoint}" in refused.value.next_step


def test_a_folder_beside_the_checkpoints_that_is_none_is_neither_resumed_from_nor_removed(tmp_path):
    (tmp_path / "checkpoint-old").mkdir()
    assert last_checkpoint(tmp_path) is None
    save(tmp_path)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-4"
    assert (tmp_path / "checkpoint-old").is_dir()

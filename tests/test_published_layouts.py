"""Every benchmark and training set, read in the layout in which its publisher has it: from a folder and from the hub."""

from __future__ import annotations

import json
import shutil

import hub_layouts
import pytest

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.source import data_digest, is_here, media_files
from atrl_bench.evaluation.tasks import find_task, list_tasks
from atrl_bench.training.data import load_training_data
from atrl_bench.training.sets import TRAINING_SETS, folder_of
from atrl_bench.training.source import data_digest as training_digest

# Two benchmarks have no repository of their own; what they are made from is tested below and with their tasks.
ON_HUB = [task.name for task in list_tasks() if task.hub_id is not None]
PLAIN = [name for name in ON_HUB if not find_task(name).shows_videos]
WITH_VIDEOS = [name for name in ON_HUB if find_task(name).shows_videos]


def ids(task, data_dir) -> list[str]:
    rows = load_rows(task, data_dir)
    return [task.code.problem_id(row) for row in rows.remove_columns(_images(rows))]


def _images(rows) -> list[str]:
    return [name for name, kind in rows.features.items() if type(kind).__name__ == "Image"]


@pytest.mark.parametrize("name", ON_HUB)
def test_every_benchmark_is_read_from_a_folder_that_hf_download_made(name, mini_world, tmp_path) -> None:
    task = find_task(name)
    data_dir = hub_layouts.local_dir(mini_world, task.folder, tmp_path)
    hub_layouts.unpack_by_hand(tmp_path / task.folder)
    assert is_here(task, data_dir)
    assert sorted(ids(task, data_dir)) == sorted(ids(task, mini_world))
    assert len(media_files(task, data_dir)) == len(media_files(task, mini_world))


@pytest.mark.parametrize(
    "name", ["mathvision_testmini", "mathverse_testmini", "wemath_testmini", "mmmu_val", "mmvu_val"]
)
def test_file_names_and_folders_of_a_layout_are_no_part_of_the_key(name, mini_world, tmp_path) -> None:
    task = find_task(name)
    data_dir = hub_layouts.local_dir(mini_world, task.folder, tmp_path)
    assert data_digest(task, data_dir) == data_digest(task, mini_world)


def test_the_full_vsi_bench_is_both_of_its_tables_and_an_older_download_its_one(mini_world, tmp_path) -> None:
    task = find_task("vsi_bench")
    data_dir = hub_layouts.local_dir(mini_world, "vsi_bench", tmp_path)
    hub_layouts.unpack_by_hand(data_dir / "vsi_bench")
    assert len(load_rows(task, data_dir)) == 10 + 14
    old = next((mini_world / "vsi_bench" / "full").glob("*.parquet"))
    shutil.copy(old, data_dir / "vsi_bench" / "test-00000-of-00001.parquet")
    assert len(load_rows(task, data_dir)) == 24  # what lies beside the two tables is not read a second time
    (data_dir / "vsi_bench" / "test_pruned.parquet").unlink()
    with pytest.raises(MissingDataError, match="A part of the VSI-Bench data"):
        load_rows(task, data_dir)
    (data_dir / "vsi_bench" / "test_debiased.parquet").unlink()
    assert data_digest(task, data_dir) == data_digest(task, mini_world)


def test_mmmu_is_read_as_its_authors_have_it_too_a_folder_for_each_subject(mini_world, tmp_path) -> None:
    task = find_task("mmmu_val")
    data_dir = hub_layouts.local_dir(mini_world, "mmmu", tmp_path, ["MMMU/MMMU"])
    assert sorted(ids(task, data_dir)) == sorted(ids(task, mini_world))
    subjects = set(load_rows(task, data_dir)["subject"])
    assert len(subjects) > 1
    assert subjects == set(load_rows(task, mini_world)["subject"])


@pytest.mark.parametrize("name", ["vsi_bench", "video_mmmu_adaptation", "mega_bench_core"])
def test_archives_that_are_still_packed_are_named_with_what_to_do(name, mini_world, tmp_path) -> None:
    task = find_task(name)
    data_dir = hub_layouts.local_dir(mini_world, task.folder, tmp_path)
    with pytest.raises(MissingDataError, match="None of the") as caught:
        data_digest(task, data_dir)
    assert "not unpacked" in caught.value.why
    assert ".zip" in caught.value.why
    assert caught.value.next_step.startswith(f"cd {data_dir / task.folder}")


def test_of_the_two_repositories_of_mmvu_the_one_that_is_missing_is_named(mini_world, tmp_path) -> None:
    task = find_task("mmvu_val")
    rows_alone = hub_layouts.local_dir(mini_world, "mmvu", tmp_path / "rows", ["lmms-eval/MMVU"])
    (rows_alone / "mmvu" / "videos.zip").unlink()
    with pytest.raises(MissingDataError, match="None of the 12 files") as caught:
        data_digest(task, rows_alone)
    assert "yale-nlp/MMVU" in caught.value.why
    videos_alone = hub_layouts.local_dir(mini_world, "mmvu", tmp_path / "videos", ["yale-nlp/MMVU"])
    with pytest.raises(MissingDataError, match="There is no MMVU data") as caught:
        data_digest(task, videos_alone)
    assert "lmms-eval/MMVU" in caught.value.why


# Training sets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINING_SETS)
def test_every_training_set_is_read_from_a_folder_that_hf_download_made(name, mini_world, tmp_path) -> None:
    data_dir = hub_layouts.local_dir(mini_world, folder_of(name), tmp_path)
    hub_layouts.unpack_by_hand(tmp_path / folder_of(name))
    ours, theirs = load_training_data(name, mini_world), load_training_data(name, data_dir)
    assert theirs.left_out == {}
    assert [problem.answer for problem in theirs.problems] == [problem.answer for problem in ours.problems]
    assert theirs.example(0, run_seed=0)["prompt"] == ours.example(0, run_seed=0)["prompt"]
    shown = [[image.tobytes() for image in data.problems[0].decoded()] for data in (ours, theirs)]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", ["geometry3k", "geoqa_8k"])
def test_the_key_of_a_training_set_is_that_of_its_contents(name, mini_world, tmp_path) -> None:
    data_dir = hub_layouts.local_dir(mini_world, name, tmp_path)
    assert training_digest(name, data_dir) == training_digest(name, mini_world)


def test_the_copy_of_virl39k_with_embedded_images_is_read_as_well(mini_world, tmp_path) -> None:
    data_dir = hub_layouts.local_dir(mini_world, "virl39k", tmp_path, ["Kun-Xiang/ViRL39K"])
    data = load_training_data("virl39k", data_dir)
    assert [p.problem_id for p in data.problems] == [
        p.problem_id for p in load_training_data("virl39k", mini_world).problems
    ]
    (data_dir / "virl39k" / "data" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(MissingDataError, match="A part of training set virl39k"):
        training_digest("virl39k", data_dir)


@pytest.mark.parametrize(
    ("name", "archive"), [("virl39k", "images.zip"), ("video_r1", "videos_part1.zip"), ("r1_vl", "images.zip")]
)
def test_a_training_set_whose_archives_are_packed_says_which_to_unpack(name, archive, mini_world, tmp_path) -> None:
    data_dir = hub_layouts.local_dir(mini_world, folder_of(name), tmp_path)
    with pytest.raises(MissingDataError, match=r"rows of \w+ cannot be used") as caught:
        load_training_data(name, data_dir)
    assert caught.value.why == "64 no such file"
    assert caught.value.next_step.startswith("unpack ")
    assert archive in caught.value.next_step


def test_a_training_row_that_names_a_file_elsewhere_is_left_out_and_named(tmp_path, mini_world) -> None:
    data_dir = hub_layouts.local_dir(mini_world, "r1_vl", tmp_path)
    hub_layouts.unpack_by_hand(data_dir / "r1_vl")
    table = data_dir / "r1_vl" / "R1-VL-10K.json"
    rows = json.loads(table.read_text())
    shutil.copy(data_dir / "r1_vl" / rows[0]["image_path"], tmp_path / "secret.png")
    before = training_digest("r1_vl", data_dir)
    table.write_text(json.dumps([*rows * 2, {**rows[0], "image_path": "../secret.png"}]))
    data = load_training_data("r1_vl", data_dir)
    assert data.left_out == {"file outside the set's folder: ../secret.png": 1}
    secret = training_digest("r1_vl", data_dir)
    (tmp_path / "secret.png").write_bytes(b"other")
    assert training_digest("r1_vl", data_dir) == secret != before  # it is not even read for the key

"""Every benchmark and training set in the layout of its publisher: from a folder and from the hub."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import hub_layouts
import local_hub as hubs
import pyarrow.parquet
import pytest

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.source import data_digest, is_here, media_files, parts
from atrl_bench.evaluation.tasks import find_task, list_tasks
from atrl_bench.mini import CODE_WORDS
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


def test_half_of_a_local_copy_is_not_taken_for_the_benchmark(mini_world, tmp_path) -> None:
    task = find_task("infovqa_val")
    data_dir = hub_layouts.local_dir(mini_world, "infovqa", tmp_path)
    (tmp_path / "infovqa" / "InfographicVQA" / "validation-00001-of-00002.parquet").unlink()
    assert not is_here(task, data_dir)
    with pytest.raises(MissingDataError, match="A part of the InfoVQA data") as caught:
        load_rows(task, data_dir)
    assert "validation-00000-of-00002.parquet" in caught.value.why


def test_an_image_that_is_a_file_is_shown_from_the_dataset_s_folder_and_from_nowhere_else(mini_world, tmp_path) -> None:
    task = find_task("geoqa_test")
    rows = pyarrow.parquet.read_table(mini_world / "geoqa" / "test-00000-of-00001.parquet").to_pylist()[:3]
    (tmp_path / "geoqa" / "images").mkdir(parents=True)
    for path in (tmp_path / "geoqa" / "images" / "0.png", tmp_path / "secret.png"):
        path.write_bytes(rows[0]["image"]["bytes"])
    for row, path in zip(rows, ("images/0.png", "../secret.png", str(tmp_path / "secret.png")), strict=True):
        row["image"] = {"bytes": None, "path": path}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "geoqa" / "test.parquet")
    loaded = load_rows(task, tmp_path)
    assert task.code.images(loaded[0])[0].size > (0, 0)
    for index in (1, 2):
        with pytest.raises(FileNotFoundError, match="outside this folder: "):
            task.code.images(loaded[index])


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


# From the hub --------------------------------------------------------------------------------------------------------

READ = """
import json, sys
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.source import data_digest, is_here
from atrl_bench.evaluation.tasks import find_task
read = {}
for name in NAMES:
    task = find_task(name)
    before, digest = is_here(task, None), data_digest(task, None)
    still = is_here(task, None)
    rows = load_rows(task, None)
    read[name] = [before, still, is_here(task, None), len(rows), digest, data_digest(task, None)]
print(json.dumps(read))
"""


def serve(hub, world, names=None) -> None:
    for hub_id, files in hub_layouts.repositories(world).items():
        if names is None or hub_id in names:
            hub.add("dataset", hub_id, files)


def test_a_benchmark_has_one_key_on_the_hub_in_its_cache_and_in_a_folder(local_hub, mini_world, tmp_path) -> None:
    serve(local_hub, mini_world)
    program = READ.replace("NAMES", repr(PLAIN))
    first = hubs.run(program, tmp_path / "home", local_hub.url)
    local_hub.sent.clear()
    offline = hubs.run(program, tmp_path / "home", hubs.NOBODY, HF_HUB_OFFLINE="1")
    assert local_hub.sent == []
    for name in PLAIN:
        task = find_task(name)
        data_dir = hub_layouts.local_dir(mini_world, task.folder, tmp_path / "data")
        key, num_rows = data_digest(task, data_dir), len(load_rows(task, data_dir))
        # Not here, and its key asks for no table; here once it is read; and the key is the folder's each time.
        assert first[name][2:] == [True, num_rows, key, key]
        assert offline[name] == [True, True, True, num_rows, key, key]
    assert first["mathvista_testmini"][:2] == [False, False]


FETCH = """
import json
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation import made
from atrl_bench.evaluation.source import data_digest, is_here, parquet_files
from atrl_bench.evaluation.tasks import find_task
done = {}
for name in NAMES:
    task = find_task(name)
    try:
        data_digest(task, None)
        refused = None
    except MissingDataError as error:
        refused = [error.what, error.why, error.next_step]
    here = is_here(task, None)
    made.fetch(task)
    done[name] = [refused, here, is_here(task, None), data_digest(task, None)]
print(json.dumps(done))
"""


def test_videos_are_fetched_and_unpacked_and_then_have_the_key_of_a_folder(local_hub, mini_world, tmp_path) -> None:
    serve(local_hub, mini_world)
    program = FETCH.replace("NAMES", repr(WITH_VIDEOS))
    first = hubs.run(program, tmp_path / "home", local_hub.url)
    again = hubs.run(program, tmp_path / "home", hubs.NOBODY, HF_HUB_OFFLINE="1")
    for name in WITH_VIDEOS:
        task = find_task(name)
        data_dir = hub_layouts.local_dir(mini_world, task.folder, tmp_path / "data")
        hub_layouts.unpack_by_hand(data_dir / task.folder)
        assert first[name][2:] == [True, data_digest(task, data_dir)]
        assert again[name] == [None, True, *first[name][2:]]
    refused, here = first["vsi_bench"][:2]
    assert not here
    assert "arkitscenes.zip, scannet.zip, scannetpp.zip of the hub's dataset nyu-visionx/VSI-Bench" in refused[1]
    assert refused[2].startswith("atrl-bench fetch vsi_bench")
    assert "videos.zip" not in local_hub.sent  # MMVU's come as files from the other repository


TRAIN = """
import json
from atrl_bench.errors import MissingDataError
from atrl_bench.training.data import load_training_data, stream_problems
from atrl_bench.training.source import data_digest, fetch, is_here
done = {}
for name in NAMES:
    before = is_here(name, None)
    try:
        early = data_digest(name, None)
    except MissingDataError as error:
        early = error.next_step
    fetch(name)
    data = load_training_data(name, None)
    streamed = sum(1 for _ in stream_problems(name, None))
    done[name] = [before, early, is_here(name, None), data_digest(name, None), len(data.problems), streamed]
print(json.dumps(done))
"""


def test_a_training_set_has_one_key_on_the_hub_fetched_and_in_a_folder(local_hub, mini_world, tmp_path) -> None:
    serve(local_hub, mini_world)
    program = TRAIN.replace("NAMES", repr(list(TRAINING_SETS)))
    first = hubs.run(program, tmp_path / "home", local_hub.url)
    again = hubs.run(program, tmp_path / "home", hubs.NOBODY, HF_HUB_OFFLINE="1")
    for name, described in TRAINING_SETS.items():
        data_dir = hub_layouts.local_dir(mini_world, folder_of(name), tmp_path / "data")
        hub_layouts.unpack_by_hand(data_dir / folder_of(name))
        key, count = training_digest(name, data_dir), len(load_training_data(name, data_dir).problems)
        assert first[name][2:] == [True, key, count, count]
        assert again[name] == [True, key, True, key, count, count]
        if described.media:  # also of the second table over the videos of the first
            assert first[name][1].startswith(f"atrl-bench fetch {name}")
        else:
            assert first[name][:2] == [False, key]


MAKE = """
import json, sys
from atrl_bench.evaluation.made import make
from atrl_bench.evaluation.published import published
from atrl_bench.evaluation.source import data_digest, is_here
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.tasks import find_task
task = find_task("geoqa_test")
made = published("geoqa").made
questions = made.sources[0].model_copy(update={"url": URL, "sha256": SHA256})
made = made.model_copy(update={"sources": (questions, *made.sources[1:])})
before = is_here(task, None)
folder = make(task, made)
make(task, made)
rows = load_rows(task, None)
shown = task.code.images(rows[0])[0].size
after, path, key = is_here(task, None), folder / "test.parquet", data_digest(task, None)
print(json.dumps([before, after, str(path), key, len(rows), shown]))
"""


def test_the_geoqa_test_is_made_from_its_two_public_sources(local_hub, mini_world, tmp_path) -> None:
    questions, geo170k = hub_layouts.geoqa_sources(mini_world)
    local_hub.add("dataset", "Luckyjhg/Geo170K", geo170k)
    local_hub.add("dataset", "somebody/questions", {"geoqa_test_prompts.jsonl": questions})
    url = f"{local_hub.url}/datasets/somebody/questions/resolve/main/geoqa_test_prompts.jsonl"
    sha256 = hashlib.sha256(questions).hexdigest()
    program = MAKE.replace("URL", repr(url)).replace("SHA256", repr(sha256))
    before, after, path, key, count, size = hubs.run(program, tmp_path / "home", local_hub.url)
    assert (before, after, count) == (False, True, 24)
    info = find_task("geoqa_test")
    assert size == list(info.code.images(load_rows(info, mini_world)[0])[0].size)
    assert "qa_tuning.json" not in local_hub.sent
    assert local_hub.sent.count("geoqa_test_prompts.jsonl") == 1  # made once
    # The table in a data folder has the same key, whatever it is called there.
    (tmp_path / "data" / "geoqa").mkdir(parents=True)
    shutil.copy(path, tmp_path / "data" / "geoqa" / "test-00000-of-00001.parquet")
    assert data_digest(info, tmp_path / "data") == key
    assert not list(Path(path).parent.glob(".ingredients"))
    # So has one that another version of the Parquet writer made of the same rows, and other rows have another.
    table = pyarrow.parquet.read_table(path)
    copy = tmp_path / "data" / "geoqa" / "test-00000-of-00001.parquet"
    pyarrow.parquet.write_table(table, copy, compression="gzip", row_group_size=5)
    assert data_digest(info, tmp_path / "data") == key
    pyarrow.parquet.write_table(table.slice(1), copy)
    assert data_digest(info, tmp_path / "data") != key


def test_other_questions_than_the_published_ones_are_refused(local_hub, mini_world, tmp_path) -> None:
    local_hub.add("dataset", "somebody/questions", {"q.jsonl": b"{}"})
    program = """
import json
from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.made import make
from atrl_bench.evaluation.published import Ingredient, Made
from atrl_bench.evaluation.tasks import find_task
try:
    make(find_task("geoqa_test"), Made(function="join", writes="t", sources=(Ingredient(url=URL, sha256="0" * 64),)))
except InvalidFileError as error:
    print(json.dumps(error.what))
"""
    url = f"{local_hub.url}/datasets/somebody/questions/resolve/main/q.jsonl"
    assert "is not the file that it was" in hubs.run(program.replace("URL", repr(url)), tmp_path, local_hub.url)


def test_what_fetch_needs_is_said_for_every_dataset() -> None:
    made = {task.folder for task in list_tasks() if task.hub_id is None} - set(CODE_WORDS)
    assert made == {"geoqa", "chartmimic"}
    assert {part.hub_id for name in ("geoqa_test", "chartmimic_direct_600") for part in parts(find_task(name))} == {
        "Luckyjhg/Geo170K",
        "ChartMimic/ChartMimic",
    }
    assert {"vsi_bench", "video_mmmu", "mmvu", "mega_bench"} == {find_task(name).folder for name in WITH_VIDEOS}

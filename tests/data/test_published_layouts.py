"""Every benchmark and training set in the layout of its publisher: from a folder and from the hub."""

import hashlib
import json
import shutil
from pathlib import Path

import hub_layouts
import local_hub as hubs
import pyarrow.parquet
import pytest

from atrl_bench.data.dataset import data_digest, is_here, parts_of
from atrl_bench.data.fetch import _download
from atrl_bench.data.sets import TRAINING_SETS
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.tasks import find_task, list_tasks
from atrl_bench.mini import CODE_WORDS
from atrl_bench.training.data import load_training_data

# Two benchmarks have no repository of their own; what they are made from is tested below and with their tasks.
BENCHMARKS = {task.name: task for task in list_tasks() if task.hub_id is not None}
ON_HUB = BENCHMARKS | TRAINING_SETS


def ids(dataset, data_dir) -> list[str]:
    """The names of its rows, read as an evaluation or a training reads them."""
    if dataset.name in TRAINING_SETS:
        data = load_training_data(dataset.name, data_dir)
        assert data.left_out == {}
        data.example(0, run_seed=0)
        return [problem.problem_id for problem in data.problems]
    rows = load_rows(dataset, data_dir)
    pictures = [name for name, kind in rows.features.items() if type(kind).__name__ == "Image"]
    return [dataset.code.problem_id(row) for row in rows.remove_columns(pictures)]


SAME_BYTES = ("mathvision_testmini", "mathverse_testmini", "wemath_testmini", "mmmu_val", "mmvu_val", "geometry3k")


@pytest.mark.parametrize("name", [*SAME_BYTES, "geoqa_8k"])
def test_file_names_and_folders_of_a_layout_are_no_part_of_the_key(name, mini_world, tmp_path) -> None:
    data_dir = hub_layouts.local_dir(mini_world, ON_HUB[name].folder, tmp_path)
    assert data_digest(ON_HUB[name], data_dir) == data_digest(ON_HUB[name], mini_world)


def test_the_full_vsi_bench_is_both_of_its_tables_and_an_older_download_its_one(mini_world, tmp_path) -> None:
    task = find_task("vsi_bench")
    data_dir = hub_layouts.local_dir(mini_world, "vsi_bench", tmp_path)
    hub_layouts.unpack_by_hand(data_dir / "vsi_bench")
    assert len(load_rows(task, data_dir)) == 10 + 14
    old = next((mini_world / "vsi_bench" / "full").glob("*.parquet"))
    shutil.copy(old, data_dir / "vsi_bench" / "test-00000-of-00001.parquet")
    assert len(load_rows(task, data_dir)) == 24  # what lies beside the two tables is not read a second time
    (data_dir / "vsi_bench" / "test_pruned.parquet").unlink()
    with pytest.raises(MissingDataError, match="A part of VSI-Bench in"):
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


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("vsi_bench", "scannet.zip"),
        ("video_mmmu_adaptation", "Art.zip"),
        ("mega_bench_core", "data.zip"),
        ("virl39k", "images.zip"),
        ("video_r1", "videos_part1.zip"),
        ("r1_vl", "images.zip"),
    ],
)
def test_archives_that_are_still_packed_are_named_with_what_to_do(name, archive, mini_world, tmp_path) -> None:
    dataset = ON_HUB[name]
    data_dir = hub_layouts.local_dir(mini_world, dataset.folder, tmp_path)
    with pytest.raises(MissingDataError, match="None of the") as caught:
        data_digest(dataset, data_dir)
    assert "not unpacked" in caught.value.why
    assert archive in caught.value.next_step
    assert caught.value.next_step.startswith(f"cd {data_dir / dataset.folder}")


@pytest.mark.parametrize("name", ["virl39k", "video_r1", "r1_vl"])
def test_no_training_begins_over_archives_that_are_still_packed(name, mini_world, tmp_path) -> None:
    data_dir = hub_layouts.local_dir(mini_world, ON_HUB[name].folder, tmp_path)
    with pytest.raises(MissingDataError, match=r"rows of \w+ cannot be used") as caught:
        load_training_data(name, data_dir)
    assert caught.value.why == "64 no such file (the first is row 1)"
    assert "unpack" in caught.value.next_step


def test_half_of_a_local_copy_is_not_taken_for_the_benchmark(mini_world, tmp_path) -> None:
    task = find_task("infovqa_val")
    data_dir = hub_layouts.local_dir(mini_world, "infovqa", tmp_path)
    (tmp_path / "infovqa" / "InfographicVQA" / "validation-00001-of-00002.parquet").unlink()
    assert not is_here(task, data_dir)
    with pytest.raises(MissingDataError, match="A part of InfoVQA in") as caught:
        load_rows(task, data_dir)
    assert "validation-00000-of-00002.parquet" in caught.value.why


def test_of_the_two_repositories_of_mmvu_the_one_that_is_missing_is_named(mini_world, tmp_path) -> None:
    task = find_task("mmvu_val")
    rows_alone = hub_layouts.local_dir(mini_world, "mmvu", tmp_path / "rows", ["lmms-eval/MMVU"])
    (rows_alone / "mmvu" / "videos.zip").unlink()
    with pytest.raises(MissingDataError, match="None of the 12 files") as caught:
        data_digest(task, rows_alone)
    assert "videos/*/*.mp4 of the hub's dataset yale-nlp/MMVU" in caught.value.why
    assert "atrl-bench fetch mmvu_val" in caught.value.next_step
    assert not is_here(task, rows_alone)
    videos_alone = hub_layouts.local_dir(mini_world, "mmvu", tmp_path / "videos", ["yale-nlp/MMVU"])
    with pytest.raises(MissingDataError, match="There is no table of MMVU in") as caught:
        data_digest(task, videos_alone)
    assert "lmms-eval/MMVU" in caught.value.why


def test_the_copy_of_virl39k_with_embedded_images_is_read_as_well(mini_world, tmp_path) -> None:
    data_dir = hub_layouts.local_dir(mini_world, "virl39k", tmp_path, ["Kun-Xiang/ViRL39K"])
    data = load_training_data("virl39k", data_dir)
    assert [p.problem_id for p in data.problems] == [
        p.problem_id for p in load_training_data("virl39k", mini_world).problems
    ]
    (data_dir / "virl39k" / "data" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(MissingDataError, match="A part of training set virl39k"):
        data_digest(TRAINING_SETS["virl39k"], data_dir)


def test_a_training_row_that_names_a_file_elsewhere_is_left_out_and_named(tmp_path, mini_world) -> None:
    data_dir = hub_layouts.local_dir(mini_world, "r1_vl", tmp_path)
    hub_layouts.unpack_by_hand(data_dir / "r1_vl")
    table = data_dir / "r1_vl" / "R1-VL-10K.json"
    rows = json.loads(table.read_text())
    shutil.copy(data_dir / "r1_vl" / rows[0]["image_path"], tmp_path / "secret.png")
    before = data_digest(TRAINING_SETS["r1_vl"], data_dir)
    table.write_text(json.dumps([*rows * 2, {**rows[0], "image_path": "../secret.png"}]))
    data = load_training_data("r1_vl", data_dir)
    assert data.left_out == {"file outside the set's folder: ../secret.png": 1}
    secret = data_digest(TRAINING_SETS["r1_vl"], data_dir)
    (tmp_path / "secret.png").write_bytes(b"other")
    assert data_digest(TRAINING_SETS["r1_vl"], data_dir) == secret != before  # it is not even read for the key


# From the hub --------------------------------------------------------------------------------------------------------

BRING = """
import json
from atrl_bench.data.dataset import data_digest, is_here, table_files
from atrl_bench.data.fetch import fetch
from atrl_bench.data.sets import TRAINING_SETS
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.training.data import load_training_data, stream_problems
done = {}
for name in NAMES:
    dataset = TRAINING_SETS.get(name) or find_task(name)
    before = is_here(dataset, None)
    try:
        early = data_digest(dataset, None)
    except MissingDataError as error:
        early = [error.what, error.why, error.next_step]
    still = is_here(dataset, None)
    fetch(dataset)
    if name in TRAINING_SETS:
        count = len(load_training_data(name, None).problems)
        assert count == sum(1 for _ in stream_problems(name, None))
    else:
        count = len(load_rows(dataset, None))
    done[name] = [before, early, still, is_here(dataset, None), data_digest(dataset, None), count]
print(json.dumps(done))
"""


def test_a_dataset_has_one_key_on_the_hub_fetched_and_in_a_folder(local_hub, mini_world, tmp_path) -> None:
    for hub_id, files in hub_layouts.repositories(mini_world).items():
        local_hub.add("dataset", hub_id, files)
    program = BRING.replace("NAMES", repr(list(ON_HUB)))
    first = hubs.run(program, tmp_path / "home", local_hub.url)
    sent = list(local_hub.sent)
    again = hubs.run(program, tmp_path / "home", hubs.NOBODY, HF_HUB_OFFLINE="1")
    assert local_hub.sent == sent
    for name, dataset in ON_HUB.items():
        data_dir = hub_layouts.local_dir(mini_world, dataset.folder, tmp_path / "data")
        hub_layouts.unpack_by_hand(data_dir / dataset.folder)
        assert is_here(dataset, data_dir)
        key, names = data_digest(dataset, data_dir), ids(dataset, data_dir)
        assert sorted(names) == sorted(ids(dataset, mini_world))
        before, early, still, *fetched = first[name]
        assert fetched == [True, key, len(names)]
        assert again[name] == [True, key, True, True, key, len(names)]
        if not dataset.names_files:  # its key asks for no table
            assert (before, early) == (still, key)
        elif isinstance(early, list):  # not so the second one over the same archives
            assert (before, still) == (False, False)
            assert early[2].startswith(f"atrl-bench fetch {name}")
    assert first["mathvista_testmini"][0] is first["virl39k"][0] is False
    assert first["video_r1_cot"][1] == first["video_r1_cot"][4]
    assert "arkitscenes.zip, scannet.zip, scannetpp.zip of the hub's dataset nyu-v" in first["vsi_bench"][1][1]
    # MMVU's videos come as files from the other repository; what is no part of a split is not asked for.
    others = ("videos.zip", "DocVQA/validation-00000-of-00001.parquet", "open/test-00000-of-00001.parquet", "README.md")
    assert not set(others) & set(local_hub.sent)


MAKE = """
import json, sys
from dataclasses import replace
from atrl_bench.data.dataset import data_digest, is_here, laid_out_folder
from atrl_bench.data.fetch import fetch
from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.data import load_rows
from atrl_bench.evaluation.tasks import find_task
task = find_task("geoqa_test")
made = task.publication.made
questions = made.sources[0].model_copy(update={"url": URL, "sha256": SHA256})
made = made.model_copy(update={"sources": (questions, *made.sources[1:])})
task = replace(task, publication=task.publication.model_copy(update={"made": made}))
before = is_here(task, None)
try:
    fetch(task)
except InvalidFileError as error:
    print(json.dumps(error.what))
    sys.exit()
fetch(task)
rows = load_rows(task, None)
shown = task.code.images(rows[0])[0].size
after, path, key = is_here(task, None), laid_out_folder(task) / "test.parquet", data_digest(task, None)
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
    url = f"{local_hub.url}/datasets/somebody/questions/resolve/main/q.jsonl"
    program = MAKE.replace("URL", repr(url)).replace("SHA256", repr("0" * 64))
    assert "is not the file that it was" in hubs.run(program, tmp_path, local_hub.url)


def test_an_address_whose_answer_breaks_off_is_named_with_the_next_step(local_hub, tmp_path) -> None:
    local_hub.add("dataset", "somebody/questions", {"q.jsonl": b"half of it"}).cut["q.jsonl"] = 4
    with pytest.raises(MissingDataError, match=r"q\.jsonl does not answer") as caught:
        _download(f"{local_hub.url}/datasets/somebody/questions/resolve/main/q.jsonl", None, tmp_path)
    assert "same command again" in caught.value.next_step


def test_what_fetch_needs_is_said_for_every_dataset() -> None:
    made = {task.folder for task in list_tasks() if task.hub_id is None} - set(CODE_WORDS)
    assert made == {"geoqa", "chartmimic"}
    assert {part.hub_id for name in ("geoqa_test", "chartmimic_direct_600") for part in parts_of(find_task(name))} == {
        "Luckyjhg/Geo170K",
        "ChartMimic/ChartMimic",
    }
    with_videos = {task.folder for task in BENCHMARKS.values() if task.names_files}
    assert with_videos == {"vsi_bench", "video_mmmu", "mmvu", "mega_bench"}

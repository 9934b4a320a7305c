"""The generated twins of Video-R1's two tables."""

from pathlib import PurePosixPath

import numpy as np
import pytest

from atrl_bench.mini.digits import NUM_TRAIN_SCANS
from atrl_bench.mini.training_sets import TRAINING_SETS
from atrl_bench.mini.videos import Scene

COLUMNS = "problem_id problem data_type problem_type options process solution path data_source"


@pytest.fixture(scope="module", params=["video_r1", "video_r1_cot"])
def dataset(request):
    return TRAINING_SETS[request.param]


@pytest.fixture(scope="module")
def rows(dataset):
    return dataset.rows(400, np.random.default_rng(0))


def scene(row):
    return Scene.named(PurePosixPath(row["path"]).stem.rpartition("sum-")[2])


def test_the_columns_are_those_of_the_real_table_and_the_ground_truth(dataset, rows):
    assert [*rows[0]] == [*dataset.features(rows)] == [*COLUMNS.split(), "transcription"]


def test_every_sort_of_answer_comes_about_videos_and_some_rows_are_about_images(rows):
    about_video = [row for row in rows if row["data_type"] == "video"]
    assert {row["problem_type"] for row in rows} == {"multiple choice", "numerical", "OCR", "regression", "free-form"}
    assert {row["problem_type"] for row in about_video} == {"multiple choice", "numerical", "OCR", "regression"}
    assert len(rows) - len(about_video) == len(rows) // 8


def test_the_digits_are_in_order_of_time_and_from_training_scans(rows):
    for row in rows:
        if row["data_type"] == "video":
            shown = scene(row)
            assert row["transcription"] == " ".join(str(digit) for digit in shown.readings)
            assert max(shown.scans) < NUM_TRAIN_SCANS


def test_a_lettered_answer_names_the_option_that_the_chain_works_out(rows):
    lettered = [row for row in rows if row["options"]]
    assert lettered
    for row in lettered:
        letter = row["solution"].removeprefix("<answer>").removesuffix("</answer>")
        assert row["options"]["ABCD".index(letter)].startswith(f"{letter}. ")
        assert len(set(row["options"])) == 4


def test_only_the_supervised_set_has_chains_and_half_of_them_read_before_they_work_out(dataset, rows):
    if dataset.name == "video_r1":
        assert {row["process"] for row in rows} == {""}
        return
    chains = [row["process"].removeprefix("<think>").removesuffix("</think>") for row in rows]
    read = [(chain, row) for chain, row in zip(chains, rows, strict=True) if chain]
    assert 0.4 < len(read) / len(rows) < 0.6
    assert all(chain.startswith(f"The image shows {row['transcription']}. ") for chain, row in read)


def test_files_are_named_once_and_are_what_the_rows_are_about(dataset):
    rows = dataset.rows(16, np.random.default_rng(0))
    files = dict(dataset.files(rows))
    assert set(files) == {row["path"] for row in rows}
    assert sum(path.endswith(".mp4") for path in files) == 14
    [film] = {content for path, content in files.items() if path == rows[0]["path"]}
    assert film == scene(rows[0]).mp4()

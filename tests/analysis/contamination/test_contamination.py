"""Planted duplicates are found, each in its kind; problems that only sound alike are not counted."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw

from atrl_bench.analysis.contamination.overlap import Contamination, overlap, overlap_counts
from atrl_bench.analysis.contamination.search import OTHER_PICTURE, SAME_PICTURE, SAME_QUESTION, TEXT_ALONE
from atrl_bench.cli.printing import text_of
from atrl_bench.errors import UnknownNameError
from atrl_bench.experiments.plan import set_digest
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.table_run import overlap_note

PROFILE = load_profile("smoke")
LONG = "As shown in the figure, AB is tangent to circle O at point B, and angle A = {}, then angle C is equal to ()"


def picture(seed: int) -> Image.Image:
    random = np.random.default_rng(seed)
    page = Image.new("RGB", (200, 150), "white")
    pen = ImageDraw.Draw(page)
    for start, end in zip(random.integers(10, 140, (6, 2)), random.integers(10, 140, (6, 2)), strict=True):
        pen.line([*start.tolist(), *end.tolist()], fill="black", width=2)
    return page


def encoded(page: Image.Image, kind: str = "PNG") -> dict[str, Any]:
    buffer = io.BytesIO()
    page.save(buffer, kind, **({"quality": 60} if kind == "JPEG" else {}))
    return {"bytes": buffer.getvalue(), "path": None}


def write(folder: Path, train: list[tuple[str, list[dict[str, Any]]]], test: list[tuple[str, dict[str, Any]]]) -> Path:
    """Write a training set and a GeoQA test in their own columns."""
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    train_schema = pa.schema(
        {"qid": pa.string(), "question": pa.string(), "answer": pa.string(), "image": pa.list_(image)}
    )
    train_rows = [
        {"qid": f"t{i}", "question": q, "answer": "1", "image": images} for i, (q, images) in enumerate(train)
    ]
    test_schema = pa.schema({"question": pa.string(), "ground_truth": pa.string(), "image": image})
    test_rows = [{"question": q, "ground_truth": "1", "image": cell} for q, cell in test]
    for name, rows, schema in (
        ("virl39k/train.parquet", train_rows, train_schema),
        ("geoqa/test.parquet", test_rows, test_schema),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / name)
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> tuple[dict[str, Any], Path]:
    """Six test problems, of which the first four are in the training data in one way or another."""
    page = picture(1)
    smaller = page.resize((100, 75))
    folder = write(
        tmp_path_factory.mktemp("planted"),
        train=[
            (LONG.format("36.0").upper().replace(" ", "  "), [encoded(picture(0))]),  # 0: case and spaces
            (LONG.format("40"), [encoded(smaller, "JPEG")]),  # 1: resized and re-encoded
            ("How many lines are there?", [encoded(picture(2))]),  # 2: the picture, another question
            (LONG.format(r"$55^\circ$") + " A. 1 B. 2 C. 3", []),  # 3: a text without a picture
            (LONG.format("62"), [encoded(picture(40))]),  # 4: the text, another picture
            ("Find the sum.", [encoded(picture(50))]),
            ("Find the sum.", [encoded(picture(51))]),
            ("Something broken", [{"bytes": b"no picture", "path": None}]),
        ],
        test=[
            (LONG.format("36.0"), encoded(picture(0))),
            (LONG.format("40.0"), encoded(page)),
            ("What is the length of the longest line?", encoded(picture(2))),
            (LONG.format("55.0"), encoded(picture(3))),
            (LONG.format("62.0"), encoded(picture(4))),
            ("Find the sum.", encoded(picture(5))),
            ("Find the difference of the two angles.", encoded(picture(6))),
        ],
    )
    run = folder / "run"
    return overlap("virl39k", ["geoqa_test"], RunDir.at(run, PROFILE, folder)).tasks[0], folder


def test_every_planted_problem_is_found_in_its_kind(planted):
    record, _ = planted
    assert (record.num_problems, record.num_train, record.num_unreadable_pictures) == (7, 8, 1)
    assert record.num_overlapping == 4, "a text with another picture is not counted"
    assert record.counts == {SAME_QUESTION: 2, SAME_PICTURE: 1, TEXT_ALONE: 1, OTHER_PICTURE: 2}
    pairs = {pair.test: pair for pair in record.pairs}
    assert {test: (pair.train, pair.kind) for test, pair in pairs.items()} == {
        "0": ("t0", SAME_QUESTION),
        "1": ("t1", SAME_QUESTION),
        "2": ("t2", SAME_PICTURE),
        "3": ("t3", TEXT_ALONE),
    }
    assert pairs["0"].picture == 0
    assert 0 < pairs["1"].picture <= 0.1


def test_the_text_report_fits_eighty_columns_and_says_what_was_found(planted):
    found = Contamination((planted[0],))
    text = text_of(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "geoqa_test (7 problems) in virl39k (8)" in text
    assert "57.14 %" in text  # 4 of 7
    assert json.loads(json.dumps(found.document())) == found.document()


def test_a_table_reads_the_counts_until_the_data_change(planted):
    record, folder = planted
    run_dir = RunDir.at(folder / "run", PROFILE, folder)
    counts = overlap_counts(run_dir, "virl39k", ["geoqa_test"])["geoqa_test"]
    assert counts is not None
    assert counts["num_overlapping"] == record.num_overlapping
    assert overlap_note(PROFILE.option, "virl39k", {"geoqa_test": counts}) == (
        "Also in the training data virl39k, by text and picture: 4 of 7 problems of geoqa_test."
    )


def test_data_nobody_has_searched_name_the_command(tmp_path):
    folder = write(tmp_path, [("Find x.", [encoded(picture(0))])], [("Find y.", encoded(picture(1)))])
    run_dir = RunDir.at(tmp_path / "run", PROFILE, folder)
    assert overlap_counts(run_dir, "virl39k", ["geoqa_test"])["geoqa_test"] is None
    command = f"atrl-bench overlap virl39k geoqa_test --profile {PROFILE.name}"
    assert overlap_note(PROFILE.option, "virl39k", {"geoqa_test": None}).endswith(command)
    overlap("virl39k", ["geoqa_test"], run_dir)
    write(tmp_path, [("Find z.", [encoded(picture(2))])], [("Find y.", encoded(picture(1)))])
    set_digest.cache_clear()  # as another command begins
    assert overlap_counts(run_dir, "virl39k", ["geoqa_test"])["geoqa_test"] is None


@pytest.mark.parametrize("content", ["", '{"a": {"vers', "[3]", "damaged"])
def test_a_damaged_memory_is_as_good_as_none_and_is_written_anew(tmp_path, content):
    folder = write(tmp_path, [("Find x.", [encoded(picture(0))])], [("Find x.", encoded(picture(0)))])
    run_dir = RunDir.at(tmp_path / "run", PROFILE, folder)

    def search():
        return list(overlap("virl39k", ["geoqa_test"], run_dir).tasks)

    [record] = search()
    path = run_dir.root / "overlap.json"
    path.write_text(content if content != "damaged" else json.dumps({record.data: "damaged"}))
    assert overlap_counts(run_dir, "virl39k", ["geoqa_test"])["geoqa_test"] is None
    assert search() == [record]
    assert overlap_counts(run_dir, "virl39k", ["geoqa_test"])["geoqa_test"]["num_overlapping"] == 1


def test_an_unknown_training_set_names_the_known_ones(tmp_path):
    with pytest.raises(UnknownNameError, match="virl39k"):
        overlap("virl38k", ["geoqa_test"], RunDir.at(tmp_path, PROFILE))


def test_the_mini_world_has_shared_wordings_and_no_shared_picture(tmp_path):
    record = overlap("virl39k", ["geoqa_test"], RunDir.at(tmp_path, PROFILE)).tasks[0]
    assert record.num_overlapping == 0
    assert record.counts[OTHER_PICTURE] > 0


def test_a_generated_training_set_of_a_world_is_searched_like_any_other(tmp_path):
    run_dir = RunDir.at(tmp_path, PROFILE)
    assert overlap_counts(run_dir, "code_words", ["code_words_test"])["code_words_test"] is None
    overlap("code_words", ["code_words_test"], run_dir)
    assert (
        overlap_counts(run_dir, "code_words", ["code_words_test"])["code_words_test"]["num_overlapping"] == 0
    )  # other scans


def test_a_picture_is_compared_where_a_video_is_shown_beside_it(tmp_path):
    picture(0).save(tmp_path / "a.png")
    (tmp_path / "walk.mp4").touch()
    row = {"question": "What differs?", "image": "a.png", "video": "walk.mp4", "answer": "1"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    folder = write(tmp_path, [("Who walks?", [encoded(picture(0))])], [("Find y.", encoded(picture(1)))])
    own = str(tmp_path / "mine.jsonl?video=video")
    record = overlap("virl39k", [own], RunDir.at(tmp_path / "run", PROFILE, folder)).tasks[0]
    assert (record.counts[SAME_PICTURE], record.num_unreadable_pictures) == (1, 0)
    other = overlap(own, ["geoqa_test"], RunDir.at(tmp_path / "run", PROFILE, folder)).tasks[0]
    assert (other.num_train, other.num_unreadable_pictures) == (1, 0)


def test_a_benchmark_is_in_itself(tmp_path):
    folder = write(tmp_path, [("Find x.", [])], [(LONG.format(i), encoded(picture(i))) for i in range(5)])
    record = overlap("geoqa_test", ["geoqa_test"], RunDir.at(tmp_path, PROFILE, folder)).tasks[0]
    assert record.counts[SAME_QUESTION] == record.num_problems == 5


def test_streaming_a_training_set_gives_its_rows_in_order_over_files_and_row_groups(tmp_path):
    from atrl_bench.training.data import stream_problems

    folder = write(tmp_path, [(f"Question {i}", [encoded(picture(0))]) for i in range(7)], [("?", encoded(picture(1)))])
    path = folder / "virl39k" / "train.parquet"
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table.slice(0, 5), folder / "virl39k" / "train-0.parquet", row_group_size=2)
    pq.write_table(table.slice(5), folder / "virl39k" / "train-1.parquet")
    assert [problem.question for problem in stream_problems("virl39k", folder)] == [f"Question {i}" for i in range(7)]

"""Training rows: the columns of the three sets, bad rows, and prompts as the evaluation writes them."""

from __future__ import annotations

import io

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.evaluation.prompts import choose_template, render
from atrl_bench.training.data import data_digest, gold_answer, load_training_data


def png(size=(56, 56)):
    file = io.BytesIO()
    Image.new("RGB", size, "white").save(file, "PNG")
    return {"bytes": file.getvalue(), "path": "a.png"}


def write(folder, name, rows):
    (folder / name).mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / name / "train-0.parquet")
    return folder


@pytest.mark.parametrize("name", ["virl39k", "geometry3k", "geoqa_8k"])
def test_every_training_set_of_the_mini_world_becomes_rows(mini_world, name):
    data = load_training_data(name, mini_world)
    assert len(data.problems) > 0
    assert data.left_out == {}
    example = data.example(0, run_seed=0)
    assert [part["type"] for part in example["prompt"][0]["content"]] == ["image"] * len(example["images"]) + ["text"]
    assert "<image>" not in example["prompt"][0]["content"][-1]["text"]
    assert "\\boxed" not in example["answer"]
    assert "<answer>" not in example["answer"]
    assert example["transcription"].replace(" ", "").isdigit()


def test_a_prompt_is_the_evaluations_template_drawn_from_seed_and_problem(tmp_path):
    rows = [{"qid": "q7", "problem": "<image>How many?", "answer": "3", "images": [png()]}]
    data = load_training_data("virl39k", write(tmp_path, "virl39k", rows))
    for seed in range(5):
        text = data.example(0, seed)["prompt"][0]["content"][-1]["text"]
        assert text == render("How many?", choose_template(seed, "q7"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{7}", "7"),
        ("<answer> 45° </answer>", "45°"),
        ("$\\boxed{\\frac{1}{2}}$", "\\frac{1}{2}"),
        (" B ", "B"),
    ],
)
def test_the_gold_answer_loses_its_wrapping_and_nothing_else(text, answer):
    assert gold_answer(text) == answer


def test_bad_rows_are_left_out_and_counted_by_reason(tmp_path):
    good = {"images": [png()], "problem": "?", "answer": "1"}
    rows = [good] * 300 + [
        {"images": [{"bytes": b"no picture", "path": "a.png"}], "problem": "?", "answer": "1"},
        {"images": [], "problem": "?", "answer": "1"},
        {"images": [png()], "problem": "?", "answer": ""},
    ]
    data = load_training_data("geometry3k", write(tmp_path, "geometry3k", rows))
    assert len(data.problems) == 300
    assert data.left_out == {"undecodable image": 1, "no image": 1, "no answer": 1}


def test_more_than_one_percent_of_broken_images_is_an_error(tmp_path):
    broken = {"images": [{"bytes": b"no picture", "path": "a.png"}], "problem": "?", "answer": "1"}
    rows = [{"images": [png()], "problem": "?", "answer": "1"}] * 50 + [broken]
    with pytest.raises(MissingDataError, match="1 of 51 rows"):
        load_training_data("geometry3k", write(tmp_path, "geometry3k", rows))


def test_a_picture_of_enormous_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    rows = [{"images": [png((10, 10))], "problem": "?", "answer": "1"}] * 200
    rows.append({"images": [png((40, 40))], "problem": "?", "answer": "1"})
    data = load_training_data("geometry3k", write(tmp_path, "geometry3k", rows))
    assert data.left_out == {"undecodable image": 1}


def test_prompts_that_are_too_long_are_left_out(tmp_path, mini_processor):
    rows = [
        {"images": [png()], "problem": "?", "answer": "1"},
        {"images": [png()], "problem": "What is the sum? " * 40, "answer": "1"},
    ]
    data = load_training_data("geometry3k", write(tmp_path, "geometry3k", rows))
    kept = data.without_long_prompts(mini_processor, 100)
    assert [problem.question for problem in kept.problems] == ["?"]
    assert kept.left_out == {"prompt too long": 1}


def test_the_length_of_a_prompt_is_counted_as_the_processor_makes_it(tmp_path, mini_processor):
    rows = [{"images": [png((112, 56))], "problem": "What is the sum?", "answer": "1"}]
    data = load_training_data("geometry3k", write(tmp_path, "geometry3k", rows))
    lengths = []
    for seed in range(20):
        prompt = data.example(0, seed)["prompt"]
        text = mini_processor.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        lengths.append(len(mini_processor(text=[text], images=[data.problems[0].decoded()])["input_ids"][0]))
    longest = max(lengths)
    assert data.without_long_prompts(mini_processor, longest).left_out == {}
    with pytest.raises(MissingDataError):
        data.without_long_prompts(mini_processor, longest - 1)


def test_a_missing_folder_column_or_set_says_so(tmp_path):
    with pytest.raises(MissingDataError, match=r"train\*\.parquet"):
        load_training_data("geometry3k", tmp_path)
    with pytest.raises(MissingDataError, match="no column images or image"):
        load_training_data("geometry3k", write(tmp_path, "geometry3k", [{"problem": "?", "answer": "1"}]))
    with pytest.raises(UnknownNameError, match="Did you mean geometry3k"):
        load_training_data("geometry", tmp_path)


def test_the_digest_of_the_data_follows_its_bytes(tmp_path):
    row = {"images": [png()], "problem": "?", "answer": "1"}
    folders = [tmp_path / str(i) for i in range(3)]
    for folder, answer in zip(folders, ("1", "1", "2"), strict=True):
        folder.mkdir()
        write(folder, "geometry3k", [{**row, "answer": answer}])
    digests = [data_digest("geometry3k", folder) for folder in folders]
    assert digests[0] == digests[1] != digests[2]
    assert data_digest("geometry3k", None) == "hub:hiyouga/geometry3k"

"""Images and videos where a question marks them, from the row to the model's tokens."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from atrl_bench.models.templates import TEMPLATES, render
from atrl_bench.training.data import TrainingProblem, load_training_data
from atrl_bench.training.multimodal import read_prompt, with_media

IMAGE, VIDEO = {"type": "image"}, {"type": "video"}
COMPARE = "Compare <image> with <image>."


def words(text):
    return {"type": "text", "text": text}


def png(width):
    file = io.BytesIO()
    Image.new("RGB", (width, 56), "white").save(file, "PNG")
    return {"bytes": file.getvalue(), "path": "a.png"}


def row(problem, num_images=1, **more):
    return {"problem": problem, "answer": "3", "images": [png(56 * (1 + n)) for n in range(num_images)], **more}


@pytest.fixture
def rows_of_a_set(tmp_path):
    def load(*rows):
        (tmp_path / "geometry3k").mkdir()
        table = pyarrow.Table.from_pylist(list(rows))
        pyarrow.parquet.write_table(table, tmp_path / "geometry3k" / "train-0.parquet")
        return load_training_data("geometry3k", tmp_path)

    return load


def problem(question, images=0, videos=0):
    return TrainingProblem("1", question, "3", images=(b"",) * images, videos=("a.mp4",) * videos)


def test_each_mark_within_a_question_becomes_its_image_at_that_place(rows_of_a_set):
    [loaded] = rows_of_a_set(row(COMPARE, 2)).problems
    asks = "\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert loaded.content(0) == [words("Compare "), IMAGE, words(" with "), IMAGE, words("." + asks)]


@pytest.mark.parametrize("question", ["<image>How many?", " <image>\n<image> How many?", "How many?"])
def test_images_that_open_a_question_stand_before_the_template_as_those_without_marks_do(question, rows_of_a_set):
    [loaded] = rows_of_a_set(row(question, 2)).problems
    for template in range(len(TEMPLATES)):
        assert loaded.content(template) == [IMAGE, IMAGE, words(render("How many?", template))]


def test_images_keep_their_order_and_those_that_the_marks_do_not_reach_come_first():
    assert problem("A <image> B", images=3).content(0)[:4] == [IMAGE, IMAGE, words("A "), IMAGE]


def test_a_mark_of_a_video_is_the_videos_place():
    assert problem("Before <video> after", videos=1).content(0)[:2] == [words("Before "), VIDEO]
    assert problem("Is <image> in it?", images=1, videos=1).content(0)[:3] == [VIDEO, words("Is "), IMAGE]


def test_a_row_with_a_mark_and_no_image_for_it_is_left_out_and_counted(rows_of_a_set):
    data = rows_of_a_set(row(COMPARE, 1), row("Is <video> long?", 1), row(COMPARE, 2), row("<image>?", 1))
    assert [len(kept.images) for kept in data.problems] == [2, 1]
    assert data.left_out == {"more marks than images": 2}


def test_the_prompt_of_a_pair_has_its_images_in_place_and_no_template():
    pair = replace(problem(COMPARE, images=2), chosen="yes", rejected="no")
    assert pair.content(0) == [words("Compare "), IMAGE, words(" with "), IMAGE, words(".")]


def test_the_model_reads_the_first_image_at_the_first_mark_and_the_second_at_the_second(rows_of_a_set, mini_processor):
    data = rows_of_a_set(row(COMPARE, 2))
    example = data.example(0, run_seed=0)
    messages = with_media(example["prompt"], example["images"], example["videos"])
    ids, visual = read_prompt(mini_processor, messages, torch.float32)
    assert visual["image_grid_thw"].tolist() == [[1, 4, 4], [1, 4, 8]]
    # Four patches are a token: the first image has four tokens, the second eight.
    image = "<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>"
    wide_image = image.replace("<|image_pad|>" * 4, "<|image_pad|>" * 8)
    assert f"Compare {image} with {wide_image}." in mini_processor.tokenizer.decode(ids)


def test_a_prompt_with_images_in_place_is_counted_as_the_processor_makes_it(rows_of_a_set, mini_processor):
    data = rows_of_a_set(row(COMPARE, 2))
    lengths = []
    for seed in range(20):
        example = data.example(0, seed)
        messages = with_media(example["prompt"], example["images"], example["videos"])
        lengths.append(len(read_prompt(mini_processor, messages, torch.float32)[0]))
    assert data.without_long_prompts(mini_processor, max(lengths)).left_out == {}

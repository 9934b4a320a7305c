"""Training rows: the columns of the sets, bad rows, and prompts as the evaluation writes them, images in place."""

import json
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from fake_backend import picture
from PIL import Image

from atrl_bench.data.dataset import data_digest
from atrl_bench.data.own import gold_answer
from atrl_bench.data.sets import find_set
from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.mini.videos import encode
from atrl_bench.models.templates import TEMPLATES, choose_template, render
from atrl_bench.results.records import Gold
from atrl_bench.training.data import TrainingProblem, load_training_data
from atrl_bench.training.rollout import messages_of, read_prompts


def png(size=(56, 56)):
    return {"bytes": picture(size=size), "path": "a.png"}


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
    assert example["token_truth"].transcription.replace(" ", "").isdigit()


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


def test_words_that_the_processor_takes_for_an_image_are_left_out_and_counted(tmp_path, mini_processor):
    asked = ("?", "What does <|image_pad|> stand for?")
    rows = [{"images": [png()], "problem": text, "answer": "1"} for text in asked]
    data = load_training_data("geometry3k", write(tmp_path, "geometry3k", rows))
    kept = data.without_long_prompts(mini_processor, 100)
    assert [problem.question for problem in kept.problems] == ["?"]
    assert kept.left_out == {"<|image_pad|> in its words, which the processor takes for one": 1}
    with pytest.raises(MissingDataError, match=r"within 9 tokens(?s:.)*1 prompt too long"):
        kept.without_long_prompts(mini_processor, 9)


def read(data, processor, seed=0):
    return read_prompts(processor, [messages_of(data.example(0, seed))], [""], torch.float32)


def limit_is_exact(data, processor):
    """Check that a limit of the first row's longest prompt leaves nothing out, and a limit of one token less does."""
    lengths = [len(ids) for seed in range(20) for ids in read(data, processor, seed).token_ids_P]
    assert data.without_long_prompts(processor, max(lengths)).left_out == {}
    with pytest.raises(MissingDataError):
        data.without_long_prompts(processor, max(lengths) - 1)


@pytest.mark.parametrize("question", ["What is the sum?", "Compare <image> with <image>."])
def test_the_length_of_a_prompt_is_counted_as_the_processor_makes_it(tmp_path, mini_processor, question):
    images = [png((112, 56))] * max(1, question.count("<image>"))
    rows = [{"images": images, "problem": question, "answer": "1"}]
    limit_is_exact(load_training_data("geometry3k", write(tmp_path, "geometry3k", rows)), mini_processor)


def test_a_missing_folder_column_or_set_says_so(tmp_path):
    with pytest.raises(MissingDataError, match="no table of training set geometry3k") as caught:
        load_training_data("geometry3k", tmp_path)
    assert "train*.parquet" in caught.value.why
    assert "hf download hiyouga/geometry3k" in caught.value.next_step
    with pytest.raises(MissingDataError, match="no column images or image"):
        load_training_data("geometry3k", write(tmp_path, "geometry3k", [{"problem": "?", "answer": "1"}]))
    with pytest.raises(UnknownNameError, match="Did you mean geometry3k"):
        load_training_data("geometry", tmp_path)


# Rows about videos ------------------------------------------------------------------------------------------------

ROW = {
    "problem_id": 7,
    "problem": "<video>How many?",
    "data_type": "video",
    "problem_type": "multiple choice",
    "options": ["A. two", "B. three"],
    "process": "<think>I count three.</think>",
    "solution": "<answer>B</answer>",
    "path": "./films/a.mp4",
    "data_source": "test",
}


def film(path, num_frames=8, seed=0):
    frames = np.random.default_rng(seed).integers(0, 255, (num_frames, 56, 56, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(frames, 8))


def write_json(folder, rows):
    """Write the table as Video-R1 publishes it: one JSON list."""
    (folder / "video_r1").mkdir(exist_ok=True)
    (folder / "video_r1" / "Video-R1-COT-165k.json").write_text(json.dumps(rows), encoding="utf-8")
    return folder


def test_a_row_of_video_r1_is_a_video_with_options_a_chain_and_a_sort_of_answer(tmp_path):
    film(tmp_path / "video_r1" / "films" / "a.mp4")
    data = load_training_data("video_r1_cot", write_json(tmp_path, [ROW]))
    example = replace(data, num_frames=4).example(0, run_seed=0)
    assert [part["type"] for part in example["prompt"][0]["content"]] == ["video", "text"]
    question = "How many?\nChoices:\n(A) two\n(B) three"
    assert example["prompt"][0]["content"][1]["text"] == render(question, choose_template(0, "7"), "video")
    assert (example["answer"], example["choices"]) == ("B", ["two", "three"])
    assert example["problem_type"] == "multiple choice"
    assert example["process"] == "<think>I count three.</think>"
    [video] = example["videos"]
    assert video.frames.shape == (4, 56, 56, 3)
    assert video.indices == (0, 2, 5, 7)


def test_images_of_a_set_with_files_are_opened_when_asked_for(tmp_path):
    (tmp_path / "video_r1").mkdir()
    Image.new("RGB", (56, 28), "white").save(tmp_path / "video_r1" / "b.png")
    row = {**ROW, "data_type": "image", "path": "./b.png"}
    example = load_training_data("video_r1_cot", write_json(tmp_path, [row])).example(0, run_seed=0)
    assert [image.size for image in example["images"]] == [(56, 28)]
    assert example["videos"] == []


@pytest.mark.parametrize("bad", [(401, 2), (9500, 9500), None])  # too long for its width, a bomb, no picture
def test_a_picture_file_that_cannot_be_shown_gives_way_to_the_next_row(tmp_path, mini_processor, bad):
    Image.new("L", (56, 28)).save(tmp_path / "good.png")
    Image.new("L", bad).save(tmp_path / "bad.png") if bad else (tmp_path / "bad.png").write_text("<html>404</html>")
    rows = [{"question": "How many?", "answer": 1, "image": f"{name}.png"} for name in ("bad", "good")]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = load_training_data(str(tmp_path / "mine.jsonl"), None).without_long_prompts(mini_processor, 500)
    assert [image.size for image in data.example(0, 0)["images"]] == [(56, 28)]
    assert data.unreadable == {0}


def test_a_video_that_cannot_be_decoded_gives_way_to_the_next_row_every_time(tmp_path):
    for number in range(3):
        film(tmp_path / "video_r1" / f"{number}.mp4", seed=number)
    (tmp_path / "video_r1" / "1.mp4").write_bytes(b"no video")
    rows = [{**ROW, "problem_id": number, "path": f"{number}.mp4"} for number in range(3)]
    data = load_training_data("video_r1_cot", write_json(tmp_path, rows))
    shown = [data.example(index, 0)["videos"][0].frames.tobytes() for index in (0, 1, 2, 1)]
    assert shown[1] == shown[2] == shown[3] != shown[0]
    assert data.unreadable == {1}
    (tmp_path / "video_r1" / "2.mp4").write_bytes(b"no video either")
    with pytest.raises(MissingDataError, match="2 rows of video_r1_cot"):
        data.example(1, 0)


def test_rows_whose_file_is_missing_are_left_out_and_too_many_are_an_error(tmp_path):
    film(tmp_path / "video_r1" / "films" / "a.mp4")
    gone = {**ROW, "path": "./films/gone.mp4"}
    data = load_training_data("video_r1_cot", write_json(tmp_path, [ROW] * 200 + [gone]))
    assert data.left_out == {"no such file": 1}
    with pytest.raises(MissingDataError, match="1 of 51 rows"):
        load_training_data("video_r1_cot", write_json(tmp_path, [ROW] * 50 + [gone]))


def test_the_length_of_a_prompt_with_a_video_is_counted_at_its_largest(tmp_path, mini_processor):
    film(tmp_path / "video_r1" / "films" / "a.mp4")
    data = load_training_data("video_r1_cot", write_json(tmp_path, [ROW]))
    # As large as the film: two steps of four tokens.
    limit_is_exact(replace(data, num_frames=4, video_max_pixels=56 * 56), mini_processor)


def test_the_digest_follows_the_videos(tmp_path):
    film(tmp_path / "video_r1" / "films" / "a.mp4", seed=0)
    write_json(tmp_path, [ROW])
    before = data_digest(find_set("video_r1_cot"), tmp_path)
    assert data_digest(find_set("video_r1_cot"), tmp_path) == before
    film(tmp_path / "video_r1" / "films" / "a.mp4", seed=1)
    assert data_digest(find_set("video_r1_cot"), tmp_path) != before


def test_video_r1_is_fetched_first_or_given_as_a_folder(tmp_path):
    with pytest.raises(MissingDataError, match="is not here yet") as caught:
        load_training_data("video_r1", None)
    assert "atrl-bench fetch video_r1" in caught.value.next_step
    with pytest.raises(MissingDataError, match="no table") as caught:
        load_training_data("video_r1", tmp_path)
    assert "Video-R1-260k" in caught.value.why
    assert "unpack its archives" in caught.value.next_step


# Images and videos where a question marks them ----------------------------------------------------------------------

IMAGE, VIDEO = {"type": "image"}, {"type": "video"}
COMPARE = "Compare <image> with <image>."


def words(text):
    return {"type": "text", "text": text}


def row(problem, num_images=1, **more):
    return {"problem": problem, "answer": "3", "images": [png((56 * (1 + n), 56)) for n in range(num_images)], **more}


@pytest.fixture
def rows_of_a_set(tmp_path):
    return lambda *rows: load_training_data("geometry3k", write(tmp_path, "geometry3k", list(rows)))


def problem(question, images=0, videos=0):
    return TrainingProblem("1", question, "3", Gold("3"), images=(b"",) * images, videos=("a.mp4",) * videos)


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
    prompts = read(rows_of_a_set(row(COMPARE, 2)), mini_processor)
    assert prompts.visuals_P[0]["image_grid_thw"].tolist() == [[1, 4, 4], [1, 4, 8]]
    # Four patches are a token: the first image has four tokens, the second eight.
    image = "<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>"
    wide_image = image.replace("<|image_pad|>" * 4, "<|image_pad|>" * 8)
    assert f"Compare {image} with {wide_image}." in mini_processor.tokenizer.decode(prompts.token_ids_P[0])

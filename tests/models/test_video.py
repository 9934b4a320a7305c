"""Frames of real MP4 files, and what Qwen2.5-VL is given of them."""

import dataclasses
import os
import shutil
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen2_vl.video_processing_qwen2_vl import smart_resize

from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.mini import BASE
from atrl_bench.mini.videos import encode
from atrl_bench.models import local, video
from atrl_bench.models.local import model_inputs, prompt_hash
from atrl_bench.models.mrope import words_after_videos
from atrl_bench.models.prompt import Prompt, Sampling
from atrl_bench.models.video import BadVideoError, read_video, reduced, spaced
from atrl_bench.profiles import load_profile
from atrl_bench.sandbox.pool import Failure

SMOKE = load_profile("smoke")


def write_film(path, num_frames: int, fps: int = 8, side: int = 56):
    """A film whose n-th frame is evenly grey of brightness 3n: every frame says which one it is."""
    frames = np.repeat(np.arange(num_frames, dtype=np.uint8) * 3, side * side * 3).reshape(num_frames, side, side, 3)
    path.write_bytes(encode(frames, fps))
    return path


# Which frames -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_source_frames", "num_frames", "places"),
    [
        (9, 4, (0, 3, 5, 8)),  # steps of 8/3: 0, 2.67, 5.33, 8
        (64, 4, (0, 21, 42, 63)),
        (5, 16, (0, 1, 3, 4)),  # only an even number: steps of 4/3
        (2, 2, (0, 1)),
        (1, 16, (0, 0)),  # one step in time needs two frames
    ],
)
def test_frames_are_evenly_spaced_from_the_first_to_the_last(num_source_frames, num_frames, places) -> None:
    assert spaced(num_source_frames, num_frames) == places


@given(num_source_frames=st.integers(1, 100_000), steps=st.integers(1, 64))
def test_frames_are_always_even_in_number_in_order_and_inside_the_file(num_source_frames, steps) -> None:
    places = spaced(num_source_frames, 2 * steps)
    assert len(places) % 2 == 0
    assert 2 <= len(places) <= 2 * steps
    assert list(places) == sorted(places)
    assert places[0] == 0
    assert places[-1] == (num_source_frames - 1 if num_source_frames > 1 else 0)


@pytest.mark.parametrize("num_frames", [0, -2, 15])
def test_a_number_of_frames_that_makes_no_whole_steps_is_refused(num_frames) -> None:
    with pytest.raises(ValueError, match="even number"):
        spaced(100, num_frames)


# Decoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_frames", [16, 32, 64])
def test_the_frames_are_those_of_the_file_and_know_their_moment(num_frames, tmp_path) -> None:
    seen = read_video(write_film(tmp_path / "film.mp4", 80), num_frames)
    assert seen.frames.shape == (num_frames, 56, 56, 3)
    assert seen.frames.dtype == np.uint8
    brightness = seen.frames.reshape(num_frames, -1).mean(axis=1)
    assert brightness / 3 == pytest.approx(seen.indices, abs=0.5)
    assert seen.timestamps[-1] == 79 / 8  # the last of 80 frames at eight a second


def test_a_short_file_gives_the_frames_it_has(tmp_path) -> None:
    assert read_video(write_film(tmp_path / "five.mp4", 5), 16).indices == (0, 1, 3, 4)
    assert read_video(write_film(tmp_path / "one.mp4", 1), 16).frames.shape[0] == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"not a video",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"avc1", b"zzzz"),
    ],
    ids=["empty", "text", "half", "unknown codec"],
)
def test_a_damaged_file_is_a_bad_video_and_the_next_one_is_read(damage, tmp_path) -> None:
    good = write_film(tmp_path / "good.mp4", 8)
    bad = tmp_path / "bad.mp4"
    bad.write_bytes(damage(good.read_bytes()))
    with pytest.raises(BadVideoError, match=r"bad\.mp4 cannot be decoded"):
        read_video(bad, 4)
    assert read_video(good, 4).frames.shape[0] == 4


@pytest.mark.parametrize(("width", "is_read"), [(16, False), (48, False), (80, True)])
def test_a_film_that_is_too_narrow_for_the_decoder_is_a_bad_video_that_says_so(width, is_read, tmp_path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(encode(np.zeros((8, 56, width, 3), np.uint8), 8))
    with nullcontext() if is_read else pytest.raises(BadVideoError, match="decord reads no frames that are so narrow"):
        assert read_video(path, 4).frames.shape[2] == width


def test_a_file_that_is_not_there_is_a_bad_video(tmp_path) -> None:
    for path in (tmp_path / "none.mp4", tmp_path):
        with pytest.raises(BadVideoError, match="there is no video file"):
            read_video(path, 4)


def test_a_decoder_that_hangs_is_stopped_and_replaced(tmp_path, monkeypatch) -> None:
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)  # nobody writes to it: opening it waits for ever
    started = time.perf_counter()
    monkeypatch.setattr(video.decoders, "seconds", 0.25)
    [failure] = video.decoders.call_each([(video.decode_quietly, (str(pipe), 4, None))])
    assert failure == Failure("timed out", "no reply within 1 s")
    assert time.perf_counter() - started < 20
    assert read_video(write_film(tmp_path / "good.mp4", 8), 4).frames.shape[0] == 4


def test_a_worker_of_someone_else_decodes_by_itself(tmp_path, monkeypatch) -> None:
    path = write_film(tmp_path / "film.mp4", 8)
    monkeypatch.setattr(video.multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    monkeypatch.setattr(video, "decoders", None)
    assert read_video(path, 4).indices == (0, 2, 5, 7)


def test_a_bad_video_is_found_bad_once_and_named_without_its_folder(tmp_path, monkeypatch) -> None:
    path = tmp_path / "bad.mp4"
    path.write_bytes(write_film(path, 8).read_bytes()[:200])
    with pytest.raises(BadVideoError) as first:
        read_video(path, 4)
    assert str(first.value) == "bad.mp4 cannot be decoded: Error reading bad.mp4..."
    monkeypatch.setattr(video, "decoders", None)  # nobody is left to decode
    with pytest.raises(BadVideoError, match=r"bad\.mp4 cannot be decoded"):
        read_video(path, 4)


def test_a_video_is_decoded_once_until_its_file_changes(tmp_path) -> None:
    path = write_film(tmp_path / "film.mp4", 8)
    first = read_video(path, 4)
    assert read_video(path, 4) is first
    assert read_video(path, 2) is not first
    write_film(path, 16)
    assert read_video(path, 4).num_source_frames == 16


@pytest.mark.parametrize(("height", "width"), [(1080, 1920), (720, 1280), (480, 640), (100, 3000)])
def test_a_large_frame_becomes_what_qwen_would_make_of_it(height, width) -> None:
    small = reduced(np.zeros((height, width, 3), np.uint8), 256 * 28 * 28).shape[:2]
    assert small == smart_resize(height, width, 28, min_pixels=128 * 28 * 28, max_pixels=256 * 28 * 28)


def test_a_film_of_enormous_frames_is_refused_after_the_first(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(video, "MAX_FRAME_BYTES", 56 * 56 * 3 - 1)
    with pytest.raises(BadVideoError, match="has frames of more than"):
        video.decode(str(write_film(tmp_path / "film.mp4", 20)), 16)


def test_a_frame_within_its_bound_is_left_alone() -> None:
    frame = np.zeros((100, 70, 3), np.uint8)
    assert reduced(frame, 7000) is frame
    assert reduced(frame, None) is frame


# What the model is given ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded():
    sizes = SMOKE.evaluation
    yield local.load(
        local.find_model("mini"),
        min_pixels=sizes.min_pixels,
        max_pixels=sizes.max_pixels,
        video_max_pixels=sizes.video_max_pixels,
        dtype="float32",
    )
    local.release()


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return read_video(write_film(tmp_path_factory.mktemp("film") / "film.mp4", 64, side=84), 16)


def asked(seen, words="Which digit is the first?", name="a") -> Prompt:
    content = [{"type": "video", "url": "film.mp4"}, {"type": "text", "text": words}]
    return Prompt(name, [{"role": "user", "content": content}], [], (seen,))


def inputs_of(loaded, *prompts: Prompt, dtype=torch.float32):
    template = loaded.processor.apply_chat_template
    texts = [template(prompt.messages, tokenize=False, add_generation_prompt=True) for prompt in prompts]
    return model_inputs(loaded.processor, texts, prompts, dtype)


@pytest.mark.parametrize("num_frames", [16, 32, 64])
def test_a_video_is_one_input_with_one_step_in_time_for_two_frames(num_frames, loaded, tmp_path) -> None:
    seen = read_video(write_film(tmp_path / "film.mp4", 64, side=84), num_frames)
    inputs = inputs_of(loaded, asked(seen))
    # 84 pixels are six patches of 14, and two by two of these are one token: 9 tokens a step.
    assert inputs["video_grid_thw"].tolist() == [[num_frames // 2, 6, 6]]
    assert (inputs["input_ids"] == loaded.model.config.video_token_id).sum() == 9 * num_frames // 2
    assert inputs["second_per_grid_ts"].tolist() == [2 * 8 / num_frames]  # eight seconds
    assert "pixel_values" not in inputs


def test_moments_keep_their_precision_when_pixels_do_not(loaded, film) -> None:
    seen = dataclasses.replace(film, source_fps=29.97)
    inputs = inputs_of(loaded, asked(seen), dtype=torch.bfloat16)
    assert inputs["pixel_values_videos"].dtype == torch.bfloat16
    assert inputs["second_per_grid_ts"].item() == pytest.approx(2 / (16 / 64 * 29.97), rel=1e-6)


def test_shuffled_frames_are_another_input_at_the_same_moments(loaded, film) -> None:
    shuffled = film.reordered([*range(8, 16), *range(8)])
    ordered, other = inputs_of(loaded, asked(film)), inputs_of(loaded, asked(shuffled))
    assert not torch.equal(ordered["pixel_values_videos"], other["pixel_values_videos"])
    halves = ordered["pixel_values_videos"].chunk(2)  # the second half now comes first
    assert torch.equal(torch.cat([halves[1], halves[0]]), other["pixel_values_videos"])
    assert torch.equal(positions(loaded, ordered), positions(loaded, other))
    assert prompt_hash("", asked(film)) != prompt_hash("", asked(shuffled))


def test_the_hash_of_a_prompt_covers_when_frames_are_shown(film) -> None:
    slower = dataclasses.replace(film, source_fps=film.source_fps / 2)
    assert prompt_hash("", asked(film)) == prompt_hash("", asked(dataclasses.replace(film)))
    assert prompt_hash("", asked(film)) != prompt_hash("", asked(slower))


def positions(loaded, inputs) -> torch.Tensor:
    """The positions in time of one prompt's tokens."""
    return loaded.model._prepare_position_ids_for_generation(inputs["input_ids"], dict(inputs))[1, 0]


@pytest.mark.parametrize(("fps", "step"), [(8, 4), (4, 8), (16, 2)])
def test_positions_follow_the_seconds_of_the_video_and_words_come_after_it(fps, step, loaded, film) -> None:
    inputs = inputs_of(loaded, asked(dataclasses.replace(film, source_fps=fps)))
    place = (inputs["input_ids"][0] == loaded.model.config.video_token_id).nonzero().flatten()
    places = positions(loaded, inputs)
    start = places[place[0] - 1] + 1
    # Each of 8 steps in time lasts 64/fps/8 seconds, and the model counts `tokens_per_second` of them.
    assert step == 64 / fps / 8 * loaded.model.config.vision_config.tokens_per_second
    assert (places[place] - start).unique().tolist() == [step * n for n in range(8)]
    words = places[place[-1] + 1 :]
    assert words[0] == places[place].max() + 1
    assert torch.equal(words, torch.arange(len(words)) + words[0])


def test_a_forward_pass_that_is_given_no_positions_takes_the_same_ones(loaded, film) -> None:
    inputs = inputs_of(loaded, asked(film), asked(film, "Find the sum of the digits, and then add the first one.", "b"))
    given_positions = loaded.model._prepare_position_ids_for_generation(inputs["input_ids"], dict(inputs))
    with torch.no_grad():
        alone, told = loaded.model(**inputs), loaded.model(**inputs, position_ids=given_positions)
        stock = loaded.model(**inputs, position_ids=stock_positions(loaded, inputs))
    real = inputs["attention_mask"].bool()
    assert torch.equal(alone.logits[real], told.logits[real])
    assert not torch.allclose(alone.logits[real], stock.logits[real], atol=1e-3)


def stock_positions(loaded, inputs) -> torch.Tensor:
    """The positions that transformers gives by itself."""
    original = loaded.model.model.get_rope_index.__wrapped__
    names = ("mm_token_type_ids", "video_grid_thw", "second_per_grid_ts", "attention_mask")
    return original(inputs["input_ids"], **{name: inputs[name] for name in names})[0]


def test_words_move_behind_each_video_and_what_is_before_stays() -> None:
    # Two words, a video of two steps at 2 and 9, a word that transformers puts at 3, a video at 4 and 9, a word at 5.
    types = torch.tensor([0, 0, 2, 2, 0, 2, 2, 0])
    time_axis = torch.tensor([0, 1, 2, 9, 3, 4, 9, 5])
    row_axis = torch.tensor([0, 1, 2, 2, 3, 4, 4, 5])
    moved = words_after_videos(torch.stack([time_axis, row_axis, row_axis]), types)
    # The first word goes from 3 to 10, seven on; the second video with it, to 11 and 16; the last word behind that.
    assert moved[0].tolist() == [0, 1, 2, 9, 10, 11, 16, 17]
    assert moved[1].tolist() == [0, 1, 2, 2, 10, 11, 11, 17]


def test_a_prompt_without_a_video_keeps_its_positions() -> None:
    positions_3S = torch.arange(5).expand(3, 5)
    assert torch.equal(words_after_videos(positions_3S, torch.tensor([0, 1, 1, 0, 0])), positions_3S)


def test_greedy_answers_are_those_of_transformers_generate(loaded, film) -> None:
    prompts = [asked(film), asked(film.reordered(range(15, -1, -1)), "What is the sum of all digits?", "b")]
    ours = loaded.generate(prompts, [[0], [0]], Sampling(12, temperature=0))
    inputs = inputs_of(loaded, *prompts)
    theirs = loaded.model.generate(**inputs, max_new_tokens=12, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    assert [a[0].text for a in ours] == loaded.processor.tokenizer.batch_decode(theirs, skip_special_tokens=True)


# From a row to a score --------------------------------------------------------------------------------------------


def test_a_video_benchmark_is_answered_and_graded_from_its_files(store, mini_world) -> None:
    options = EvaluationOptions(repeats=2, limit=4)
    key = evaluate(BASE, "vsi_bench", options, store=store, profile=SMOKE, data_dir=mini_world)
    samples = store.samples(key)
    assert len(samples) == 8
    assert all(sample.verdict is not None for sample in samples)
    hashes = {sample.problem.problem_id: sample.response.prompt_hash for sample in samples}
    assert len(set(hashes.values())) == 4  # the same video, four questions
    assert store.cell(key).spec["decoding"]["num_frames"] == SMOKE.evaluation.num_frames


def test_a_row_without_its_video_is_skipped_and_counted(store, mini_world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("atrl_bench.evaluation.cell_writer.MAX_BAD_FRACTION", 0.5)
    videos = shutil.copytree(mini_world / "mmvu", tmp_path / "mmvu") / "videos" / "Mathematics"
    (videos / "0.mp4").unlink()  # two of four rows are about it
    (videos / "1.mp4").write_bytes(b"damaged")
    options = EvaluationOptions(repeats=1, limit=6)
    with pytest.raises(Exception, match="4 of 6 rows cannot be read, shown or asked"):
        evaluate(BASE, "mmvu_val", options, store=store, profile=SMOKE, data_dir=tmp_path)

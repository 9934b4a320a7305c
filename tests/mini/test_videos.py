"""Scenes of moving digits: real files that are the same every time, and answers that follow from what is shown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.mini.benchmarks import SYNTHETIC_BENCHMARKS
from atrl_bench.mini.problems import grounded_response
from atrl_bench.mini.videos import (
    FRAMES_PER_SECOND,
    NUM_SECONDS,
    VIDEO_KINDS,
    Scene,
    ask,
    draw_scene,
)
from atrl_bench.models.video import decode

TEMPORAL = VIDEO_KINDS.keys() - {"total", "spread", "largest_and_smallest", "different"}
NAMES = ("vsi_bench", "video_mmmu/Perception", "video_mmmu/Comprehension", "video_mmmu/Adaptation", "mmvu")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("name", "readings", "answer"),
    [
        ("first", (3, 1, 4, 7), "3"),
        ("second", (3, 1, 4, 7), "1"),
        ("last", (3, 1, 4, 7), "7"),
        ("order", (3, 1, 4, 7), "3, 1, 4, 7"),
        ("first_two", (3, 1, 4, 7), "4"),
        ("last_two", (3, 1, 4, 7), "11"),
        ("both_ends", (3, 1, 4, 7), "10"),
        ("mean_of_ends", (3, 1, 4, 8), "5.5"),
        ("number_plus", (3, 1, 4, 7), "38"),  # 31 + 7
        ("changes", (3, 3, 1, 3), "2"),
        ("changes", (3, 3, 3, 3), "0"),
        ("total", (3, 1, 4, 7), "15"),
        ("spread", (3, 1, 4, 7), "6"),
        ("largest_and_smallest", (3, 1, 4, 7), "8"),
        ("different", (3, 3, 1, 3), "2"),
    ],
)
def test_the_answer_follows_from_the_digits_in_order_of_time(name, readings, answer) -> None:
    assert VIDEO_KINDS[name].solve(readings)[1] == answer


@pytest.mark.parametrize("name", VIDEO_KINDS)
def test_only_a_temporal_question_has_another_answer_in_another_order(name) -> None:
    # 9 3 3 0, its reverse, and with the two equal digits apart; the first digit changes, and so does every sum of two.
    orders = [(9, 3, 3, 0), (0, 9, 3, 3), (3, 9, 3, 0), (3, 0, 9, 3)]
    answers = {VIDEO_KINDS[name].solve(order)[1] for order in orders}
    assert (len(answers) > 1) == (name in TEMPORAL)


def test_most_questions_of_every_synthetic_benchmark_need_the_order_of_time() -> None:
    temporal_wordings = {wording for name in TEMPORAL for wording in VIDEO_KINDS[name].wordings}
    about_ends = "digit in the video?"  # the twin of Adaptation: the first or the last, and one in a picture
    for name in NAMES:
        rows = SYNTHETIC_BENCHMARKS[name].rows(40, rng())
        temporal = [row["question"] in temporal_wordings or row["question"].endswith(about_ends) for row in rows]
        assert sum(temporal) >= 20, name


@given(seed=st.integers(0, 2**31))
def test_a_passing_scene_shows_four_different_digits_and_a_lingering_one_may_keep_them(seed) -> None:
    assert len(set(draw_scene("passing", "test", rng(seed)).readings)) == NUM_SECONDS
    lingering = draw_scene("lingering", "test", rng(seed))
    assert len(lingering.scans) == NUM_SECONDS
    assert len(set(lingering.scans)) == len(set(lingering.readings))  # one scan a digit: it is seen to stay


def test_lingering_scenes_stay_change_and_return() -> None:
    scenes = [draw_scene("lingering", "test", rng(seed)).readings for seed in range(60)]
    changes = {VIDEO_KINDS["changes"].solve(readings)[1] for readings in scenes}
    assert changes == {"0", "1", "2", "3"}
    # With a digit that returns, the number of changes is not told by the number of digits.
    assert any(VIDEO_KINDS["changes"].solve(r)[1] == "2" and len(set(r)) == 2 for r in scenes)


def test_the_transcription_is_the_digit_of_each_second() -> None:
    scene = draw_scene("lingering", "train", rng(1))
    problem = ask(scene, "changes", rng())
    assert problem.transcription == " ".join(str(digit) for digit in scene.readings)
    assert grounded_response(problem).startswith(f"The image shows {problem.transcription}. ")


def test_a_file_has_the_frames_that_were_drawn(tmp_path) -> None:
    scene = draw_scene("passing", "test", rng())
    path = tmp_path / "scene.mp4"
    path.write_bytes(scene.mp4())
    seen = decode(str(path), NUM_SECONDS * FRAMES_PER_SECOND)
    assert seen.source_fps == FRAMES_PER_SECOND
    difference = np.abs(seen.frames.astype(int) - scene.frames())
    assert difference.mean() < 1  # of 255: compressed, but not visibly
    assert seen.frames.shape == scene.frames().shape


@pytest.mark.parametrize("num_frames", [8, 16, 32, 64])
def test_every_second_is_seen_by_as_many_frames(num_frames, tmp_path) -> None:
    path = tmp_path / "scene.mp4"
    path.write_bytes(draw_scene("passing", "test", rng()).mp4())
    seconds = [index // FRAMES_PER_SECOND for index in decode(str(path), num_frames).indices]
    assert seconds == [second for second in range(NUM_SECONDS) for _ in range(num_frames // NUM_SECONDS)]


def test_a_scene_is_the_same_file_every_time_and_moves() -> None:
    scene = draw_scene("passing", "test", rng())
    assert Scene.named(scene.name).mp4() == scene.mp4()
    frames = scene.frames()
    seconds = frames.reshape(NUM_SECONDS, FRAMES_PER_SECOND, *frames.shape[1:])
    assert all(not np.array_equal(second[0], second[-1]) for second in seconds)

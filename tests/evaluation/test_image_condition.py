"""What is shown in place of a picture, and what reaches the model."""

import io
from base64 import b64decode

import numpy as np
import pytest
from fake_backend import picture, write_geoqa
from PIL import Image

from atrl_bench.errors import AtrlBenchError, InvalidFileError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import CellSpec, EvaluationOptions, cell_spec
from atrl_bench.evaluation.data import load_rows, read_problems
from atrl_bench.evaluation.image_condition import ImageCondition, donors
from atrl_bench.evaluation.prompts_for import prompts_for, shown_instead
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.mini.benchmarks.dataset import png
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.profiles import load_profile

PROFILE = load_profile("smoke")


def prompts(task: str, image: str | None, data_dir, limit: int | None = None):
    info = find_task(task)
    spec = cell_spec("mini", task, EvaluationOptions(image=image), profile=PROFILE, data_dir=data_dir)
    rows, problems, _ = read_problems(info, load_rows(info, data_dir, limit))
    return list(prompts_for(info, rows, spec, shown_instead(info, problems, rows, spec)))


def pixels(prompt) -> np.ndarray:
    return np.asarray(prompt.images[0])


@pytest.fixture
def colours(tmp_path):
    """Six problems, each with a picture of one colour of its own."""
    return write_geoqa(tmp_path / "data", [picture((40 * number, 0, 0), (40, 30)) for number in range(6)])


def test_words_stay_and_the_picture_goes(colours):
    real, without = prompts("geoqa_test", None, colours), prompts("geoqa_test", "none", colours)
    assert [prompt.images for prompt in without] == [[]] * 6
    words = [[part for part in prompt.messages[0]["content"] if part["type"] == "text"] for prompt in real]
    assert [prompt.messages[0]["content"] for prompt in without] == words


def test_a_blank_picture_is_grey_and_as_large(colours):
    for prompt in prompts("geoqa_test", "blank", colours):
        assert pixels(prompt).shape == (30, 40, 3)
        assert set(pixels(prompt).ravel()) == {127}


def test_noise_is_the_same_for_a_problem_each_time_and_different_for_each_problem(colours):
    once, again = (prompts("geoqa_test", "noise", colours) for _ in range(2))
    assert all((pixels(one) == pixels(other)).all() for one, other in zip(once, again, strict=True))
    assert len({pixels(prompt).tobytes() for prompt in once}) == 6
    assert 100 < np.mean([pixels(prompt).mean() for prompt in once]) < 155


def test_every_problem_is_shown_the_picture_of_another_and_every_picture_once(colours):
    own = [pixels(prompt)[0, 0, 0] for prompt in prompts("geoqa_test", None, colours)]
    shown = [pixels(prompt)[0, 0, 0] for prompt in prompts("geoqa_test", "shuffled", colours)]
    assert sorted(shown) == sorted(own)
    assert all(one != other for one, other in zip(own, shown, strict=True))


def test_pictures_are_shuffled_among_those_of_about_their_size(tmp_path):
    pictures = [picture((n, 0, 0), size) for size in ((40, 30), (400, 300)) for n in range(3)]
    data = write_geoqa(tmp_path / "data", pictures)
    assert [prompt.images[0].size for prompt in prompts("geoqa_test", "shuffled", data)] == [(40, 30)] * 3 + [
        (400, 300)
    ] * 3


def test_five_versions_of_one_problem_never_exchange_pictures(mini_world):
    info = find_task("mathverse_testmini")
    rows, problems, _ = read_problems(info, load_rows(info, mini_world))
    donor = donors(problems, rows, 0)
    groups = [problem.group for problem in problems]
    assert len(set(groups)) < len(groups)
    assert all(groups[donor[problem.problem_id]] != problem.group for problem in problems)
    assert sorted(donor.values()) == list(range(len(rows)))


def test_a_picture_is_never_shown_for_a_video_nor_a_video_for_a_picture(mini_world):
    real = prompts("mega_bench_core", None, mini_world)
    assert [bool(prompt.videos) for prompt in real].count(True) == 1
    with pytest.raises(InvalidFileError, match="of 1 rows more than half"):  # the video has no other to stand for it
        prompts("mega_bench_core", "shuffled", mini_world)
    before_it = [bool(prompt.videos) for prompt in real].index(True)
    shuffled = prompts("mega_bench_core", "shuffled", mini_world, limit=before_it)
    assert all(prompt.images and not prompt.videos for prompt in shuffled)


def test_one_picture_alone_cannot_be_shuffled(colours):
    with pytest.raises(InvalidFileError, match="cannot be shuffled"):
        prompts("geoqa_test", "shuffled", colours, limit=1)


def test_a_blur_keeps_the_mean_and_takes_the_edges(tmp_path):
    edge = Image.fromarray(np.repeat(np.uint8([[0] * 20 + [200] * 20] * 30)[:, :, None], 3, axis=2))
    data = write_geoqa(tmp_path / "data", [png(edge)])
    sharp, blurred = (pixels(prompts("geoqa_test", image, data)[0]).astype(float) for image in (None, "blur:5"))
    assert np.abs(np.diff(sharp, axis=1)).max() == 200
    assert np.abs(np.diff(blurred, axis=1)).max() < 30
    assert blurred.mean() == pytest.approx(sharp.mean(), abs=2)


def test_a_frozen_video_stands_still_and_a_reordered_one_moves_every_frame(mini_world):
    real, frozen, reordered = (
        prompts("vsi_bench", image, mini_world, limit=1)[0].videos[0] for image in (None, "frozen", "reordered")
    )
    count = len(real.frames)
    assert (frozen.frames == real.frames[count // 2]).all()
    assert sorted(map(bytes, reordered.frames)) == sorted(map(bytes, real.frames))
    assert frozen.timestamps == reordered.timestamps == real.timestamps
    blank = prompts("vsi_bench", "blank", mini_world, limit=1)[0].videos[0]
    assert (blank.frames == 127).all()
    assert blank.frames.shape == real.frames.shape
    assert prompts("vsi_bench", "none", mini_world, limit=1)[0].videos == ()


def test_each_way_is_a_cell_of_its_own_and_shown_pictures_keep_their_key(colours):
    keys = {}
    for image in (None, "none", "blank", "noise", "shuffled", "blur:4", "blur:8"):
        spec = cell_spec("mini", "geoqa_test", EvaluationOptions(image=image), profile=PROFILE, data_dir=colours)
        assert CellSpec.from_dict(spec.as_dict()) == spec
        assert ("image" in spec.as_dict()) is (image is not None)
        keys[image] = spec.key
    assert len(set(keys.values())) == 7


def test_answers_without_the_picture_are_never_taken_for_those_with_it(store, backend, colours):
    where = {"store": store, "profile": PROFILE, "data_dir": colours}
    evaluate("mini", "geoqa_test", **where)
    asked = sum(backend.asked.values())
    evaluate("mini", "geoqa_test", EvaluationOptions(image="blank"), **where)
    assert sum(backend.asked.values()) == 2 * asked


@pytest.mark.parametrize("text", ["shuffle", "blur", "blur:0", "blur:-1", "blank:3", ""])
def test_another_word_is_refused_with_those_there_are(text):
    with pytest.raises(AtrlBenchError, match="shuffled, blur:SIGMA, frozen"):
        ImageCondition.parse(text)


def test_a_picture_cannot_be_frozen(colours):
    with pytest.raises(AtrlBenchError, match="cannot be frozen"):
        prompts("geoqa_test", "frozen", colours)


def test_an_endpoint_is_sent_what_was_said(serve, store, colours):
    server = serve("\\boxed{0}")
    options = EvaluationOptions(image="blank", endpoint=EndpointConfig(server.url, "served"), repeats=1)
    evaluate("served", "geoqa_test", options, store=store, profile=PROFILE, data_dir=colours)
    urls = [
        part["image_url"]["url"]
        for request in server.requests
        for part in request["messages"][-1]["content"]
        if part["type"] == "image_url"
    ]
    assert len(urls) == 6
    shown = {np.asarray(Image.open(io.BytesIO(b64decode(url.partition(",")[2])))).tobytes() for url in urls}
    assert shown == {bytes([127]) * 30 * 40 * 3}

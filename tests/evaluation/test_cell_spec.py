"""What a cell is keyed by: the dictionary that is stored, the same as ever, and read back."""

import pytest

from atrl_bench.digests import spec_key
from atrl_bench.errors import AtrlBenchError
from atrl_bench.evaluation.cell_spec import CellSpec, EvaluationOptions, cell_spec
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.profiles import load_profile

SMOKE = load_profile("smoke")

# As stores hold it. A field more or less, or under another name, would orphan every answer that was ever given.
STORED = {
    "kind": "evaluation",
    "model_digest": "390d3c8546763e81",
    "model_name": "mini",
    "task": "vsi_bench",
    "task_version": "1.0-f4cb1960",
    "split": "test",
    "data_digest": "ea84f4e802753374",
    "limit": None,
    "prompt_version": "32f93618",
    "decoding": {
        "temperature": 0.1,
        "top_p": 1.0,
        "max_new_tokens": 48,
        "repeats": 2,
        "min_pixels": 3136,
        "max_pixels": 50176,
        "dtype": "float32",
        "num_frames": 4,
        "video_max_pixels": 12544,
    },
    "run_seed": 0,
    "judge": None,
    "grader_version": "3",
    "profile": "smoke",
}
KEY = "c9439e74b5fd8d96"


def test_a_spec_is_the_dictionary_that_the_store_holds_and_has_its_key() -> None:
    spec = CellSpec.from_dict(STORED)
    assert spec.as_dict() == STORED
    assert spec.key == spec_key(STORED) == KEY
    assert (spec.decoding.num_frames, spec.decoding.sampling(3).run_seed) == (4, 3)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("geoqa_test", EvaluationOptions(limit=3, run_seed=2)),
        ("vsi_bench", EvaluationOptions(frames=32, repeats=8)),
        ("chartmimic_direct_600", EvaluationOptions(judge=JudgeConfig("http://here/v1", "qwen"))),
        ("mega_bench_core", EvaluationOptions(endpoint=EndpointConfig("http://here/v1", "qwen"))),
    ],
)
def test_a_spec_is_read_back_as_it_was_and_says_nothing_that_its_task_has_no_use_for(task, options, mini_world) -> None:
    spec = cell_spec("mini", task, options, profile=SMOKE, data_dir=mini_world)
    content = spec.as_dict()
    assert CellSpec.from_dict(content) == spec
    assert content.keys() - STORED.keys() == ({"charts"} if task.startswith("chartmimic") else set())
    shows_videos = task in ("vsi_bench", "mega_bench_core")
    assert (content["decoding"].keys() == STORED["decoding"].keys()) == shows_videos


def test_a_video_is_seen_by_an_even_number_of_frames(mini_world) -> None:
    for frames in (0, -2, 7):
        with pytest.raises(AtrlBenchError, match=f"cannot be seen by {frames} frames"):
            cell_spec("mini", "vsi_bench", EvaluationOptions(frames=frames), profile=SMOKE, data_dir=mini_world)


def test_a_task_may_need_longer_answers_than_its_profile_gives(mini_world) -> None:
    limits = {
        task: cell_spec("mini", task, profile=SMOKE, data_dir=mini_world).decoding.max_new_tokens
        for task in ("geoqa_test", "code_words_test")
    }
    assert limits == {"geoqa_test": SMOKE.evaluation.max_new_tokens, "code_words_test": 112}
    assert SMOKE.evaluation.max_new_tokens < 112

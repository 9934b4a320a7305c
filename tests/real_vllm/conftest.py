"""A real vLLM samples for the tiny trainings of `tests/training`; without one nothing here is collected."""

import os
from importlib.util import find_spec

import pytest

# The fixtures of the trainings, under another profile.
from training.conftest import (  # noqa: F401
    SIZES,
    base_folder,
    coin_grader,
    coin_rewards,
    data_dir,
    make_trainer,
    make_video_trainer,
    open_trainer,
)

if find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")


@pytest.fixture(scope="session")
def profile():
    from atrl_bench.profiles import Rollouts, load_profile

    smoke = load_profile("smoke")
    sizes = smoke.training.model_copy(update=SIZES)
    return smoke.model_copy(update={"training": sizes, "rollouts": Rollouts(engine="vllm")})

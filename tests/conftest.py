"""Fixtures any test may use: the tiny model with random weights and its processor."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def mini_processor():
    from atrl_bench.mini import build_processor

    return build_processor()


@pytest.fixture(scope="session")
def tiny_model():
    from atrl_bench.mini import build_model

    return build_model(0)


@pytest.fixture(scope="session")
def mini_world(tmp_path_factory):
    from atrl_bench.mini import write_world
    from atrl_bench.profiles import load_profile

    return write_world(tmp_path_factory.mktemp("world"), load_profile("smoke"))

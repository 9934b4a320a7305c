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

"""Fixtures any test may use: the tiny model with random weights, its processor, a small mini world, real rows."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config, items):
    """Leave tests marked `large` out unless `-m` names the mark."""
    if "large" in config.option.markexpr:
        return
    large = [item for item in items if item.get_closest_marker("large")]
    config.hook.pytest_deselected(items=large)
    items[:] = [item for item in items if item not in large]


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


@pytest.fixture(scope="session")
def real_data():
    """The folder of real benchmark rows beside the checkout; a test that needs it is skipped where it is not there."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real benchmark rows beside this checkout (../shared/data)")
    return folder

"""The check of joined windows passes where they are right and fails where they are not."""

import pytest
import torch

from atrl_bench.analysis.gpu_check.bench import Bench
from atrl_bench.analysis.gpu_check.checks import SkipCheckError
from atrl_bench.analysis.gpu_check.sizes import SIZES
from atrl_bench.analysis.gpu_check.vision import windows
from atrl_bench.models import vision_windows
from atrl_bench.models.attention import joins_vision_windows
from atrl_bench.models.vision_windows import join_vision_windows


@pytest.fixture
def bench(tmp_path):
    return Bench(SIZES["tiny"], tmp_path)


def one_window(query_SHD, key_SHD, value_SHD, *_, scale):
    """Attention as if all patches of all images were one window."""
    each = (part.transpose(0, 1)[None] for part in (query_SHD, key_SHD, value_SHD))
    return torch.nn.functional.scaled_dot_product_attention(*each, scale=scale)[0].transpose(0, 1)


def test_windows_that_look_at_other_images_are_found(bench, monkeypatch):
    monkeypatch.setattr(vision_windows, "kernel", lambda: one_window)
    join_vision_windows(bench.model)
    measured = windows(bench)
    assert measured.value > 1000 * measured.limit
    assert joins_vision_windows(bench.model)


def test_without_a_kernel_there_is_nothing_to_compare(bench):
    with pytest.raises(SkipCheckError):
        windows(bench)

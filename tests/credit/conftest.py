from collections.abc import Callable

import pytest
import torch
from tiny_vlms import TinyVlm, make_tiny_vlm
from torch import Tensor


@pytest.fixture
def tiny_vlm() -> Callable[..., TinyVlm]:
    """A function from a family's name (and an attention implementation) to a fresh TinyVlm."""
    return make_tiny_vlm


@pytest.fixture
def eager_rows() -> Callable[[TinyVlm, int], Tensor]:
    """The oracle: mean over heads and the last layers of transformers' own attention matrices, for all positions."""

    def rows(tiny: TinyVlm, num_layers: int) -> Tensor:
        tiny.model.set_attn_implementation("eager")
        with torch.no_grad():
            attentions = tiny.model(**tiny.inputs, output_attentions=True).attentions
        return torch.stack([layer.float() for layer in attentions[-num_layers:]]).mean(dim=(0, 2))

    return rows

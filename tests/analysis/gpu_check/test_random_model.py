"""Random models have the sizes of the real ones; on the meta device they take no memory."""

import pytest

from atrl_bench.analysis.gpu_check.sizes import SIZES
from atrl_bench.analysis.random_model import SHAPES, random_model
from atrl_bench.models.shape import KNOWN_SHAPES


@pytest.fixture(scope="module")
def model():
    return random_model(SHAPES["3b"], "meta")


def test_the_3b_shape_has_as_many_parameters_as_qwen_2_5_vl_3b(model):
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert num_parameters == 3_754_622_976  # the head is the embedding and counts once
    assert num_parameters == pytest.approx(SIZES["3b"].num_parameters, rel=0.01)
    known = KNOWN_SHAPES["Qwen/Qwen2.5-VL-3B-Instruct"]
    shape = SHAPES["3b"]
    assert (shape.layers, shape.hidden, shape.intermediate) == (
        known.num_layers,
        known.hidden_size,
        known.intermediate_size,
    )


def test_its_weights_have_the_real_shapes_and_type(model):
    layer = model.model.language_model.layers[35]
    assert layer.self_attn.q_proj.weight.shape == (2048, 2048)
    assert layer.self_attn.k_proj.weight.shape == (256, 2048)  # two key heads of 128
    assert layer.mlp.down_proj.weight.shape == (2048, 11008)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model.lm_head.weight.shape == (151936, 2048)
    assert len(model.model.visual.blocks) == 32
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.bfloat16"}

import numpy as np
import pytest
import torch
from PIL import Image

from atrl_bench.mini import BASE
from atrl_bench.mini.corpus import draw_posed
from atrl_bench.mini.model import build_model
from atrl_bench.models.templates import TEMPLATES, render


@pytest.fixture
def prompt(mini_processor):
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is the sum?"}]}]
    return mini_processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


def test_the_chat_template_is_qwens(prompt):
    assert prompt == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        "<|vision_start|><|image_pad|><|vision_end|>What is the sum?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_cell_of_56_pixels_is_four_visual_tokens(mini_processor, prompt):
    for num_cells in (1, 2, 5):
        batch = mini_processor(text=[prompt], images=[Image.new("RGB", (56 * num_cells, 56))], return_tensors="pt")
        assert (batch["input_ids"] == mini_processor.image_token_id).sum() == 4 * num_cells


def test_digits_are_single_tokens_and_words_stay_whole(mini_processor):
    tokens = mini_processor.tokenizer.tokenize("The image shows 3 5. 3+5=8. \\boxed{108}")
    assert [token for token in tokens if token.isdigit()] == list("35358108")
    question = draw_posed("train", np.random.default_rng(0)).question
    for text in (render(question, template) for template in range(len(TEMPLATES))):
        assert len(mini_processor.tokenizer(text).input_ids) <= 1.6 * len(text.split()) + text.count("\n") * 2 + 12


@pytest.mark.parametrize("text", ["naïve Ωmega 12°", "\\frac{1}{2} \\text{cm}^2", "two  spaces\n\n x ", "四边形 米"])
def test_any_text_is_encoded_without_loss(mini_processor, text):
    assert mini_processor.tokenizer.decode(mini_processor.tokenizer(text).input_ids) == text


def test_the_model_has_about_a_million_parameters_and_is_fixed_by_its_seed(tiny_model):
    weights = tiny_model.state_dict()
    assert 1_000_000 < sum(parameter.numel() for parameter in tiny_model.parameters()) < 1_100_000
    assert all(torch.equal(value, weights[name]) for name, value in build_model(0).state_dict().items())
    assert not torch.equal(build_model(1).lm_head.weight, tiny_model.lm_head.weight)


def test_building_a_model_leaves_the_global_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    build_model(0)
    assert torch.equal(torch.rand(1), expected)


def test_the_shipped_base_is_small_and_records_how_it_was_made():
    import json

    record = json.loads((BASE / "base.json").read_text())
    assert record["recipe"]["name"] == "mini_base"
    assert sum(path.stat().st_size for path in BASE.iterdir()) < 6_000_000

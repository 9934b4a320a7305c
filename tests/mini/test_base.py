import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from atrl_bench.mini.base import (
    IGNORED,
    BaseRecipe,
    encode,
    imitation_loss,
    load_base_recipe,
    rebuild_base,
    training_batches,
)
from atrl_bench.mini.corpus import draw_posed

TINY = BaseRecipe(
    name="tiny",
    seed=0,
    num_steps=3,
    num_bare_steps=0,
    batch_size=4,
    learning_rate=1e-3,
    weight_decay=0.01,
    max_grad_norm=1.0,
    grounded_fractions=(0.15, 0.6, 0.15),
)


@pytest.mark.parametrize("template", [None, 0, 2])
def test_only_the_response_and_the_end_of_the_turn_are_imitated(mini_processor, template):
    rng = np.random.default_rng(0)
    posed = [draw_posed("train", rng) for _ in range(3)]
    responses = [item.response(grounded=True) for item in posed]
    batch = encode(mini_processor, posed, [template] * 3, responses)
    for row, response in zip(batch["labels"], responses, strict=True):
        assert mini_processor.tokenizer.decode(row[row != IGNORED]) == f"{response}<|im_end|>"


def test_the_loss_is_the_models_own_on_the_imitated_tokens(tiny_model):
    batch = next(training_batches(TINY))
    with torch.no_grad():
        torch.testing.assert_close(imitation_loss(tiny_model, batch), tiny_model(**batch).loss)


def test_the_shipped_recipe_teaches_mostly_shortcuts():
    assert sum(load_base_recipe().grounded_fractions) / 3 == pytest.approx(0.3)


def test_the_same_recipe_gives_the_same_weights(tmp_path):
    seen = []
    first = rebuild_base(tmp_path / "a", TINY, on_progress=lambda step, total, loss: seen.append((step, total)))
    second = rebuild_base(tmp_path / "b", TINY)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    weights = load_file(first / "model.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in load_file(second / "model.safetensors").items())
    assert json.loads((first / "base.json").read_text())["recipe"] == TINY.model_dump(mode="json")

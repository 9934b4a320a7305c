"""Parts of a model that a recipe freezes, and layers that it gives adapters: what moves, and what does not."""

import json
import re
from collections import Counter

import pytest
from PIL import Image
from tiny_vlms import FAMILIES
from trainer_parts import weights_of
from vlm_checkpoints import CHECKPOINTS

from atrl_bench.errors import AtrlBenchError, InvalidFileError
from atrl_bench.profiles import load_profile
from atrl_bench.training.policy import PATTERNS, freeze
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run_spec import run_spec


def part_of(name):
    """Return the one part that a parameter belongs to."""
    [part] = [part for part, pattern in PATTERNS.items() if re.fullmatch(pattern, name)]
    return part


def moved(before, after):
    """Return the parts of which some weight is another, and those of which none is."""
    changed = {part_of(name) for name, value in after.items() if not value.equal(before[name])}
    return changed, {part_of(name) for name in after} - changed


@pytest.mark.parametrize("family", FAMILIES)
def test_each_parameter_is_in_one_part_and_each_family_has_a_tower_and_a_projector(family):
    model, _ = CHECKPOINTS[family]()
    parts = [part_of(name) for name, _ in model.named_parameters()]
    assert set(parts) == set(PATTERNS)
    freeze(model, ("tower", "projector"))
    assert {part_of(name) for name, value in model.named_parameters() if value.requires_grad} == {"language"}


@pytest.mark.parametrize(
    ("frozen", "still"),
    [("vision", {"tower", "projector"}), ("tower", {"tower"}), (["language", "tower"], {"language", "tower"})],
)
def test_frozen_parts_have_not_moved_and_the_others_have(make_trainer, frozen, still):
    trainer = make_trainer("grpo", credit="atrl", freeze=frozen)
    before = weights_of(trainer)
    trainer.train()
    assert moved(before, weights_of(trainer)) == (set(PATTERNS) - still, still)


def test_rows_of_text_teach_nothing_to_what_only_images_reach_and_stop_no_training(
    open_trainer, tmp_path, coin_grader, monkeypatch
):
    Image.new("RGB", (56, 28)).save(tmp_path / "shown.png")
    rows = [{"question": f"{n} + 0?", "answer": n} | ({"image": "shown.png"} if n % 2 else {}) for n in range(16)]
    for name, kept in (("mixed", rows), ("text", rows[::2])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, kept)))
    one_at_a_time = {"freeze": "language", "overrides": {"completions_per_device": 1}}
    trainer = open_trainer(load_recipe("grpo", data=str(tmp_path / "mixed.jsonl"), **one_at_a_time), None)
    before, passed, backward = weights_of(trainer), Counter(), trainer.backward
    for number, layer in enumerate(trainer.model.get_decoder().layers):
        layer.register_full_backward_hook(lambda *_, number=number: passed.update([number]))
    monkeypatch.setattr(trainer, "backward", lambda loss: (passed.update(["losses"]), backward(loss)))
    trainer.train()
    assert moved(before, weights_of(trainer)) == ({"tower", "projector"}, {"language"})
    # Also texts go back through each layer: of processes that share it one may have a text where another has none.
    assert len(passed) > 2
    assert len(set(passed.values())) == 1
    with pytest.raises(AtrlBenchError, match=r"changed nothing(?s:.)*rows\s+of text alone where the language"):
        open_trainer(load_recipe("grpo", data=str(tmp_path / "text.jsonl"), **one_at_a_time), None).train()


def test_with_adapters_frozen_parts_have_none_and_the_named_layers_alone_do(make_trainer):
    def adapted(**fields):
        trainer = make_trainer("grpo", finetuning="lora", **fields)
        return {name for name, value in trainer.model.named_parameters() if value.requires_grad}

    named = adapted(lora_targets="q_proj, v_proj")
    assert {re.search(r"(\w+)\.lora_[AB]", name)[1] for name in named} == {"q_proj", "v_proj"}
    assert {part_of(name) for name in adapted(freeze="vision")} == {"language"}
    assert {part_of(name) for name in adapted()} == set(PATTERNS)


def test_a_part_that_a_model_does_not_have_is_named():
    from torch import nn

    with pytest.raises(InvalidFileError, match="A Linear has no part that is known as its tower"):
        freeze(nn.Linear(2, 2), ("tower",))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"freeze": ["vision", "language"]}, "Nothing is left to train"),
        ({"freeze": ["vision", "language"], "finetuning": "lora"}, "PEFT cannot give this model adapters"),
        ({"lora_targets": "none_such", "finetuning": "lora"}, "'none_such'} not found"),
    ],
)
def test_a_recipe_that_leaves_nothing_to_train_is_refused(make_trainer, fields, what):
    with pytest.raises(InvalidFileError, match=what):
        make_trainer("grpo", **fields)


def test_both_are_in_the_key_where_they_are_used_and_nowhere_else():
    def key(**fields):
        return run_spec(load_recipe("grpo", finetuning="lora", **fields), load_profile("mini"), "b", "d", 0)["recipe"]

    assert key(freeze="vision", lora_targets="q_proj")["freeze"] == ["tower", "projector"]
    assert key(lora_targets="q_proj")["lora_targets"] == "q_proj"
    assert {"freeze", "lora_targets"}.isdisjoint(key())

"""Every model family of docs/data.md, random and tiny with its own processor: sampled, scored, credited and trained."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from tiny_vlms import FAMILIES as OTHERS
from trainer_parts import logprobs_alone, rollout_of
from vlm_checkpoints import CHECKPOINTS, write_checkpoint

from atrl_bench.credit import install_row_capture
from atrl_bench.mini.benchmarks.dataset import png
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rollout import joined_visuals
from atrl_bench.training.run import build_trainer, load_inputs, train
from atrl_bench.training.shared_prompts import why_not

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
SIZES = (((56, 56),), ((140, 56),), ((56, 56), (56, 112)), ())  # of the images of a problem; the last has none
NUM_LAYERS = 2  # of full attention, in every family


def table() -> dict[str, list[str]]:
    """Return the cells of the page's table, by the name that transformers has for the family."""
    section = PAGE.read_text(encoding="utf-8").partition("## Model families\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \|(.*)\|$", section, re.M)
    return {family: [cell.strip() for cell in cells.split("|")] for family, cells in rows}


@pytest.fixture(scope="module", params=CHECKPOINTS)
def family(request):
    if request.param == "smolvlm":
        pytest.importorskip("num2words")
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    return write_checkpoint(family, tmp_path_factory.mktemp(family))


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """Four problems of the user's own, whose images differ in number and size."""
    rows = []
    for number, sizes in enumerate(SIZES):
        images = []
        for size in sizes:
            noise = np.random.default_rng(number).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
            images.append({"bytes": png(Image.fromarray(noise)), "path": None})
        rows.append({"question": "<image>" * len(sizes) + f"What is {number}?", "answer": "1", "images": images})
    path = tmp_path_factory.mktemp("problems") / "mine.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


def by_turns(_, answers):
    """Grade every other answer as right: each group has both kinds, so each response needs its credit."""
    return [SimpleNamespace(state=("correct", "wrong")[number % 2]) for number in range(len(answers))]


@pytest.fixture
def trained(folder, problems, profile, tmp_path, coin_grader, monkeypatch):
    """Return a function that trains one rollout and returns its metrics, and its checkpoint's folder."""

    monkeypatch.setattr("atrl_bench.training.rollouts.GradingPool.grade_many", by_turns)

    def run(**fields):
        recipe = load_recipe("grpo", data=problems, credit="atrl", num_rollouts=1, warmup_steps=0, **fields)
        result = train(recipe, profile=profile, base_model=folder, data_dir=None, out=tmp_path, seed=0)
        lines = [json.loads(line) for line in (result.checkpoint / "metrics.jsonl").read_text().splitlines()]
        assert all(line["grad_norm"] > 0 and line["skipped_updates"] == 0 for line in lines)
        assert 0 < lines[0]["credit/mean_connectivity"] < 1
        assert lines[0]["credit/num_empty_visual"] in (1, 4), "of the responses to the one problem without images"
        return lines, result.checkpoint

    return run


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["strict", "minibatch4"])
def test_grpo_with_token_credit_trains_the_family(trained, schedule):
    lines, _ = trained(schedule=schedule)
    assert len(lines) == (1 if schedule == "strict" else 2)


@pytest.mark.slow
def test_adapters_train_beside_a_frozen_vision_tower_and_the_checkpoint_loads(trained, folder):
    from transformers import AutoModelForImageTextToText

    _, checkpoint = trained(finetuning="lora", freeze="vision")
    before, after = (AutoModelForImageTextToText.from_pretrained(path).state_dict() for path in (folder, checkpoint))
    moved = {name for name, value in after.items() if not value.equal(before[name])}
    assert moved
    assert all(re.search(r"(language_model|text_model|layers)\.", name) for name in moved)


@pytest.mark.slow
def test_a_response_is_scored_as_by_a_pass_over_it_alone_and_its_rows_are_those_of_eager_attention(
    folder, problems, profile, tmp_path, coin_grader
):
    recipe = load_recipe("grpo", data=problems)
    with build_trainer(load_inputs(tmp_path, recipe, profile, str(folder), None, 0)) as trainer:
        batch = rollout_of(trainer, range(4))
    model, num_tokens = trainer.model.eval(), batch.mask_BT.shape[1]
    for place in range(len(batch)):
        mask = batch.mask_BT[place].bool()
        expected = logprobs_alone(model, trainer, place // 4, batch.response_ids_BT[place][mask].tolist())
        torch.testing.assert_close(batch.old_BT[place][mask], expected, atol=5e-5, rtol=0)

    some = batch.take([0, 4, 8, 12])  # one image, a wide one, two, none
    inputs = {"input_ids": some.input_ids, "attention_mask": some.attention_mask, **some.token_fields}
    inputs |= joined_visuals(some.visuals_B, torch.device("cpu"))
    capture = install_row_capture(model, num_layers=NUM_LAYERS)
    with torch.no_grad(), capture.record(num_tokens) as recording:
        model(**inputs)
    capture.remove()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions[-NUM_LAYERS:]
    rows_BSS = torch.stack([layer.float() for layer in attentions]).mean(dim=(0, 2))
    is_token_BT = some.mask_BT.bool()
    found, expected = recording.rows("predicting"), rows_BSS[:, -num_tokens - 1 : -1]
    torch.testing.assert_close(found[is_token_BT], expected[is_token_BT], atol=1e-5, rtol=0)


def test_the_page_has_every_family_that_is_tested_and_says_of_it_what_the_tests_say():
    assert set(table()) == set(CHECKPOINTS) >= set(OTHERS)
    for family, (rows, step, adapters, frozen, shared) in table().items():
        assert {rows, step, adapters, frozen} == {"yes"}, "each is tested above, for each of them"
        model, _ = CHECKPOINTS[family]()
        assert shared == ("yes" if why_not(model) is None else "no"), family

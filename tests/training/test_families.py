"""Qwen3-VL and Qwen3.5, random and tiny with their own processor: sampled, scored, credited and trained."""

from __future__ import annotations

import json

import pytest
import torch
from trainer_parts import rollout_of

from atrl_bench.mini.model import CHAT_TEMPLATE, MAX_PIXELS, MIN_PIXELS, SPECIAL_TOKENS, build_tokenizer
from atrl_bench.training.multimodal import read_prompt, token_types, with_media
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import build_trainer, load_inputs, train

pytestmark = pytest.mark.slow

VISION = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64}
VISION |= {"patch_size": 16, "num_position_embeddings": 64}
TEXT = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
MROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}


def qwen3_vl(text, special):
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text |= {"num_hidden_layers": 5, "rope_parameters": MROPE}
    vision = VISION | {"deepstack_visual_indexes": [0, 1]}
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision, **special))


def qwen3_5(text, special):
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    # Three layers of linear attention, then one of full attention, and so on: those are layers 3 and 7.
    linear = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2}
    text |= {"num_hidden_layers": 8, **linear, "linear_num_value_heads": 4}
    text |= {"rope_parameters": MROPE | {"mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25}}
    return Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=VISION, **special))


@pytest.fixture(scope="module", params=[qwen3_vl, qwen3_5], ids=lambda make: make.__name__)
def folder(request, tmp_path_factory):
    """A checkpoint of the family as it lies on the hub: model, tokenizer, processor of images and videos, template."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    tokenizer = build_tokenizer()
    token_id = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    ends = {"eos_token_id": token_id["<|im_end|>"], "pad_token_id": token_id["<|endoftext|>"]}
    names = ("image_pad", "video_pad"), ("vision_start", "vision_end")
    special = {f"{name.removesuffix('_pad')}_token_id": token_id[f"<|{name}|>"] for pair in names for name in pair}
    torch.manual_seed(0)
    model = request.param({**TEXT, "vocab_size": len(tokenizer), **ends}, special)
    model.generation_config.update(**ends)
    sizes = {"min_pixels": MIN_PIXELS, "max_pixels": MAX_PIXELS, "patch_size": 16}
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**sizes),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(),
        chat_template=CHAT_TEMPLATE,
    )
    folder = tmp_path_factory.mktemp(request.param.__name__)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("schedule", ["strict", "minibatch4"])
def test_grpo_with_token_credit_trains_the_family(folder, schedule, data_dir, profile, tmp_path, coin_grader):
    recipe = load_recipe("grpo", data="geometry3k", credit="atrl", schedule=schedule)
    sizes = profile.training.model_copy(update={"num_rollouts": 1})
    one_rollout = profile.model_copy(update={"training": sizes})
    result = train(recipe, profile=one_rollout, base_model=folder, data_dir=data_dir, out=tmp_path, seed=0)
    lines = [json.loads(line) for line in (result.checkpoint / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == (1 if schedule == "strict" else 2)
    assert all(line["grad_norm"] > 0 and line["skipped_updates"] == 0 for line in lines)
    assert 0 < lines[0]["credit/mean_connectivity"] < 1
    assert lines[0]["credit/num_empty_visual"] == 0


def test_plain_trl_with_credit_trains_the_family(folder, data_dir, profile, tmp_path):
    from datasets import Dataset
    from transformers import AutoProcessor
    from trl import GRPOConfig, GRPOTrainer

    from atrl_bench.credit.trl import with_credit
    from atrl_bench.training.data import load_training_data

    data = load_training_data("geometry3k", data_dir)
    examples = [{name: data.example(row, 0)[name] for name in ("prompt", "images")} for row in range(2)]
    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 6, "max_steps": 1}
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "logging_steps": 1}
    trainer = with_credit(GRPOTrainer)(
        model=str(folder),
        reward_funcs=lambda completions, **_: [float(len(one[0]["content"])) for one in completions],
        args=GRPOConfig(output_dir=str(tmp_path), **sizes, **quiet),
        train_dataset=Dataset.from_list(examples),
        processing_class=AutoProcessor.from_pretrained(folder, padding_side="left"),
    )
    trainer.train()
    assert trainer.state.log_history[0]["credit/num_empty_visual"] == 0
    assert 0 < trainer.state.log_history[0]["credit/mean_connectivity"] < 1


def test_a_response_is_scored_as_by_a_plain_forward_pass_over_it_alone(
    folder, data_dir, profile, tmp_path, coin_grader
):
    recipe, rows = load_recipe("grpo", data="geometry3k"), (0, 1, 2, 3)
    with build_trainer(load_inputs(tmp_path, recipe, profile, str(folder), data_dir, 0)) as trainer:
        batch = rollout_of(trainer, rows)
    config = trainer.model.config
    for place, row in enumerate(row for row in rows for _ in range(4)):
        example = trainer.data.example(row, 0)
        messages = with_media(example["prompt"], example["images"], example["videos"])
        prompt_ids, visual = read_prompt(trainer.processing_class, messages, torch.float32)
        mask = batch.mask_BT[place].bool()
        ids = batch.response_ids_BT[place][mask]
        ids_1S = torch.cat([torch.tensor(prompt_ids), ids])[None]
        types_1S = token_types(ids_1S, config.image_token_id, config.video_token_id)
        with torch.no_grad():
            logits_SV = trainer.model(input_ids=ids_1S, mm_token_type_ids=types_1S, **visual).logits[0]
        expected = logits_SV[len(prompt_ids) - 1 : -1].log_softmax(-1).gather(1, ids[:, None])[:, 0]
        torch.testing.assert_close(batch.old_BT[place][mask], expected, atol=2e-5, rtol=0)

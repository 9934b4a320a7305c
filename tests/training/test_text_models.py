"""A model of text alone: refused before its weights are read, and credited in TRL by rules that look at no image."""

import pytest
import torch
import transformers
from trl import GRPOConfig, GRPOTrainer

from atrl_bench.credit.rule import looks_at_images
from atrl_bench.credit.rules import RULES
from atrl_bench.credit.trl import with_credit
from atrl_bench.errors import InvalidFileError
from atrl_bench.mini.model import CHAT_TEMPLATE, build_tokenizer
from atrl_bench.models.local import load, model_ref
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import load_inputs

WITHOUT_IMAGES = [name for name, rule in RULES.items() if not looks_at_images(rule)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = build_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    heads = {"num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96, **heads}
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("text")
    transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes, **ends)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trainer_of(rule, folder, tmp_path):
    from datasets import Dataset

    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 6, "max_steps": 1}
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "logging_steps": 1}
    return with_credit(GRPOTrainer, rule=rule)(
        model=str(folder),
        reward_funcs=lambda completions, **_: [float(number) for number in range(len(completions))],
        args=GRPOConfig(output_dir=str(tmp_path), **sizes, **quiet),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "What is 3?"}]}] * 4),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder, padding_side="left"),
    )


def test_it_is_refused_before_its_weights_are_read_and_what_works_is_said(folder, profile, data_dir, tmp_path):
    ref = model_ref(folder)
    (folder / "model.safetensors").rename(tmp_path / "away")
    try:
        recipe = load_recipe("grpo", data="geometry3k")
        for loads in (
            lambda: load_inputs(tmp_path, recipe, profile, str(folder), data_dir, 0),
            lambda: load(ref, min_pixels=56**2, max_pixels=56**2, dtype="float32"),
        ):
            with pytest.raises(InvalidFileError, match="is no vision-language model: qwen2 reads text alone") as error:
                loads()
            assert "rule='high_entropy'" in str(error.value)
    finally:
        (tmp_path / "away").rename(folder / "model.safetensors")


def test_rules_that_look_at_images_say_so_when_the_trainer_is_made(folder, tmp_path):
    others = ["high_entropy", "entropy_bonus", "probability_weighting", "relative_surprisal"]
    assert ["entropy_truncation", *others] == WITHOUT_IMAGES
    with pytest.raises(ValueError, match=r"model of text alone.*high_entropy, entropy_bonus"):
        trainer_of("atrl", folder, tmp_path)


@pytest.mark.parametrize("rule", WITHOUT_IMAGES)
def test_rules_by_what_the_policy_says_of_tokens_train_it(rule, folder, tmp_path):
    trainer = trainer_of(rule, folder, tmp_path)
    trainer.train()
    assert trainer.state.log_history[0]["credit/num_empty_visual"] == 4
    assert trainer.state.log_history[0]["grad_norm"] > 0

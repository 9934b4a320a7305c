"""`with_credit` over plain TRL: the same credit as in our own trainer, in three lines of anybody's."""

import math
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from plain_trl import SeededTRL, plain_trl
from trainer_parts import largest_difference, logged, weights_of
from transformers import AutoModelForImageTextToText
from trl import GRPOConfig, GRPOTrainer
from vlm_checkpoints import CHECKPOINTS

from atrl_bench.credit import CreditConfig, connectivity_density, credit_of_weights
from atrl_bench.credit.trl import TokenInputs, with_credit


@pytest.mark.parametrize(
    ("schedule", "rule", "settings"),
    [
        ("minibatch4", "atrl", {}),
        ("strict", "high_entropy", {"entropy_fraction": 0.4}),
        ("strict", "token_reweighting", {"black_probability": 0.7}),
    ],
)
def test_the_credit_equals_that_of_our_trainer(make_trainer, schedule, rule, settings):
    ours = make_trainer("grpo", schedule=schedule, credit={"rule": rule, "settings": settings})
    theirs = plain_trl(ours, with_credit(SeededTRL, rule, CreditConfig(**settings)), steps=0.05)
    ours.train()
    theirs.train()
    assert logged(theirs, "loss") == pytest.approx(logged(ours, "loss"), abs=1e-6)
    assert largest_difference(weights_of(theirs), weights_of(ours)) <= 1e-6
    assert max(logged(theirs, "credit/top15_share")) > 0.2, "uniform credit has 0.15: this one is none"


def test_with_vllm_the_credit_comes_from_the_pass_that_corrects_for_it(make_trainer):
    ours = make_trainer("grpo", schedule="strict", credit="atrl")
    theirs = plain_trl(ours, with_credit(SeededTRL))
    assert not theirs._scores_old_policy(), "one update a rollout: without vLLM there is no such pass"
    theirs.use_vllm = True  # what it sampled comes from `plain_trl`, as for every trainer here
    # A token that vLLM could not score has no correction, so the loss has to be that of our trainer.
    sampled = theirs._generate_single_turn

    def unscored(*arguments, **options):
        token_ids, _ = sampled(*arguments, **options)
        return token_ids, [[math.nan] * len(ids) for ids in token_ids]

    theirs._generate_single_turn = unscored
    ours.train()
    theirs.train()
    assert logged(theirs, "loss") == pytest.approx(logged(ours, "loss"), abs=1e-6)
    assert max(logged(theirs, "credit/top15_share")) > 0.2


def test_a_credit_of_one_is_plain_trl_bit_for_bit(make_trainer):
    ours = make_trainer("grpo", schedule="strict")
    plain, theirs = plain_trl(ours), plain_trl(ours, with_credit(SeededTRL, rule="uniform"))
    for trainer in (ours, plain, theirs):
        trainer.train()
    assert logged(theirs, "loss") == logged(plain, "loss")
    assert logged(theirs, "credit/entropy")[0] == pytest.approx(1.0)


def test_what_is_logged_of_the_credit_is_that_of_all_processes(make_trainer, monkeypatch):
    ours = make_trainer("grpo", schedule="strict")
    theirs = plain_trl(ours, with_credit(SeededTRL, rule="uniform"))

    def with_another(told):
        [own] = told
        thrice_as_many = 3 * own["credit/entropy"][1]
        return [own, {"credit/entropy": (0.5, thrice_as_many), "credit/num_empty_visual": (3.0, 1.0)}]

    monkeypatch.setattr("accelerate.utils.gather_object", with_another)
    ours.train()
    theirs.train()
    assert logged(theirs, "credit/entropy")[0] == pytest.approx((1.0 + 3 * 0.5) / 4)
    assert logged(theirs, "credit/num_empty_visual")[0] == 0 + 3


def shorter_is_better(completions, **_):
    return [-float(len(completion[0]["content"])) for completion in completions]


@pytest.fixture
def arguments(tmp_path):
    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 8, "max_steps": 2}
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1, "use_cpu": True}
    return {"output_dir": str(tmp_path / "out"), "learning_rate": 1e-3, **sizes, **quiet}


@pytest.fixture(scope="module")
def questions(data_dir):
    """Four problems as TRL wants them: messages, and the picture beside them."""
    from atrl_bench.training.data import load_training_data

    data = load_training_data("geometry3k", data_dir)
    examples = [data.example(row, 0) for row in range(4)]
    return Dataset.from_list([{name: example[name] for name in ("prompt", "images")} for example in examples])


def test_three_lines_train_the_shipped_base(arguments, questions):
    from transformers import AutoProcessor

    from atrl_bench.models.local import find_model

    base = find_model("mini").folder
    Trainer = with_credit(GRPOTrainer, rule="atrl")
    trainer = Trainer(
        model=str(base),
        reward_funcs=shorter_is_better,
        args=GRPOConfig(**arguments, model_init_kwargs={"dtype": "float32"}),
        train_dataset=questions,
        processing_class=AutoProcessor.from_pretrained(base, padding_side="left"),
    )
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.named_parameters())
    assert 0 < logged(trainer, "credit/mean_connectivity")[0] < 1
    assert logged(trainer, "credit/num_empty_visual")[0] == 0
    trainer.save_model()
    saved = AutoModelForImageTextToText.from_pretrained(arguments["output_dir"])
    assert saved.config.get_text_config()._attn_implementation == "sdpa", "the recording is no part of the model"


def look_twice(attention, config, seed):
    connectivity_T = connectivity_density(attention, config)
    return credit_of_weights(connectivity_T**2, connectivity_T, config, looked=2.0)


def test_another_family_trains_with_lora_and_a_rule_of_ones_own(arguments, questions):
    """LLaVA, whose processor tells no kinds of tokens: its images are found by their placeholders."""
    from peft import LoraConfig

    torch.manual_seed(0)
    model, processor = CHECKPOINTS["llava"]()
    trainer = with_credit(GRPOTrainer, rule=look_twice)(
        model=model,
        reward_funcs=shorter_is_better,
        args=GRPOConfig(**{**arguments, "beta": 0.04, "steps_per_generation": 2, "bf16": False}),
        train_dataset=questions,
        processing_class=processor,
        peft_config=LoraConfig(r=2, target_modules="all-linear"),
    )
    trainer.train()
    assert logged(trainer, "credit/looked")[0] == 2.0
    assert 0 < logged(trainer, "credit/mean_connectivity")[0] < 1


def test_a_sequence_level_ratio_is_refused_since_credit_would_do_nothing(make_trainer):
    ours = make_trainer("gspo")
    with pytest.raises(ValueError, match="a credit would change nothing"):
        plain_trl(ours, with_credit(SeededTRL))


def test_a_second_look_is_a_pass_also_where_nothing_is_shown_which_changes_nothing(mini_processor):
    """Of processes that share a model one may have a text where another has an image: all take as many passes."""
    calls, told = [], SimpleNamespace(log_probs=torch.tensor([[-1.0, -2.0]]))
    inputs = {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 3)}
    looking = TokenInputs(frozenset({"blackened_logprob"}), CreditConfig(), mini_processor, 0)

    def model(**given):
        calls.append(given)
        return SimpleNamespace(log_probs=torch.zeros(1, 2))

    nothing_BS = torch.zeros(1, 3, dtype=torch.bool)
    assert looking.of_pass(model, inputs, told, nothing_BS, 2)["blackened_logprob_BT"].tolist() == [[-1.0, -2.0]]
    assert calls == [inputs]


def test_an_unknown_rule_is_noticed_before_anything_is_built():
    from atrl_bench.errors import UnknownNameError

    with pytest.raises(UnknownNameError, match="Did you mean atrl"):
        with_credit(GRPOTrainer, rule="atrll")

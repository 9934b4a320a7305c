"""Every credit rule with every base objective, through the one field: each is a recipe whose trainer can be made."""

from dataclasses import replace

import pytest

from atrl_bench.credit import RULES, CreditConfig
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.weights.credit import credit_config

# Every recipe that trains on images by rollouts, and so may have any credit.
BASES = (
    "grpo",
    "dapo",
    "gspo",
    "sapo",
    "ft_rl",
    "vppo",
    "grpo_kl_free",
    "grpo_entropy_bonus",
    "reinforce",
    "step_grpo",
)


@pytest.fixture
def start(base_folder, data_dir, profile, tmp_path):
    """A run about to be built, whose recipe is still to be chosen; the model is loaded once."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from atrl_bench.training.data import load_training_data
    from atrl_bench.training.policy import trainable
    from atrl_bench.training.trainer import TrainerInputs

    model = trainable(AutoModelForImageTextToText.from_pretrained(base_folder), load_recipe("grpo"), profile, 0)
    processor = AutoProcessor.from_pretrained(base_folder, padding_side="left")
    data = load_training_data("geometry3k", data_dir)
    data = replace(data, problems=[replace(problem, key_steps=(("7",),)) for problem in data.problems])
    return TrainerInputs(None, profile, tmp_path, model, processor, data, 0)


@pytest.mark.parametrize("base", BASES)
def test_each_rule_is_one_changed_field_of_each_objective_and_its_trainer_has_it(start, base):
    from atrl_bench.training.rollouts import build

    plain = load_recipe(base).model_dump()
    for rule, function in RULES.items():
        recipe = load_recipe(base, credit=rule)
        changed = {field for field, value in recipe.model_dump().items() if value != plain[field]}
        assert changed == (set() if rule == "uniform" else {"credit"}), rule
        assert credit_config(recipe.credit) == CreditConfig(), rule
        with build(replace(start, recipe=recipe)) as trainer:
            assert (trainer.credit is None) == (rule == "uniform")
            assert trainer.credit is None or trainer.credit.rule is function
            trainer.release()

"""How many of what a run has, by its recipe and profile."""

import pytest

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.models.shape import model_shape
from atrl_bench.profiles import load_profile
from atrl_bench.training.arguments import at_once, most_devices, num_rollouts
from atrl_bench.training.describe import resolved_arguments
from atrl_bench.training.recipe import list_recipes, load_recipe


def test_sapo_with_credit_under_the_paper_profile_is_the_papers_run():
    resolved = resolved_arguments(load_recipe("sapo", credit="atrl"), load_profile("paper"), num_devices=4)
    updates, recipe = resolved["updates"], resolved["recipe"]
    assert resolved["model"]["base"] == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert (recipe["objective"], recipe["kl_coef"], updates["learning_rate"]) == ("sapo", 0.0, 1e-6)
    # 38,870 problems in rollouts of 512, four updates each.
    assert resolved["rollouts"]["number"] == 75
    assert updates["number"] == 300
    # 512 problems * 8 responses / 4 updates, in micro-batches of 4 on each of four devices.
    assert updates["responses_each"] == 1024 == updates["responses_at_once"] * updates["micro_batches"] * 4
    assert (updates["responses_at_once"], updates["micro_batches"]) == (4, 64)


def test_a_rollout_that_does_not_divide_evenly_says_which_sizes_to_change():
    with pytest.raises(InvalidFileError, match="32 cannot be divided by 3 devices"):
        at_once(load_recipe("grpo"), load_profile("mini"), 3)


def test_a_device_takes_as_many_at_once_as_it_may_and_as_divide_its_share():
    # 128 completions, four updates of 32 each: two devices have 16 of an update, of which 12 are allowed, so 8 at once.
    recipe = load_recipe("grpo", overrides={"completions_per_device": 12})
    assert at_once(recipe, load_profile("mini"), 2) == 8
    assert at_once(load_recipe("dpo", overrides={"completions_per_device": 12}), load_profile("mini"), 2) == 8, "pairs"


@pytest.mark.parametrize("name", list_recipes())
@pytest.mark.parametrize("profile", ["mini", "smoke"])
def test_mini_and_smoke_run_on_two_four_and_eight_processes(name, profile):
    recipe = load_recipe(name)
    spread = [most_devices(recipe, load_profile(profile), count) for count in (2, 4, 8)]
    # An update of smoke's DPO takes four pairs: one for each of four processes.
    assert spread == ([2, 4, 4] if (name, profile) == ("dpo", "smoke") else [2, 4, 8])


def test_a_run_is_spread_over_as_many_devices_as_share_an_update_evenly():
    # 1024 completions an update under `paper`, and 24 with these sizes.
    assert most_devices(load_recipe("grpo"), load_profile("paper"), 7) == 4
    recipe = load_recipe("grpo", overrides={"prompts_per_rollout": 12})
    assert [most_devices(recipe, load_profile("mini"), count) for count in (1, 5, 7, 30)] == [1, 4, 6, 24]


def test_without_a_number_of_rollouts_the_epochs_and_the_data_decide():
    recipe, paper = load_recipe("grpo", data="geometry3k"), load_profile("paper")
    assert num_rollouts(recipe, paper) == 2101 // 512
    assert num_rollouts(recipe, paper, num_problems=100) == 1


def test_an_unknown_credit_rule_or_setting_is_found_before_anything_is_loaded():
    mini = load_profile("mini")
    with pytest.raises(UnknownNameError, match="Did you mean atrl"):
        resolved_arguments(load_recipe("grpo", credit="atrll"), mini)
    credit = {"rule": "hard_truncation", "settings": {"keep_fraction": 0.2}}
    with pytest.raises(UnknownNameError, match="Did you mean kept_fraction"):
        resolved_arguments(load_recipe("grpo", credit=credit), mini)


def test_the_size_of_a_local_model_is_read_from_its_files(base_folder, tiny_model):
    assert model_shape(str(base_folder)).num_parameters == sum(value.numel() for value in tiny_model.parameters())
    assert model_shape("somebody/unknown-model") is None

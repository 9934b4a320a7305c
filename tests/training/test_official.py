"""What a method's authors run is in one file; how a run differs from it is computed, and the pages say the same."""

import re
from pathlib import Path

import pytest

from atrl_bench.profiles import load_profile
from atrl_bench.training.describe import differences, official_settings, resolved_arguments, resolved_settings
from atrl_bench.training.recipe import load_recipe

PAPER, MINI = load_profile("paper"), load_profile("mini")
METHODS = Path(__file__).parents[2] / "docs" / "methods"
# A table of a page stands behind the recipe's name: `dapo` under `--profile paper` against ...
TABLE = re.compile(r"^`(\w+)` under `--profile paper` against (.+?)\. `[^`]+` says the same\.\n\n((?:\|.*\n)+)", re.M)
ON_PAGES = {
    name: (page.name, source, rows)
    for page in METHODS.glob("*.md")
    for name, source, rows in TABLE.findall(page.read_text(encoding="utf-8"))
}


def differing(recipe, profile=PAPER, **overrides):
    return {each.setting: (each.here, each.official) for each in differences(load_recipe(recipe, **overrides), profile)}


def test_what_differs_is_computed_from_the_settings_of_the_run():
    assert set(differing("vppo")) == {"num_epochs", "top_p", "template", "dual clip"}
    sizes = {"updates_per_rollout": 3, "num_epochs": 2, "top_p": 0.99}
    changed = differing("vppo", overrides=sizes, template="think-then-box")
    assert set(changed) == {"dual clip"}
    assert differing("grpo") == {"updates_per_rollout": ("4", "1")}
    assert differing("grpo", schedule="strict") == {}


def test_t_grpo_has_its_official_scale_under_paper_and_the_profiles_under_mini():
    recipe = load_recipe("t_grpo")
    assert set(differing("t_grpo")) == {"format_reward", "max_prompt_tokens"}
    updates = resolved_arguments(recipe, PAPER)["updates"]
    names = ("number", "learning_rate_schedule", "max_grad_norm")
    assert tuple(updates[name] for name in names) == (1200, "cosine", 5.0)
    assert recipe.sizes(MINI) == MINI.training


def test_the_warm_up_of_step_grpo_is_what_its_recipe_cites():
    updates = resolved_arguments(load_recipe("sft_steps"), PAPER)["updates"]
    # 10,000 examples twice, eight an update.
    assert (updates["number"], updates["learning_rate"], updates["learning_rate_schedule"]) == (2500, 5e-6, "cosine")


def test_on_generated_data_sizes_are_not_compared():
    assert "group_size" not in differing("dapo", MINI)
    assert "dual clip" in differing("dapo", MINI)


@pytest.mark.parametrize("name", official_settings())
def test_every_official_setting_has_a_name_that_a_run_knows(name):
    assert official_settings()[name].values.keys() <= resolved_settings(load_recipe(name), PAPER).keys()


def test_a_dry_run_says_how_it_differs():
    assert resolved_arguments(load_recipe("sapo"), PAPER)["official"] == {
        "source": "verl's examples for SAPO; arXiv 2511.20347",
        "differs": {"prompts_per_rollout": {"here": "512", "official": "256"}},
    }
    assert "official" not in resolved_arguments(load_recipe("dpo"), PAPER)


@pytest.mark.parametrize("name", sorted(ON_PAGES))
def test_the_page_of_a_method_says_how_it_differs(name):
    _, source, rows = ON_PAGES[name]
    expected = [f"| {each.setting} | {each.here} | {each.official} |" for each in differences(load_recipe(name), PAPER)]
    assert rows.splitlines()[2:] == expected
    assert source == official_settings()[name].source


def test_every_method_that_differs_has_its_table_on_a_page():
    differing_recipes = {name for name in official_settings() if differences(load_recipe(name), PAPER)}
    assert differing_recipes - {"step_grpo_warm"} == set(ON_PAGES)

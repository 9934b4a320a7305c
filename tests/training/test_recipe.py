"""Recipe files: inheritance, what they forbid, and that a mistake is answered with file, line and field."""

import re
from typing import get_args

import pytest

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import KINDS, first_stage, load_recipe, stages_of


def test_ft_rl_is_dapo_on_a_fifth_of_the_tokens():
    dapo, ft_rl = load_recipe("dapo").model_dump(), load_recipe("ft_rl").model_dump()
    assert {field for field in dapo if dapo[field] != ft_rl[field]} == {"name", "title", "entropy_fraction"}
    assert ft_rl["entropy_fraction"] == 0.2


def test_a_recipe_written_out_in_full_reads_back_as_itself(tmp_path):
    recipe = load_recipe("ft_rl", credit={"rule": "atrl", "preset": "literal", "settings": {"num_layers": 2}})
    path = tmp_path / "mine.yaml"
    path.write_text(recipe.as_yaml(), encoding="utf-8")
    assert load_recipe(path) == recipe


def test_a_rule_given_by_name_keeps_the_preset_of_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: grpo\nname: mine\ncredit: {rule: uniform, preset: literal}\n", encoding="utf-8")
    credit = load_recipe(path, credit="atrl").credit
    assert (credit.rule, credit.preset) == ("atrl", "literal")


def test_a_setting_of_the_credit_is_given_like_a_field_and_by_the_symbol_of_the_paper(tmp_path):
    (path := tmp_path / "mine.yaml").write_text(
        "base: grpo\nname: mine\ncredit: {rule: atrl, preset: literal, settings: {partitions: 2, num_layers: 8}}\n",
        encoding="utf-8",
    )
    credit = load_recipe(path, tau_sim=0.8, partitions=3).credit
    assert (credit.rule, credit.preset) == ("atrl", "literal")
    assert credit.settings == {"partitions": 3, "num_layers": 8, "min_edge_similarity": 0.8}
    assert load_recipe("grpo", credit="atrl", R=2).credit.settings == {"num_neighbours": 2}
    with pytest.raises(InvalidFileError, match="a setting of a credit rule, and this credit is uniform"):
        load_recipe("grpo", tau_sim=0.8)
    with pytest.raises(UnknownNameError, match="Unknown recipe field"):
        load_recipe("sft_steps", tau_sim=0.8)


VPPO = {"black_probability": 0.5, "kept_fraction": 0.4, "min_scale": 0.9, "entropy_penalty": 0.06}


def write(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_wrong_type_inside_a_field_is_named_with_its_line(tmp_path):
    path = write(
        tmp_path, "base: dapo\nname: mine\ndynamic_sampling:\n  oversampling: 2\n  max_extra_generations: no\n"
    )
    with pytest.raises(InvalidFileError, match=r"mine\.yaml:5: field 'dynamic_sampling.max_extra_generations'"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("learning_rate: 1e-4", "it is a size, and stands in overrides: {learning_rate: ...}"),
        ("learning_rat: 1e-4", "no such field; near: learning_rate"),
        ("clip_hihg: 0.3", "no such field; near: clip_high"),
    ],
)
def test_a_field_that_a_recipe_does_not_have_is_told_with_the_one_that_was_meant(tmp_path, line, why):
    with pytest.raises(InvalidFileError, match=re.escape(why)):
        load_recipe(write(tmp_path, f"base: grpo\nname: mine\n{line}\n"))


def test_a_wrong_option_is_named_as_the_option_it_was():
    with pytest.raises(InvalidFileError, match="schedule='weekly'"):
        load_recipe("grpo", schedule="weekly")


@pytest.mark.parametrize("text", ["base: nothing\nname: mine\n", "base: mine\nname: mine\n"])
def test_a_base_that_is_missing_or_circular_is_the_line_of_the_base(tmp_path, text):
    with pytest.raises(InvalidFileError, match=r"mine\.yaml:1: field 'base'"):
        load_recipe(write(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("sapo", {"clip_low": 0.2}, "does not read clip_low"),
        ("grpo", {"clip_low": None}, "needs clip_low"),
        ("grpo", {"sapo_temperature_negative": 1.0}, "does not read sapo_temperature_negative"),
        ("grpo", {"entropy_fraction": 0.2}, "needs objective 'dapo'"),
        ("ft_rl", {"kl_coef": 0.02}, "divides by the selected tokens, the KL term is of all"),
        ("t_grpo", {"vppo": VPPO}, "vppo blackens images, temporal reorders the frames of videos"),
        ("grpo", {"overrides": {"learning_rats": 1.0}}, "no such size: learning_rats"),
    ],
)
def test_a_field_that_the_objective_does_not_read_or_cannot_go_with_is_refused(name, overrides, message):
    with pytest.raises(InvalidFileError, match=message):
        load_recipe(name, **overrides)


def test_strict_makes_one_update_per_rollout_and_minibatch4_as_many_as_the_profile():
    sizes = load_profile("mini").training
    assert load_recipe("grpo", schedule="strict").updates_per_rollout(sizes) == 1
    assert load_recipe("grpo").updates_per_rollout(sizes) == sizes.updates_per_rollout == 4


def test_a_size_may_be_given_like_a_field_and_by_the_short_name_that_people_use():
    recipe, mini = load_recipe("vppo", learning_rate="2e-6", batch=8, max_tokens=24, kl=0.5), load_profile("mini")
    sizes = recipe.sizes(mini)
    assert (sizes.learning_rate, sizes.prompts_per_rollout, sizes.max_response_tokens) == (2e-6, 8, 24)
    assert (recipe.kl_coef, sizes.updates_per_rollout) == (0.5, 3), "the file's other sizes stay"
    of_mini = {"overrides": {"learning_rate": 1e-3, "mini": {"learning_rate": 1e-4, "group_size": 4}}}
    sizes = load_recipe("grpo", **of_mini, learning_rate=2e-6).sizes(mini)
    assert (sizes.learning_rate, sizes.group_size) == (2e-6, 4), "what is given goes before a profile's own"


def test_a_size_of_a_wrong_kind_is_said_when_the_recipe_is_read():
    with pytest.raises(InvalidFileError, match=r"^learning_rate='fast': Input should be a valid number"):
        load_recipe("grpo", learning_rate="fast", group_size=4)
    with pytest.raises(InvalidFileError, match="max_response_tokens=0: Input should be greater than 0"):
        load_recipe("grpo", max_tokens=0)


@pytest.mark.parametrize(
    ("text", "given", "field"),
    [
        ("overrides:", {"learning_rate": 1e-5}, "overrides"),
        ("credit: {rule: atrl, settings: }", {"tau_sim": 0.5}, "credit.settings"),
    ],
)
def test_fields_that_a_file_leaves_empty_are_said_to_be_so_also_where_one_of_them_is_given(
    tmp_path, text, given, field
):
    path = write(tmp_path, f"base: grpo\nname: mine\n{text}\n")
    for overrides in ({}, given):
        with pytest.raises(InvalidFileError, match=f"field '{field}': Input should be a valid dictionary"):
            load_recipe(path, **overrides)


def test_a_recipe_that_starts_from_its_own_checkpoint_is_named(tmp_path):
    path = write(tmp_path, f"base: grpo\nname: mine\nstart_from: {tmp_path / 'mine.yaml'}\n")
    for stages in (stages_of, first_stage):
        with pytest.raises(
            InvalidFileError, match=r"Recipe mine starts from .*mine\.yaml, and that in the end from its"
        ):
            stages(load_recipe(path))
    assert [stage.name for stage in stages_of(load_recipe("t_grpo"))] == ["sft_video", "t_grpo"]
    assert first_stage(load_recipe("grpo")) is None


def test_no_shipped_file_is_to_be_edited_for_what_was_given(tmp_path):
    with pytest.raises(InvalidFileError, match="grpo with clip_low=None") as error:
        load_recipe("grpo", clip_low=None)
    assert "edit" not in str(error.value)


def test_every_field_of_a_recipe_says_what_it_is():
    for kind in KINDS.values():
        for name, field in kind.model_fields.items():
            classes = [
                part for part in (field.annotation, *get_args(field.annotation)) if hasattr(part, "model_fields")
            ]
            assert field.description or (classes and classes[0].__doc__), f"{kind.__name__}.{name}"

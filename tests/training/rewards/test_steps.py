"""StepGRPO's rewards on chains written for the purpose, and what a training set says about its chains."""

import json

import pytest
import torch

from atrl_bench.errors import MissingDataError
from atrl_bench.profiles import load_profile
from atrl_bench.training.arguments import reward_weights
from atrl_bench.training.data import load_training_data
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rewards.steps import (
    SectionMarks,
    chain_validity,
    check_key_steps,
    final_answer,
    is_valid,
    key_step_match,
    key_step_share,
    numbered_steps,
    read_key_steps,
)

CHAIN = """### Image Description:
A right triangle with legs 3 and 4.
### Rationales:
The Pythagorean theorem.
### Step 1:
The squares are 3^2 = 9 and 4^2 = 16.
### Step 2:
Their sum is 25, so the hypotenuse is 5.
### The final answer is:
5"""

MINI_MARKS = SectionMarks("The image shows", "Find the", "({})", "The answer is")
MINI_CHAIN = r"The image shows 3 4 5. Find the sum. (1) 3+4=7. (2) 7+5=12. The answer is \boxed{12}."


def test_a_step_ends_where_the_next_section_begins():
    assert numbered_steps(CHAIN) == [
        (1, "The squares are 3^2 = 9 and 4^2 = 16."),
        (2, "Their sum is 25, so the hypotenuse is 5."),
    ]


@pytest.mark.parametrize(
    ("key_steps", "share"),
    [
        ([("9", "nine"), ("THE SUM IS 25", "their SUM is 25"), ("tangent",)], 2 / 3),  # any alternative of a group
        ([("Pythagorean",), ("right triangle",)], 0),  # in the rationales and the description: no steps
        ([("5.",)], 0),  # in the answer
        ([("", " ")], 0),  # an empty alternative matches nothing
        ([], 0),
    ],
)
def test_the_share_counts_the_key_steps_that_the_steps_mention(key_steps, share):
    chain = CHAIN.replace("hypotenuse is 5", "hypotenuse follows")
    assert key_step_share(chain, key_steps) == pytest.approx(share)


def test_a_chain_with_every_section_in_order_is_valid():
    assert is_valid(CHAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("### Image Description:", "### Picture:"),
        ("### Rationales:", ""),
        ("### Step 1:", "### Step 2:"),  # numbered 2, 2
        ("### Step 2:", "### Step 3:"),  # 1, 3
        ("### The final answer is:", "So it is"),
        ("### Rationales:", "### Rationales:\n### The final answer is: 5"),  # before the steps
        ("### Step 2:", "### The final answer is: 5\n### Step 2:"),  # between them
    ],
)
def test_a_chain_with_a_section_missing_or_out_of_order_is_not(old, new):
    assert not is_valid(CHAIN.replace(old, new))


def test_steps_in_the_wrong_order_are_not_valid():
    swapped = CHAIN.replace("Step 1", "Step X").replace("Step 2", "Step 1").replace("Step X", "Step 2")
    assert not is_valid(swapped)


def test_the_mini_worlds_marks_are_read_like_the_official_ones():
    assert is_valid(MINI_CHAIN, MINI_MARKS)
    assert not is_valid(MINI_CHAIN)
    assert key_step_share(MINI_CHAIN, [("3+4=7", "3 + 4 = 7"), ("7+5=12",), ("9",)], MINI_MARKS) == pytest.approx(2 / 3)
    assert final_answer(MINI_CHAIN, MINI_MARKS) == r"\boxed{12}"


def test_the_final_answer_is_the_first_line_of_the_last_section_or_the_whole_text():
    assert final_answer(CHAIN) == "5"
    assert final_answer("### The final answer is: 7\nbecause") == "7"
    assert final_answer("42") == "42"


def test_key_steps_are_read_as_published_or_as_a_list_and_anything_else_is_none():
    assert read_key_steps({"Image Description": ["a"], "Steps": [["x", "y"], "z"]}) == (("x", "y"), ("z",))
    assert read_key_steps([["x"], [], [None], [" "]]) == (("x",),)
    assert read_key_steps(None) == read_key_steps("x") == read_key_steps({}) == ()


def test_the_reward_functions_take_what_trl_hands_them():
    completions = [[{"role": "assistant", "content": text}] for text in (CHAIN, MINI_CHAIN)]
    marks, steps = [SectionMarks(), MINI_MARKS], [[("25",)], [("7",), ("8",)]]
    assert key_step_match(completions=completions, key_steps=steps, section_marks=marks, answer=[]) == [
        1,
        0.5,
    ]
    assert chain_validity(completions=completions, section_marks=marks[::-1]) == [0, 0]
    assert chain_validity(completions=completions, section_marks=marks) == [1, 1]


def test_a_right_answer_is_worth_one_a_full_set_of_key_steps_a_tenth_and_the_form_one():
    accuracy, key_steps, validity = reward_weights(load_recipe("step_grpo"))
    assert accuracy * (1 - -1) == 1
    assert (key_steps, validity) == (0.1, 1)
    with_length = load_recipe("step_grpo", overlong_cache_fraction=0.2)
    assert reward_weights(with_length) == [0.5, 0.5, 0.1, 1]
    assert reward_weights(load_recipe("grpo")) is None
    # Typed accuracy from 0 to 1, the format, the two bonuses of T-GRPO, key steps, validity.
    beside_typed = load_recipe("t_grpo", step_rewards={"key_steps": 0.1, "validity": 1}, format_reward=1)
    assert reward_weights(beside_typed) == [1, 1, 1, 1, 0.1, 1]


def test_a_set_without_key_steps_is_answered_with_the_command_that_makes_them():
    with pytest.raises(MissingDataError, match="atrl-bench key-steps virl39k"):
        check_key_steps("virl39k", [(), ()])
    check_key_steps("virl39k", [(), (("7",),)])


# The mini world's chains ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    from atrl_bench.mini.world import write_world

    return write_world(tmp_path_factory.mktemp("world"), load_profile("smoke"), ["r1_vl"])


def test_every_chain_of_the_mini_set_earns_all_three_rewards_and_fits_a_response(chains, mini_processor):
    from atrl_bench.grading.grade import grade
    from atrl_bench.results.records import Gold

    data = load_training_data("r1_vl", chains)
    assert not data.left_out
    for problem in data.problems:
        assert is_valid(problem.process, problem.section_marks)
        assert key_step_share(problem.process, problem.key_steps, problem.section_marks) == 1
        assert grade(problem.process, Gold(problem.answer)).state == "correct"
        # One more ends the response.
        assert len(mini_processor.tokenizer(problem.process)["input_ids"]) < 48


def test_the_picture_of_a_chain_is_the_problems_own(chains):
    data = load_training_data("r1_vl", chains)
    assert len({problem.images for problem in data.problems}) > len(data.problems) / 2
    example = data.example(0, 0)
    assert example["images"][0].size[0] >= 56
    assert example["section_marks"] == MINI_MARKS


def test_extracted_key_steps_beside_a_table_are_those_of_its_problems(data_dir, tmp_path):
    from shutil import copytree

    copytree(data_dir / "geometry3k", tmp_path / "geometry3k")
    lines = [json.dumps({"problem_id": "3", "key_steps": [["a", "b"]]}), '{"problem_id": "4", "key']
    (tmp_path / "geometry3k" / "geometry3k.key_steps.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = {problem.problem_id: problem.key_steps for problem in load_training_data("geometry3k", tmp_path).problems}
    assert found["3"] == (("a", "b"),)
    assert found["4"] == found["5"] == ()


def test_step_grpo_trains_on_the_sum_of_the_three_rewards(open_trainer, chains, coin_grader):
    trainer = open_trainer(load_recipe("step_grpo"), chains)
    assert trainer.rewards.names == ["accuracy", "key_step_match", "chain_validity"]
    valid = iter([1.0, 0.0] * 100)
    trainer.rewards.functions[2] = lambda completions, **_: [next(valid) for _ in completions]
    trainer.train()
    first = next(line for line in trainer.lines if "rewards/accuracy/mean" in line)
    # Nothing a random model says has steps; half of it is called valid here.
    assert first["rewards/key_step_match/mean"] == 0
    assert first["rewards/chain_validity/mean"] == 0.5
    assert first["reward"] == pytest.approx(0.5 * first["rewards/accuracy/mean"] + 0.5)
    assert torch.isfinite(torch.tensor(first["loss"]))


def test_after_the_warm_up_it_is_the_same_recipe_from_another_start():
    cold, warm = load_recipe("step_grpo").model_dump(), load_recipe("step_grpo_warm").model_dump()
    assert {field for field in cold if cold[field] != warm[field]} == {"name", "title", "start_from"}
    taught = load_recipe(warm["start_from"])
    assert (taught.method, taught.data, taught.response) == ("supervised", "r1_vl", "process")

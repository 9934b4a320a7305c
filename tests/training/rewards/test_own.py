"""A reward of the user's own: in a file, in a module, beside the shipped one, and with mistakes in it."""

import json

import pytest
from trainer_parts import logged, noted

from atrl_bench.data.dataset import data_digest
from atrl_bench.data.sets import find_set
from atrl_bench.errors import AtrlBenchError, InvalidFileError, UnknownNameError
from atrl_bench.models.local import model_ref
from atrl_bench.profiles import load_profile
from atrl_bench.training.arguments import reward_weights
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.rewards.registry import find_reward
from atrl_bench.training.run import train
from atrl_bench.training.run_spec import run_spec

CODE = """
import torch
from atrl_bench.training.rewards import GroupReward

def brief(completions, level, **_):
    return [1.0 if len(one[0]["content"]) < 10 * of else 0.0 for one, of in zip(completions, level)]

async def later(completions, **columns):
    return brief(completions, **columns)

def none_for_easy(completions, level, **_):
    return [None if of < 2 else 1.0 for of in level]

def too_few(completions, **_):
    return [1.0]

def broken(completions, **_):
    return [completion["content"] for completion in completions]

def short(prompts, completions, completion_ids, hint, **_):
    return [float(len(ids) < 5) for ids in completion_ids]

def words(completions, **_):
    return ["good"] * len(completions)

def pairs(completions, **_):
    return [[1.0, 2.0]] * len(completions)

def endless(completions, **_):
    return [0.0, float("-inf")] * (len(completions) // 2)

class Endless(GroupReward):
    def of_groups(self, groups, tools):
        return [torch.full((len(group.response_ids),), torch.inf) for group in groups]

class Shortest(GroupReward):
    def of_groups(self, groups, tools):
        lengths = [torch.tensor([float(len(ids)) for ids in group.response_ids]) for group in groups]
        return [(lengths_G == lengths_G.min()).float() for lengths_G in lengths]
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def questions(tmp_path):
    rows = [{"question": f"{n} + 0?", "answer": str(n), "level": n % 3} for n in range(16)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(tmp_path / "mine.jsonl")


@pytest.mark.parametrize("name", ["brief", "later"])
def test_it_is_called_as_trl_calls_one_with_the_columns_of_the_set(code, name):
    reward = find_reward(f"{code}:{name}").make(None)
    completions = [[{"role": "assistant", "content": "7"}], [{"role": "assistant", "content": "x" * 30}]]
    assert reward(completions=completions, level=[1, 2], answer=["7", "7"]) == [1.0, 0.0]
    assert reward.__name__ == name
    assert reward(completions=completions, level=[1, 2], self=[0, 0]) == [1.0, 0.0], "a column may have any name"


def test_a_training_is_paid_by_it_beside_the_accuracy(open_trainer, code, questions, coin_grader):
    recipe = load_recipe("grpo", credit="atrl", data=questions, rewards=f"accuracy + {code}:brief")
    trainer = open_trainer(recipe, None)
    assert trainer.rewards.names == ["accuracy", "brief"]
    trainer.train()
    lines = [line for line in trainer.lines if "rewards/brief/mean" in line]
    assert lines
    assert all(0 <= line["rewards/brief/mean"] <= 1 for line in lines)
    for line in lines:
        assert line["reward"] == pytest.approx(line["rewards/accuracy/mean"] + line["rewards/brief/mean"])
    assert lines[0]["credit/num_empty_visual"] == 16, "rows of text train, and have no visual credit"


def test_two_of_one_name_have_metrics_of_their_own_as_terms_of_the_loss_do(open_trainer, code, questions, tmp_path):
    """Each is called `brief`; the second pays half of what the first does."""
    (tmp_path / "half.py").write_text(
        "def brief(completions, **_):\n    return [0.5] * len(completions)\n\n"
        "def cost(batch, scored):\n    return 2.0 * batch.mask_BT\n"
    )
    (tmp_path / "whole.py").write_text("def cost(batch, scored):\n    return 1.0 * batch.mask_BT\n")
    recipe = load_recipe(
        "grpo",
        data=questions,
        rewards=f"{code}:brief + {tmp_path}/half.py:brief",
        losses={f"{tmp_path}/whole.py:cost": {}, f"{tmp_path}/half.py:cost": {}},
        overrides={"num_rollouts": 1},
    )
    trainer = open_trainer(recipe, None)
    trainer.train()
    assert trainer.rewards.names == ["brief", "brief_2"]
    assert logged(trainer, "rewards/brief_2/mean") == [0.5]
    assert (logged(trainer, "loss/cost")[0], logged(trainer, "loss/cost_2")[0]) == (1.0, 2.0)


def test_the_accuracy_is_a_share_whatever_stands_first_pays(open_trainer, questions, tmp_path):
    (tmp_path / "high.py").write_text(
        "def high(completions, **_):\n    return [3.0, 0.5, -1.0, 0.5] * (len(completions) // 4)\n"
    )
    recipe = load_recipe("grpo", data=questions, rewards=f"{tmp_path}/high.py:high", overrides={"num_rollouts": 1})
    trainer = open_trainer(recipe, None)
    trainer.train()
    # 3 counts as 1 and -1 as 0: (1 + 0.5 + 0 + 0.5) / 4; the reward is what it is: (3 + 0.5 - 1 + 0.5) / 4.
    assert (logged(trainer, "accuracy"), logged(trainer, "rewards/high/mean")) == ([0.5], [0.75])


def test_a_column_of_ones_own_reaches_it_whatever_it_is_called(open_trainer, tmp_path):
    names = ("kind", "truth", "level")
    rows = [{"question": f"{n} + 0?", "answer": str(n)} | dict.fromkeys(names, f"mine {n}") for n in range(16)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "mine.py").write_text(
        "def same(completions, kind, truth, level, **_):\n"
        "    return [float(a == b == c == 'mine 3') for a, b, c in zip(kind, truth, level)]\n"
    )
    trainer = open_trainer(load_recipe("grpo", data=f"{tmp_path}/mine.jsonl", rewards=f"{tmp_path}/mine.py:same"), None)
    assert [group.accuracies.tolist() for group in trainer.generate([3, 4], "0:0")] == [[1.0] * 4, [0.0] * 4]


def test_one_with_nothing_to_say_of_a_whole_rollout_is_named_once(open_trainer, code, questions):
    trainer = open_trainer(load_recipe("grpo", data=questions, rewards=f"{code}:none_for_easy"), None)
    with pytest.warns(UserWarning, match="Reward none_for_easy teaches nothing there"):
        trainer.generate([0, 1, 3], "0:0")  # levels zero and one
    trainer.generate([0, 1, 3], "1:0")  # where a warning would be an error


@pytest.mark.parametrize("name", ["endless", "Endless"])
def test_one_that_is_infinite_is_refused_by_name(open_trainer, code, questions, name):
    trainer = open_trainer(load_recipe("grpo", data=questions, rewards=f"accuracy + {code}:{name}"), None)
    with pytest.raises(AtrlBenchError, match=f"Reward {name} is infinite"):
        trainer.generate([0], "0:0")


def test_one_that_compares_the_responses_to_a_problem_is_asked_when_all_are_there(open_trainer, code, questions):
    trainer = open_trainer(load_recipe("grpo", data=questions, rewards=f"{code}:Shortest"), None)
    for group in trainer.generate([0, 1], "0:0"):
        lengths = [len(ids) for ids in group.response_ids]
        assert group.accuracies.tolist() == [float(length == min(lengths)) for length in lengths]


def test_greedy_answers_on_the_way_are_graded_by_it_also_where_rows_differ_in_columns(open_trainer, code, tmp_path):
    rows = [{"question": f"{n} + 0?", "answer": str(n)} | ({"hint": "count"} if n % 2 else {}) for n in range(16)]
    (tmp_path / "hints.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sizes = {"checks": 1, "num_rollouts": 1}
    recipe = load_recipe("grpo", data=f"{tmp_path}/hints.jsonl", rewards=f"{code}:short", overrides=sizes)
    trainer = open_trainer(recipe, None)
    trainer.train()
    assert len(logged(trainer, "check/greedy")) == 1


def test_a_response_that_it_has_nothing_to_say_of_has_no_reward_and_no_advantage(open_trainer, code, questions):
    trainer = open_trainer(load_recipe("grpo", data=questions, rewards=f"{code}:none_for_easy"), None)
    rollout, *_ = trainer.make_rollout([0, 2])  # levels zero and two
    assert rollout.advantages.tolist() == [0.0] * 8
    assert noted(trainer, "reward") == [1.0]
    assert noted(trainer, "frac_ungraded") == [0.5]  # both groups have four responses, the easy one no reward


def test_where_some_of_a_group_have_no_reward_the_others_are_compared_and_credited(open_trainer, questions, tmp_path):
    turns = "def some(completions, **_):\n    return [(None, 0.0, 1.0, 1.0)[n % 4] for n in range(len(completions))]\n"
    (tmp_path / "some.py").write_text(turns)
    recipe = load_recipe(
        "dapo", data=questions, credit="atrl", rewards=f"{tmp_path}/some.py:some", overlong_cache_fraction=None
    )
    trainer = open_trainer(recipe, None)
    rollout, *_ = trainer.make_rollout([0])
    assert noted(trainer, "accuracy") == [pytest.approx(2 / 3)]
    assert noted(trainer, "dynamic_sampling/num_generations") == [1.0]
    # -2/3, 1/3 and 1/3 over their deviation of 0.5774; nothing is learned from the first, which has none.
    assert rollout.advantages.mean(1).tolist() == pytest.approx([-1.1545, 0.5772, 0.5772], abs=1e-3)

    (tmp_path / "some.py").write_text(turns.replace("0.0", "1"))  # no say, or right: nothing to compare
    constant = open_trainer(recipe, None)
    constant.sample_and_reward([0])
    assert noted(constant, "dynamic_sampling/num_unfilled") == [1.0]


def test_the_key_of_one_in_a_package_follows_what_it_may_import_there(tmp_path, monkeypatch):
    (tmp_path / "paying").mkdir()
    for module in ("__init__", "rewards", "lengths"):
        (tmp_path / "paying" / f"{module}.py").write_text("def brief(completions, **_):\n    return [1.0]\n")
    monkeypatch.syspath_prepend(tmp_path)

    def key():
        recipe = load_recipe("grpo", rewards="paying.rewards:brief")
        return run_spec(recipe, load_profile("mini"), "base", "data", 0)["reward_code"]

    before = key()
    (tmp_path / "paying" / "lengths.py").write_text("LONG = 3\n")
    assert key() != before


@pytest.mark.parametrize(("edited", "named"), [("mine.py", "its reward"), ("mine.jsonl", "its data")])
def test_a_training_refuses_what_was_edited_since_it_was_planned(
    edited, named, code, questions, base_folder, profile, tmp_path
):
    recipe = load_recipe("grpo", data=questions, rewards=f"{code}:brief")
    spec = run_spec(recipe, profile, model_ref(base_folder).digest, data_digest(find_set(questions), None), 0)
    (tmp_path / edited).write_text((tmp_path / edited).read_text() + "\n")
    where = {"base_model": base_folder, "data_dir": None, "out": tmp_path / "runs"}
    with pytest.raises(InvalidFileError, match=f"Since this training was planned, {named} changed"):
        train(recipe, profile=profile, **where, seed=0, spec=spec)


def test_beside_rewards_for_steps_each_of_ones_own_counts_one(code):
    recipe = load_recipe(
        "step_grpo", rewards=f"accuracy + {code}:brief", step_rewards={"key_steps": 0.1, "validity": 1}
    )
    assert reward_weights(recipe) == [0.5, 1.0, 0.1, 1]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("too_few", "1 rewards for 2 responses"),
        ("broken", "list indices must be integers"),
        ("words", "could not convert string to float: 'good'"),
        ("pairs", "not 'list'"),
    ],
)
def test_a_mistake_in_it_is_told_with_its_name(code, function, why):
    reward = find_reward(f"{code}:{function}").make(None)
    with pytest.raises(AtrlBenchError, match=f"{function} failed") as error:
        reward(completions=[[{"content": "7"}]] * 2)
    assert why in error.value.why


def test_a_plus_without_spaces_is_answered_with_the_form_that_adds(code):
    for first, second in (("accuracy", "nowhere.py:brief"), ("accuracy", "typed"), (f"{code}:brief", "accuracy")):
        with pytest.raises(AtrlBenchError) as refused:
            load_recipe("grpo", rewards=f"{first}+{second}")
        assert f"{first} + {second}, with spaces" in refused.value.next_step


def test_what_is_not_there_is_said_before_anything_is_loaded(code):
    with pytest.raises(InvalidFileError, match="There is no reward"):
        load_recipe("grpo", rewards="nowhere.py:brief")
    with pytest.raises(UnknownNameError, match="Did you mean accuracy"):
        load_recipe("grpo", rewards="acuracy")
    with pytest.raises(InvalidFileError, match="no attribute 'absent'"):
        find_reward(f"{code}:absent").make(None)

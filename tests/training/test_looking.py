"""What a grey picture takes from a policy's responses, logged while it trains."""

import json

import pytest

from atrl_bench.experiments.cost import training_needs
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.run import train
from atrl_bench.training.run_spec import run_spec

SMOKE = load_profile("smoke")
SIZES = {"num_rollouts": 2, "prompts_per_rollout": 4, "learning_rate": 3e-4}


def recipe(schedule: str, **sizes):
    return load_recipe("grpo", data="code_words", schedule=schedule, overrides=SIZES | sizes)


@pytest.mark.parametrize("schedule", ["strict", "minibatch4"])
def test_it_is_logged_by_verdict_and_by_part_and_changes_no_weight(schedule, mini_world, tmp_path):
    where = {"profile": SMOKE, "base_model": "mini-perception", "data_dir": mini_world, "seed": 0}
    plain = train(recipe(schedule), out=tmp_path / "plain", **where)
    looked = train(recipe(schedule, measures_looking=True), out=tmp_path / "looked", **where)
    assert looked.digest == plain.digest
    assert looked.checkpoint.name == plain.checkpoint.name
    lines = [json.loads(line) for line in (looked.checkpoint / "metrics.jsonl").read_text().splitlines()]
    drops = [line for line in lines if "looking/wrong" in line]
    assert len(drops) == 2  # a rollout
    for line in drops:  # what is read needs the picture; what follows from it, and the words of the form, do not
        assert line["looking/perception"] > 0.1
        assert line["looking/perception"] > 2 * abs(line["looking/reasoning"])
        assert line["looking/perception"] > 2 * abs(line["looking/format"])
    assert looked.summary["looking/perception"] > 0.1


def test_it_is_in_no_key_and_its_passes_are_in_the_price():
    added = {}
    for schedule in ("strict", "minibatch4"):
        plain, looked = recipe(schedule), recipe(schedule, measures_looking=True)
        assert run_spec(plain, SMOKE, "b", "d", 0) == run_spec(looked, SMOKE, "b", "d", 0)
        minutes = [training_needs(one, SMOKE).minutes for one in (plain, looked)]
        assert minutes[1] > minutes[0]
        added[schedule] = minutes[1] - minutes[0]
    assert added["strict"] == pytest.approx(
        2 * added["minibatch4"]
    )  # with several updates the old policy is scored anyway

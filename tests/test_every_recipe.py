"""Every shipped recipe as its user runs it: a checkpoint that loads, and its metrics."""

import json
from pathlib import Path

import pytest

from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.experiments.train_command import train_recipe
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store
from atrl_bench.training.recipe import list_recipes, load_recipe

SMOKE = load_profile("smoke")
VARIANTS = [(name, {}) for name in list_recipes()]
# The plug-in on every kind of method; training/test_every_credit.py builds all other pairs without training them.
VARIANTS += [
    (name, {"credit": "atrl"}) for name in ("grpo", "gspo", "reinforce", "actor_critic", "dpo", "t_grpo", "vppo")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One run folder: recipes that start from another's checkpoint find it there."""
    return tmp_path_factory.mktemp("recipes")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "overrides"), VARIANTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_recipe_trains_to_a_checkpoint_that_answers(folder, name, overrides, tmp_path):
    run_dir = RunDir.at(folder, SMOKE)
    result = train_recipe(name, overrides, run_dir, quiet=True)
    checkpoint = Path(result.checkpoint)
    lines = [json.loads(line) for line in (checkpoint / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) >= 2
    assert result.summary["num_updates"] == len(lines)
    assert load_recipe(checkpoint / "recipe.yaml") == load_recipe(name, **overrides)

    data = run_dir.provide("geoqa")
    with Store.open(tmp_path / "store.sqlite") as store:
        options = EvaluationOptions(limit=6)
        key = evaluate(checkpoint, "geoqa_test", options, store=store, profile=SMOKE, data_dir=data)
        assert len(store.samples(key)) == 6 * SMOKE.evaluation.num_repeats
    assert train_recipe(name, overrides, run_dir, quiet=True) == result

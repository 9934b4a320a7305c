"""Sweeps: the points of the paper's grids, as whole recipes with names that say what differs."""

from __future__ import annotations

import pytest

from atrl_bench.credit import CreditConfig
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.sweep import Sweep, expand, list_sweeps, load_sweep
from atrl_bench.training.recipe import load_recipe
from atrl_bench.training.weights.credit import credit_config

LAST = ((4, 0.65, 0.1), (4, 0.65, 0.2))  # other shares of hubs


def config(recipe):
    return credit_config(recipe.credit)


@pytest.mark.parametrize("name", list_sweeps())
def test_every_point_of_a_shipped_sweep_is_a_recipe_of_its_own_that_can_be_built(name):
    recipes = expand(load_sweep(name))
    assert len({recipe.name for recipe in recipes}) == len(recipes)
    # What makes a run another run is different in each.
    contents = {recipe.model_copy(update={"name": "", "title": ""}).as_yaml() for recipe in recipes}
    assert len(contents) == len(recipes)
    for recipe in recipes:
        config(recipe)


@pytest.mark.parametrize(
    ("name", "fields", "rows"),
    [
        (
            "cluster_refinement",
            ("min_centroid_similarity", "outlier_scale"),
            [(0.75, 0.6), (0.70, 0.6), (0.80, 0.6), (0.75, 0.4), (0.75, 0.8)],
        ),
        (
            "neighbourhood_expansion",
            ("num_neighbours", "min_neighbour_score", "hub_fraction"),
            [(4, 0.65, 0.15), *((n, 0.65, 0.15) for n in (3, 5)), *((4, t, 0.15) for t in (0.6, 0.7)), *LAST],
        ),
        ("hard_truncation", ("kept_fraction",), [(0.05,), (0.1,), (0.15,), (0.2,), (0.3,), (0.5,), (0.75,)]),
    ],
)
def test_a_sweep_of_the_paper_has_its_rows(name, fields, rows):
    assert [tuple(getattr(config(recipe), field) for field in fields) for recipe in expand(load_sweep(name))] == rows


def test_the_grid_search_is_every_combination_and_the_default_is_among_them():
    recipes = expand(load_sweep("grid_search"))
    assert len(recipes) == 3**5
    assert sum(config(recipe) == CreditConfig() for recipe in recipes) == 1


def test_the_first_point_of_a_sweep_around_the_base_is_the_base():
    first = expand(load_sweep("cluster_refinement"))[0]
    atrl = load_recipe("sapo", credit="atrl")
    assert first.model_dump(exclude={"name", "title"}) == atrl.model_dump(exclude={"name", "title"})
    assert first.name == "cluster_refinement:base"


def test_a_point_is_named_by_what_it_varies():
    names = [recipe.name for recipe in expand(load_sweep("kl"))]
    assert names == [
        "kl:rule=uniform,kl_coef=0.02",
        "kl:rule=uniform,kl_coef=0",
        "kl:rule=atrl,kl_coef=0.02",
        "kl:rule=atrl,kl_coef=0",
    ]


def test_what_is_given_on_top_holds_for_every_point():
    recipes = expand(load_sweep("hard_truncation"), schedule="strict")
    assert {recipe.schedule for recipe in recipes} == {"strict"}
    assert {(recipe.credit.rule, recipe.data, recipe.objective) for recipe in recipes} == {
        ("hard_truncation", "geometry3k", "grpo")
    }


def sweep(**fields):
    return Sweep(**{"name": "mine", "title": "Mine", "base": "grpo", "points": "grid", **fields})


def test_a_field_that_the_base_does_not_have_is_named():
    with pytest.raises(UnknownNameError, match="kl_cof"):
        expand(sweep(vary={"kl_cof": [0.1]}))
    with pytest.raises(InvalidFileError, match=r"no field 'schedule\.steps'"):
        expand(sweep(vary={"schedule.steps": [1]}))
    with pytest.raises(InvalidFileError, match="kl_coef"):
        expand(sweep(vary={"kl_coef": [-1]}))


def test_a_value_that_stands_twice_is_named_with_its_line(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntitle: Mine\nbase: grpo\npoints: grid\nvary:\n  kl_coef: [0, 0]\n", encoding="utf-8")
    with pytest.raises(InvalidFileError, match=r"mine\.yaml:5: field 'vary'.*kl_coef has no values, or one twice"):
        load_sweep(path)


def test_an_unknown_sweep_is_answered_with_the_nearest_names():
    with pytest.raises(UnknownNameError, match="Did you mean grid_search"):
        load_sweep("grid_serach")

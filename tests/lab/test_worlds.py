"""A world is one YAML file."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from atrl_bench.data.sets import find_set
from atrl_bench.errors import AtrlBenchError
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.lab.worlds import World, list_worlds, load_world, world_of_base
from atrl_bench.models.bases import base_folder, list_bases
from atrl_bench.models.local import model_ref
from atrl_bench.profiles import read_settings
from atrl_bench.resources import folder


@pytest.mark.parametrize("name", ["strategy", "perception", "reasoning"])
def test_a_world_names_its_data_its_task_and_its_bases(name):
    assert name in list_worlds()
    world = load_world(name)
    assert world.name == world.mistakes == name
    assert find_set(world.data)
    assert find_task(world.task)
    assert all(world_of_base(base) == world for base in world.bases)


def test_an_unknown_field_is_refused_with_its_line(tmp_path):
    text = (folder("recipes") / "worlds" / "perception.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("wrong_fraction:", "wrong_share:"))
    with pytest.raises(AtrlBenchError, match=r"mine.yaml:\d+: field 'bases.mini-perception.wrong_(share|fraction)'"):
        read_settings(path, World)


def test_a_world_with_mistakes_of_its_own_says_how_its_bases_are_made(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntitle: t\ndata: d\ntask: t\nmistakes: perception\nbases: {a: null}\n")
    with pytest.raises(AtrlBenchError, match="how the bases of such a world are made"):
        read_settings(path, World)


@pytest.mark.parametrize("base", list_bases())
def test_a_shipped_base_is_what_its_digest_says_and_what_its_recipe_made(base):
    shipped = base_folder(base)
    record = json.loads((shipped / "base.json").read_text())
    assert sha256((shipped / "model.safetensors").read_bytes()).hexdigest() == record["sha256"]
    assert (model_ref(base).name, model_ref(base).folder) == (base, shipped)
    if base != "mini":
        world = world_of_base(base)
        assert record["recipe"]["base"] == world.bases[base].model_dump(mode="json")
        assert record["recipe"]["world"] == world.model_dump(mode="json", exclude={"bases"})

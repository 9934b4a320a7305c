"""A world is one YAML file."""

import json
import shutil
from hashlib import sha256

import pyarrow.parquet as pq
import pytest

from atrl_bench.data.sets import find_set
from atrl_bench.errors import AtrlBenchError, NotFetchedError
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.price import price_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.worlds import World, list_worlds, load_world, world_of_base
from atrl_bench.models import bases
from atrl_bench.models.bases import BASES, WEIGHTS, is_shipped_whole, list_bases, rebuilt_folder
from atrl_bench.models.local import model_ref
from atrl_bench.profiles import load_profile
from atrl_bench.settings import read_settings


@pytest.mark.parametrize("name", ["strategy", "perception", "reasoning"])
def test_a_world_names_its_data_its_task_and_its_bases(name):
    assert name in list_worlds()
    world = load_world(name)
    assert world.name == world.mistakes == name
    assert find_set(world.data)
    assert find_task(world.task)
    assert all(world_of_base(base) == world for base in world.bases)


def test_in_the_world_of_shortcuts_the_words_of_half_of_the_problems_give_the_right_answer(mini_world):
    world = load_world("shortcut")
    assert world.bases["mini-shortcut"].start_from == "mini-perception"
    for name in (world.data, world.task):
        (path,) = (mini_world / name).glob("*.parquet")
        rows = pq.read_table(path, columns=["problem", "answer", "given"]).to_pylist()
        told = [row for row in rows if row["given"] == "yes"]
        assert 0.25 < len(told) / len(rows) < 0.75
        assert all(row["problem"].endswith(f"The answer is \\boxed{{{row['answer']}}}.") for row in told)
        assert {row["problem"] for row in rows if row["given"] == "no"} == {"What is the code of the picture?"}


def test_a_world_with_mistakes_of_its_own_says_how_its_bases_are_made(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntitle: t\ndata: d\ntask: t\nmistakes: perception\nbases: {a: null}\n")
    with pytest.raises(AtrlBenchError, match="how the bases of such a world are made"):
        read_settings(path, World)


@pytest.mark.parametrize("base", list_bases())
def test_a_shipped_base_is_what_its_digest_says_and_what_its_recipe_made(base):
    shipped = BASES / base
    record = json.loads((shipped / "base.json").read_text())
    if base != "mini":
        world = world_of_base(base)
        assert record["recipe"]["base"] == world.bases[base].model_dump(mode="json", exclude_defaults=True)
        assert record["recipe"]["world"] == world.model_dump(mode="json", exclude={"bases"})
        if world.name != "shortcut":  # its base is rebuilt from that of `perception`
            assert is_shipped_whole(next(iter(world.bases)))
    if is_shipped_whole(base):  # a wheel has not room for all
        assert sha256((shipped / WEIGHTS).read_bytes()).hexdigest() == record["sha256"]
        assert (model_ref(base).name, model_ref(base).folder) == (base, shipped)


def test_a_base_without_weights_names_the_command_that_trains_it_and_is_found_by_name_then(tmp_path, monkeypatch):
    here = tmp_path / "installed"
    shutil.copytree(BASES / "mini-perception", here / "mini-perception", ignore=shutil.ignore_patterns(WEIGHTS))
    monkeypatch.setattr(bases, "BASES", here)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    with pytest.raises(NotFetchedError, match="The weights of the base mini-perception are not on") as refused:
        model_ref("mini-perception")
    assert refused.value.next_step == "atrl-bench train mini-perception"
    rebuilt = shutil.copytree(BASES / "mini-perception", rebuilt_folder("mini-perception"))
    assert (model_ref("mini-perception").name, model_ref("mini-perception").folder) == ("mini-perception", rebuilt)


def test_a_plan_that_lacks_a_base_ends_with_the_command_that_trains_it(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bases, "is_shipped_whole", lambda name: name == "mini")
    plan = plan_table("headroom", RunDir.at(tmp_path, load_profile("smoke")), rows=["perception_uniform"])
    assert price_of(plan).next == "atrl-bench train mini-perception"

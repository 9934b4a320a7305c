import hashlib
import io
import json
import sys
from pathlib import Path

import needs
import pyarrow.parquet as pq
import pytest
from PIL import Image

from atrl_bench.data.tables import read_light_rows
from atrl_bench.errors import MissingDataError
from atrl_bench.mini.benchmarks import SYNTHETIC_BENCHMARKS
from atrl_bench.mini.benchmarks.main_7b import VERSIONS
from atrl_bench.mini.training_sets import TRAINING_SETS
from atrl_bench.mini.world import DATASETS, write_world
from atrl_bench.models.templates import split_options
from atrl_bench.profiles import load_profile


def rows_of(world, name):
    dataset = {**SYNTHETIC_BENCHMARKS, **TRAINING_SETS}[name]
    [file] = (world / dataset.folder / dataset.config).glob(f"{dataset.split}-*.parquet")
    return pq.read_table(file).to_pylist()


def images_of(row):
    values = [value for value in row.values() if isinstance(value, dict) and "bytes" in value]
    return values + [value for column in ("images",) for value in row.get(column, [])]


def test_columns_of_wemath_contain_spaces_and_options_are_one_string(mini_world):
    row = rows_of(mini_world, "wemath")[0]
    assert {"knowledge concept", "question number", "knowledge concept description", "image_path"} <= set(row)
    assert len(split_options(row["option"])) == 5
    assert row["option"].endswith("E. No correct answer")


@pytest.mark.parametrize("name", ["mathvision", "wemath"])
@needs.data
def test_a_synthetic_benchmark_has_the_types_of_the_real_file(mini_world, name):
    [benchmark], [real, *_] = (list((folder / name).glob("testmini*.parquet")) for folder in (mini_world, needs.DATA))
    twin_types, real_types = (
        {field.name: str(field.type).replace("item:", "element:") for field in pq.read_schema(file)}
        for file in (benchmark, real)
    )
    assert twin_types == real_types


def test_mathverse_asks_each_problem_in_five_versions(mini_world):
    rows = rows_of(mini_world, "mathverse")
    assert [row["problem_version"] for row in rows[:5]] == list(VERSIONS)
    assert len({row["problem_index"] for row in rows[:5]}) == 1
    assert all(row["question"].partition("Choices")[0] == "" for row in rows if row["problem_version"] == "Vision Only")
    assert all(row["question_for_eval"] for row in rows)


def test_mathvista_has_every_answer_type_with_its_precision(mini_world):
    rows = {row["answer_type"]: row for row in rows_of(mini_world, "mathvista")}
    assert set(rows) == {"text", "integer", "float", "list"}
    assert rows["text"]["answer"] in rows["text"]["choices"]
    assert rows["float"]["precision"] in (1.0, 2.0)
    assert rows["integer"]["precision"] is None


def test_mathvision_has_letter_only_options_and_free_form_rows(mini_world):
    options = [tuple(row["options"]) for row in rows_of(mini_world, "mathvision")]
    assert () in options
    assert tuple("ABCDE") in options
    assert any(len(set(option)) == 5 and option[0].isdigit() for option in options)


def test_wemath_steps_share_their_composite_and_their_picture(mini_world):
    steps = {}
    for row in rows_of(mini_world, "wemath"):
        steps.setdefault(row["ID"], []).append(row)
    assert {tuple(row["key"].split("_")[1] for row in rows) for rows in steps.values()} == {
        ("1", "2", "multi"),
        ("1", "2", "3", "multi"),
    }
    assert all(len({row["image_path"]["bytes"] for row in rows}) == 1 for rows in steps.values())


def test_geoqa_gold_carries_degree_signs_and_units(mini_world):
    golds = [row["ground_truth"] for row in rows_of(mini_world, "geoqa")]
    assert any(gold.endswith("°") for gold in golds)
    assert any(gold.endswith("cm") for gold in golds)


def test_no_test_picture_occurs_in_training(mini_world):
    def pictures(names):
        return {
            hashlib.sha256(image["bytes"]).hexdigest()
            for name in names
            for row in rows_of(mini_world, name)
            for image in images_of(row)
        }

    assert not pictures(SYNTHETIC_BENCHMARKS) & pictures(TRAINING_SETS)


@pytest.mark.parametrize("name", TRAINING_SETS)
def test_training_rows_carry_the_digits_to_be_read(mini_world, name):
    for row in rows_of(mini_world, name):
        assert all(digit in "0123456789" for digit in row["transcription"].split())
        assert all(Image.open(io.BytesIO(image["bytes"])).mode == "RGB" for image in images_of(row))


def test_the_world_is_written_once_and_is_the_same_everywhere(tmp_path, mini_world):
    profile = load_profile("smoke")
    first = write_world(tmp_path, profile)
    written = {path: path.stat().st_mtime_ns for path in first.glob("*/*.parquet")}
    assert write_world(tmp_path, profile) == first
    assert written == {path: path.stat().st_mtime_ns for path in first.glob("*/*.parquet")}
    assert first.name == mini_world.name
    for path in written:
        assert path.read_bytes() == (mini_world / path.relative_to(first)).read_bytes()
    assert not list(tmp_path.glob(".*"))


ROWS = Path(__file__).with_name("rows.json")
CHANGED = """\
The dataset {name} of the mini world holds other rows than rows.json says: {digest}.
If that is meant, bump `VERSION` in atrl_bench/mini/world.py, so that run folders get them, and write it down."""


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_of_the_world_holds_the_rows_that_it_held(mini_world, name):
    dataset = DATASETS[name]
    [file] = (mini_world / dataset.folder / dataset.config).glob(f"{dataset.split}-*.parquet")
    rows = read_light_rows(file)  # without pictures, whose bytes are Pillow's
    now = f"{len(rows)} rows {hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]}"
    assert json.loads(ROWS.read_text()).get(name) == now, CHANGED.format(name=name, digest=now)


def test_a_larger_profile_is_another_world(tmp_path):
    from atrl_bench.mini.world import sizes, world_digest

    smoke, mini = sizes(load_profile("smoke")), sizes(load_profile("mini"))
    assert world_digest(smoke) != world_digest(mini)
    assert smoke["geoqa"] == 24
    training = load_profile("mini").training
    assert mini["virl39k"] == 2 * training.num_rollouts * training.prompts_per_rollout


def test_data_that_cannot_be_made_says_what_is_missing_and_where_else_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as atrl-bench-light leaves it out
    with pytest.raises(MissingDataError, match="copy the run folder's data/ here too") as error:
        write_world(tmp_path, load_profile("smoke"), ["geoqa"])
    assert "The generated data geoqa is not in this run folder." in str(error.value)
    assert "datasets is not installed" in str(error.value)
    assert list(tmp_path.rglob("*.parquet")) == []

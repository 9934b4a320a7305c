"""Sizes come from three files of one form, and a mistake in one is named by file, line and field."""

from pathlib import Path

import pytest
import yaml

from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Profile, list_profiles, load_profile
from atrl_bench.resources import folder
from atrl_bench.settings import read_settings

MINI = folder("recipes") / "profiles" / "mini.yaml"


def test_there_are_three_profiles_and_each_is_complete():
    assert list_profiles() == ["mini", "paper", "smoke"]
    assert all(load_profile(name).name == name for name in list_profiles())


def test_the_paper_profile_has_the_papers_protocol():
    paper = load_profile("paper")
    assert (paper.training.group_size, paper.training.learning_rate, paper.training.weight_decay) == (8, 1e-6, 0.01)
    assert (paper.evaluation.temperature, paper.evaluation.max_new_tokens, paper.evaluation.num_repeats) == (
        0.1,
        4096,
        8,
    )


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("group_size: 8", "group_size: many", "training.group_size"),
        ("group_size: 8", "group_sise: 8", "training.group_si"),
        ("temperature: 0.1", "temperature: -1", "evaluation.temperature"),
        ("dtype: float32", "dtype: float16", "training.dtype"),  # in which nothing computes
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(tmp_path, before, after, field):
    path = tmp_path / "own.yaml"
    path.write_text(MINI.read_text().replace(before, after))
    with pytest.raises(InvalidFileError) as caught:
        read_settings(path, Profile)
    assert f"{path}:" in caught.value.what
    assert field in caught.value.what


def own_profile(tmp_path, **changes):
    path = tmp_path / "quick.yaml"
    path.write_text(yaml.safe_dump({"base": "smoke"} | changes))
    return path


def test_a_profile_of_ones_own_is_a_file_and_commands_name_that_file(tmp_path):
    path = own_profile(tmp_path, model="someone/tiny-vl")
    profile = load_profile(str(path))
    assert (profile.name, profile.model, profile.training) == (
        "quick",
        "someone/tiny-vl",
        load_profile("smoke").training,
    )
    run_dir = RunDir.at(None, profile)
    assert run_dir.root == Path("runs/quick")
    assert run_dir.options == run_dir.with_model("other/model").options == f"--profile {path}"


@pytest.mark.parametrize("name", ["smoke", "../paper", "two words"])
def test_a_profile_of_ones_own_cannot_pass_for_another(tmp_path, name):
    with pytest.raises(InvalidFileError, match="give the profile another name"):
        load_profile(str(own_profile(tmp_path, name=name)))


def test_a_file_that_is_not_there_is_an_invalid_file(tmp_path):
    with pytest.raises(InvalidFileError, match=r"mine\.yaml cannot be read[\s\S]*Next: write .*mine\.yaml"):
        load_profile(str(tmp_path / "mine.yaml"))


def test_a_profile_of_a_few_lines_starts_from_another_and_says_what_differs(tmp_path):
    (tmp_path / "warm.yaml").write_text("base: paper\nevaluation:\n  temperature: 0.7\n")
    warm, paper = load_profile(str(tmp_path / "warm.yaml")), load_profile("paper")
    assert (warm.name, warm.title, warm.evaluation.temperature) == ("warm", "profile paper with changes", 0.7)
    assert warm.training == paper.training
    assert warm.evaluation == paper.evaluation.model_copy(update={"temperature": 0.7})
    (tmp_path / "warmer.yaml").write_text("base: warm.yaml\nname: hot\nevaluation: {num_repeats: 2}\n")
    hot = load_profile(str(tmp_path / "warmer.yaml"))
    assert (hot.name, hot.evaluation.temperature, hot.evaluation.num_repeats) == ("hot", 0.7, 2)
    (tmp_path / "warmer.yaml").write_text("base: warmer.yaml\n")
    with pytest.raises(InvalidFileError, match="starts from itself"):
        load_profile(str(tmp_path / "warmer.yaml"))
    (tmp_path / "warm.yaml").write_text("base: paper\nevaluation:\n  temprature: 0.7\n")
    with pytest.raises(InvalidFileError, match=r"warm.yaml:3: field 'evaluation.temprature'"):
        load_profile(str(tmp_path / "warm.yaml"))

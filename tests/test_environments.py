"""The versions in environments/*.txt are such as pyproject.toml allows, and both wheels ask for what it names."""

import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "environments"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GPU_EXTRAS = ["vllm", "ray", "s3", "wandb", "tensorboard"]
EXTRAS = {"cpu.txt": ["test", "style"], "cuda.txt": GPU_EXTRAS, "cuda-torch-2.11.txt": GPU_EXTRAS}


def pinned(name: str) -> dict[str, str]:
    """The version of each package for this Python on Linux."""
    lines = map(Requirement, (ENVIRONMENTS / name).read_text(encoding="utf-8").splitlines())
    where = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    chosen = [line for line in lines if line.marker is None or line.marker.evaluate(where)]
    return {line.name.lower().replace("_", "-"): str(line.specifier).removeprefix("==") for line in chosen}


def test_every_file_of_versions_is_looked_at_here():
    assert {path.name for path in ENVIRONMENTS.glob("*.txt")} == {*EXTRAS, "verl.txt"}


@pytest.mark.parametrize("name", EXTRAS)
def test_versions_are_within_the_ranges_of_the_project(name):
    versions, extras = pinned(name), PROJECT["optional-dependencies"]
    needs = [*PROJECT["dependencies"], *(need for extra in EXTRAS[name] for need in extras[extra])]
    needs = [need for need in map(Requirement, needs) if need.name != PROJECT["name"]]
    assert len(needs) > 30
    wrong = [str(need) for need in needs if versions[need.name.lower().replace("_", "-")] not in need.specifier]
    assert wrong == []


def test_the_versions_for_verl_are_of_the_verl_that_the_page_installs():
    versions = pinned("verl.txt")
    assert f"verl[vllm]=={versions['verl']}" in (ROOT / "docs" / "other_trainers.md").read_text(encoding="utf-8")


def test_a_dockerfile_names_files_of_versions_that_are_there():
    for path in ENVIRONMENTS.glob("*.Dockerfile"):
        text = path.read_text(encoding="utf-8").replace("${VERSIONS}", "cuda")
        named = [word.strip('"') for word in text.split() if word.strip('"').startswith("/source/")]
        assert named
        assert all((ROOT / word.removeprefix("/source/")).is_file() for word in named), named


def test_the_light_distribution_asks_for_no_more_than_the_full_one(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["light.py"])
    light = tomllib.loads(runpy.run_path(str(ENVIRONMENTS / "light.py"))["light_project"]())["project"]
    asked = {*light["dependencies"], *(need for needs in light["optional-dependencies"].values() for need in needs)}
    assert asked < set(PROJECT["dependencies"])
    assert not {"torch", "transformers", "lmms-eval"} & {Requirement(need).name for need in light["dependencies"]}
    assert light["version"] == __import__("atrl_bench").__version__

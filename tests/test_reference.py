"""The site's reference is made from the code: every command with its options, every field of a recipe and a profile."""

import importlib.util
import re
from pathlib import Path

import pytest
import typer

from atrl_bench.cli import VERBS, app
from atrl_bench.profiles import EvaluationSizes, Profile, TrainingSizes
from atrl_bench.training.recipe import KINDS, CreditChoice

PAGES = Path(__file__).parents[1] / "docs" / "site_pages.py"


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_pages", PAGES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_stands_there_with_each_of_its_options(site):
    sections = dict(re.findall(r"^## `atrl-bench ([\w-]+)`\n(.*?)(?=^## |\Z)", site.commands(), re.M | re.S))
    assert list(sections) == list(VERBS)
    for name, command in typer.main.get_command(app).commands.items():
        options = {option for param in command.params for option in param.opts if not getattr(param, "hidden", False)}
        shown = {option for option in options if option.startswith("--")}
        assert shown <= set(re.findall(r"--[\w-]+", sections[name])), name


def test_every_field_of_recipes_and_profiles_stands_there_once_with_its_description(site):
    text = site.settings()
    for model in (Profile, TrainingSizes, EvaluationSizes, CreditChoice, *KINDS.values()):
        section = text.partition(f"## {model.__name__}\n")[2].partition("\n## ")[0]
        own = [name for name in model.model_fields if name in model.__annotations__]
        assert re.findall(r"^\| `(\w+)`", section, re.M) == own
        assert own
        assert all(
            model.model_fields[name].description in section for name in own if model.model_fields[name].description
        )

"""The site's reference is made from the code: every command with its options, every field of a recipe and a profile."""

import importlib.util
import re
from pathlib import Path

import pytest
import typer

from atrl_bench.cli import VERBS, app
from atrl_bench.data.own import USUAL
from atrl_bench.data.sets import TRAINING_SETS
from atrl_bench.evaluation.tasks import list_tasks
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
    for name, command in typer.main.get_command(app()).commands.items():
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


def test_every_published_set_stands_there_with_its_folder_and_its_repository(site):
    lines = [[cell.strip() for cell in line.split("|")] for line in site.sets().splitlines() if line.startswith("| `")]
    shown = {name: (folder, rows) for _, folder, names, rows, *_ in lines for name in names.split(", ")}
    published = [each for each in (*list_tasks(), *TRAINING_SETS.values()) if each.hub_id]
    assert len(published) > 30
    for each in published:
        folder, rows = shown[f"`{each.name}`"]
        assert folder == f"`{each.folder}`"
        assert rows.startswith(f"`{each.hub_id}`")


def test_the_usual_names_of_columns_are_those_that_the_code_knows():
    page = (PAGES.parent / "own.md").read_text(encoding="utf-8")
    table = page.partition("| usual names of its column |\n|---|---|\n")[2].partition("\n\n")[0]
    names = {row.split("`")[1]: tuple(re.findall(r"`(\w+)`", row))[1:] for row in table.splitlines()}
    assert list(names) == list(USUAL)
    assert names.pop("options")[:2] == USUAL["options"]  # or a column for each
    assert all(USUAL[what] == usual for what, usual in names.items())

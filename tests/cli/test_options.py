"""Shared options are declared once; a verb names those it has and gets them as one value."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from atrl_bench.cli.options import Options, with_options


def run(verb, *arguments):
    app = typer.Typer(rich_markup_mode=None)
    app.command()(verb)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})


def test_a_verb_gets_its_own_arguments_and_the_shared_ones_it_names():
    calls = []

    @with_options("out", "seed", "as_json")
    def verb(options: Options, name: Annotated[str, typer.Argument()], size: Annotated[int, typer.Option()] = 3):
        calls.append((options, name, size))

    assert run(verb, "x", "--out", "here", "--seed", "5", "--json").exit_code == 0
    assert run(verb, "y", "--size", "4").exit_code == 0
    assert calls == [(Options(out=Path("here"), seed=5, as_json=True), "x", 3), (Options(), "y", 4)]
    assert run(verb, "x", "--profile", "smoke").exit_code == 2
    assert run(verb, "x", "--seed", "-1").exit_code == 2


def test_help_lists_shared_options_after_the_verbs_own_in_one_order_everywhere():
    @with_options("as_json", "seed", "profile")
    def verb(options: Options, own: Annotated[str, typer.Option(help="its own")] = ""):
        """Say something."""

    text = run(verb, "--help").output
    places = [text.index(option) for option in ("--own", "--profile", "--seed", "--json")]
    assert places == sorted(places)
    assert "Say something." in text
    assert "--options" not in text


def test_an_option_that_is_not_shared_is_a_mistake_in_the_program():
    with pytest.raises(ValueError, match="colour"):
        with_options("profile", "colour")

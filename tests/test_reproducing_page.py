"""docs/reproducing.md: every command of ours that it shows exists, with these options and these tasks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from atrl_bench.cli import app
from atrl_bench.evaluation.tasks import expand

PAGE = Path(__file__).parents[1] / "docs" / "reproducing.md"
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
LINES = [line.partition(" #")[0] for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]
# `accelerate launch` runs ours with `-m atrl_bench`.
OURS = [
    re.split(r"atrl-bench |-m atrl_bench ", line)[1] for line in LINES if re.search(r"atrl-bench |-m atrl_bench ", line)
]


@pytest.mark.parametrize("line", OURS)
def test_a_command_of_the_page_exists_with_its_options_and_tasks(line) -> None:
    verb, *words = shlex.split(line)
    command = typer.main.get_command(app).commands[verb]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known
    if "--tasks" in words:
        assert expand(words[words.index("--tasks") + 1].split(","))


def test_the_page_has_commands() -> None:
    assert len(OURS) >= 9

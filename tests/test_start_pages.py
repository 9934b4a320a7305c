"""What the Start pages tell a newcomer to type: lines that the program takes, of which the first keep their time.

A folder without a wheel is a clean checkout; the installation itself is `tox -e release`.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from atrl_bench.cli import app

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "environments/README.md", "examples/README.md", "docs/commands.md", "docs/reproducing.md")
COMMAND = re.compile(r"(?:^|&& |`)(?:[A-Z_]+=\S+ )*atrl-bench (?!COMMAND|-)([^`#\n]+)", re.M)
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ") for page in PAGES}
LINES = {(page, line.strip()) for page, text in TEXTS.items() for line in COMMAND.findall(text)}


@pytest.mark.parametrize(("page", "line"), sorted(LINES))
def test_a_line_of_a_start_page_is_one_that_the_program_takes(page, line):
    name, *words = shlex.split(line.partition(" && ")[0].replace("FORM", "scores"))
    command = typer.main.get_command(app()).commands[name]
    if words:  # a command that is only named has no arguments
        command.make_context(name, words)


@pytest.mark.large
@pytest.mark.parametrize(
    ("page", "line", "promised", "minutes"),
    [
        ("environments/README.md", "run-table main_7b --profile smoke", "a minute or two", (1, 2)),
        ("README.md", "run-table main_7b", "five to ten minutes", (5, 10)),
    ],
)
def test_in_a_clean_checkout_a_command_takes_half_to_twice_its_promised_time(tmp_path, page, line, promised, minutes):
    """The promise is for two idle cores."""
    [said] = [each for each in TEXTS[page].splitlines() if re.search(rf"atrl-bench {line}[ `]+[|#&]", each)]
    assert promised in said
    subprocess.run(f"git -C {ROOT} archive HEAD | tar -x -C {tmp_path}", shell=True, check=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "atrl_bench", *line.split(), "--out", "run"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=True)
    assert (tmp_path / "run/reports/main_7b.html").is_file()
    assert minutes[0] / 2 <= (time.monotonic() - began) / 60 <= 2 * minutes[1]

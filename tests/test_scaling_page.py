"""docs/scaling.md: its tables are what the code computes, and its commands run up to where a GPU is needed."""

import re
import shlex

import pytest
from scaling_page import BLOCK, PAGE, blocks, makespan

from atrl_bench.experiments.cost import Needs

TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [
    line.partition("#")[0].split("atrl-bench ", 1)[1]
    for block in re.findall(r"^```\n(.*?)^```", TEXT, re.S | re.M)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def computed():
    return blocks()


@pytest.mark.parametrize("name", [name for _, name, _, _ in BLOCK.findall(TEXT)])
def test_a_table_of_the_page_is_what_the_code_computes(name, computed):
    on_page = {name: text for _, name, text, _ in BLOCK.findall(TEXT)}
    assert on_page[name] == computed[name], "write it anew: python tests/scaling_page.py"


def test_the_page_has_every_table(computed):
    assert computed.keys() == {name for _, name, _, _ in BLOCK.findall(TEXT)}


def test_all_tables_together_take_what_plan_all_says(computed, atrl_bench):
    ended = atrl_bench("plan", "all", "--profile", "paper")
    assert ended.code == 0
    assert f"{computed['together'].strip()} GPU-hours." in " ".join(ended.out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_runs_up_to_where_a_gpu_is_needed(command, atrl_bench, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no tool of a driver
    ended = atrl_bench(*shlex.split(command))
    if command.rstrip().endswith("--yes"):
        assert ended.code == 1
        assert "does not fit here" in ended.err
        assert "none can be used here" in ended.err
    else:
        assert ended.code == 0, ended.err
        assert re.search(r"GPU-hours|gpu_hours", ended.out)


def test_trainings_run_side_by_side_where_there_is_room():
    def needs(gpus, hours):
        return Needs({}, "", gpus=gpus, phases={"updates": gpus * hours})

    # On 8 GPUs: 8 for 5 hours; then two of 4 beside each other, 10 and 6 hours, and 3 hours after the shorter one.
    assert makespan([needs(4, 3), needs(4, 10), needs(8, 5), needs(4, 6)], 8) == pytest.approx(15)


def test_the_readme_tells_the_price_of_the_papers_main_table():
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    [said] = re.findall(r"about ([\d,]+) GPU-hours of an A100 for `main_7b`", readme)
    [computed] = re.findall(r"\| `main_7b` \| \d+ \| ([\d,]+) \|", TEXT)
    assert int(said.replace(",", "")) == round(int(computed.replace(",", "")), -2)

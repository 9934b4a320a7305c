"""The product's promise, end to end on profile smoke: one command, one table."""

import json
import subprocess
import sys
from pathlib import Path

import golden
import needs
import pytest

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "atrl_bench", "run-table", "main_7b", "--profile", "smoke"]
REPORT = ("main_7b.html", "latex/main_7b.tex", "main_7b.svg", "main_7b.md", "main_7b.csv", "main_7b.json")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """The folder of one uninterrupted run of the guard's commands, and what the first of them printed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, golden.run(folder)[golden.COMMANDS[0]]


def report_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "reports" / name).read_bytes() for name in REPORT}


def test_one_command_ends_with_the_table_and_the_path_of_the_page(whole_run):
    folder, printed = whole_run
    assert "GRPO + AT-RL" in printed
    assert f"Report: {folder / 'reports' / 'main_7b.html'}" in printed
    assert all(len(content) > 500 for content in report_of(folder).values())
    table = json.loads((folder / "reports" / "main_7b.json").read_text())
    assert table["profile"] == "smoke"


def test_nothing_moved_that_the_repository_keeps_a_digest_of(whole_run):
    recorded, now = golden.recorded(), golden.contents(whole_run[0])
    changed = "\n".join(golden.differences(recorded, now))
    if changed and recorded["libraries"] != now["libraries"]:
        pytest.skip(f"{needs.OTHER_LIBRARIES}, {recorded['libraries']}, and differ:\n{changed}")
    assert not changed, f"{changed}\nIf all of it is meant: python tests/golden.py, and say why in the commit."


@pytest.mark.parametrize(
    ("kind", "name", "field"),
    [
        ("cells", "main_7b grpo seed 0 geoqa_test", "score"),
        ("cells", "main_7b zero_shot geoqa_test", "prompts"),
        ("weights", "main_7b grpo seed 0", "key"),
        ("pages", "main_7b.html", None),
    ],
)
def test_a_moved_score_prompt_checkpoint_or_page_is_named(kind, name, field):
    before, after = golden.recorded(), golden.recorded()
    if field:
        after[kind][name][field] = "other"
    else:
        after[kind][name] = "other"
    assert [line.split(" -> ")[1] for line in golden.differences(before, after)] == ["other"]
    assert golden.differences(before, after)[0].startswith(f"{kind}: {name}")


@pytest.mark.parametrize(
    ("field", "change", "is_named"), [("moved", 2e-3, True), ("along", 2e-3, True), ("along", 5e-4, False)]
)
def test_weights_that_moved_otherwise_are_named_and_those_that_another_processor_rounds_are_not(
    field, change, is_named
):
    before, after = golden.recorded(), golden.recorded()
    weights = after["weights"]["main_7b grpo seed 0"]
    weights[field] += change * weights["moved"]
    assert bool(golden.differences(before, after)) is is_named


@pytest.mark.parametrize(("change", "is_named"), [(0.02, True), (0.005, False)])
def test_what_is_measured_of_a_rule_is_named_when_it_moves_by_more_than_processors_differ(change, is_named):
    before, after = golden.recorded(), golden.recorded()
    after["signal"]["atrl"]["reliability_ends"][1] += change
    assert bool(golden.differences(before, after)) is is_named


@pytest.mark.parametrize(("change", "is_named"), [(0.2, True), (0.03, False)])
def test_a_factor_moves_more_between_processors(change, is_named):
    before, after = golden.recorded(), golden.recorded()
    after["signal"]["atrl"]["factor"] += change
    assert bool(golden.differences(before, after)) is is_named


def test_the_same_command_again_finds_everything_in_the_store_and_changes_no_byte(whole_run):
    folder, _ = whole_run
    before = report_of(folder)
    (folder / "overlap.json").unlink()  # as a kill leaves it that comes before the search in the training data
    again = subprocess.run([*COMMAND, "--out", folder], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "Everything was in the store" in again.stdout
    assert report_of(folder) == before

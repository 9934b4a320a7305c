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
    ("field", "change", "is_named"),
    [
        # Weights, by a part of how far they moved.
        *[("moved", 2e-3, True), ("along", 2e-3, True), ("along", 5e-4, False)],
        # What is measured of a rule; a factor moves more between processors.
        *[("reliability_ends", 0.02, True), ("reliability_ends", 0.005, False)],
        *[("factor", 0.2, True), ("factor", 0.03, False)],
    ],
)
def test_a_number_is_named_when_it_moves_by_more_than_another_processor_rounds(field, change, is_named):
    before, after = golden.recorded(), golden.recorded()
    weights, measured = after["weights"]["main_7b grpo seed 0"], after["signal"]["atrl"]
    if field in weights:
        weights[field] += change * weights["moved"]
    elif field == "factor":
        measured[field] += change
    else:
        measured[field][1] += change
    assert bool(golden.differences(before, after)) is is_named


def test_the_same_command_again_finds_everything_in_the_store_and_changes_no_byte(whole_run):
    folder, _ = whole_run
    before = report_of(folder)
    (folder / "overlap.json").unlink()  # as a kill leaves it that comes before the search in the training data
    again = subprocess.run([*COMMAND, "--out", folder], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "Everything was in the store" in again.stdout
    assert report_of(folder) == before

"""The table of the worlds, end to end on profile smoke: two rows of one world, each at two learning rates."""

import json
from pathlib import Path
from typing import Any

import pytest
from programs import command

pytestmark = pytest.mark.slow
ROWS = "perception_uniform,perception_oracle_perception"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("headroom")
    command("run-table", "headroom", "--profile", "smoke", "--rows", ROWS, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def table(run_folder: Path) -> Any:
    return json.loads((run_folder / "reports" / "headroom.json").read_text())


def test_the_page_says_the_headroom_of_its_world_and_of_no_other(table: Any) -> None:
    (said,) = table["headroom"]
    assert said.startswith("Perception, first base: it takes some digits for others: headroom ")
    assert said.endswith("rank rules.")


def test_every_rate_is_trained_and_has_its_accuracy_and_what_it_costs(table: Any) -> None:
    (rates,) = [item for item in table["grids"] if item["title"] == "Every learning rate"]
    assert len(rates["rows"]) == 4
    names = rates["columns"]
    assert {"accuracy over the run", "greedy, worst checkpoint", "with an answer, worst checkpoint"} <= set(names)
    for _, cells in rates["rows"]:
        of_rate = dict(zip(names, cells, strict=True))
        assert all(of_rate[name]["value"] is not None for name in names if not name.startswith("test"))


def test_the_base_is_the_one_that_the_row_names(run_folder: Path) -> None:
    assert "stands here for" not in (run_folder / "reports" / "headroom.md").read_text()

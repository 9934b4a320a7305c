"""What every task asks and what it takes for right: as it was last written down, and as lmms-eval asks it."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from atrl_bench.evaluation.data import load_rows, to_problem, without_images
from atrl_bench.evaluation.prompts_for import messages_of
from atrl_bench.evaluation.tasks import find_task, list_tasks

NAMES = [task.name for task in list_tasks()]
RECORDED = Path(__file__).with_name("prompts_and_golds.json")
CHANGED = """\
{name} asks something else, or takes something else for right, than {path} says: {digest}.
If that is meant, bump `version:` in the task's YAML file (or `VERSION` in atrl_bench/evaluation/hooks.py, for all
tasks), so that no old answer counts for the new question, and write the new digest down."""


def without_pixels(messages: Iterable[dict[str, Any]]) -> list[Any]:
    """The words of the messages, and where an image or a video stands among them."""
    return [[turn["role"], [[part["type"], part.get("text", "")] for part in turn["content"]]] for turn in messages]


@pytest.mark.parametrize("name", NAMES)
def test_a_task_asks_what_it_asked_and_takes_for_right_what_it_took(name, mini_world) -> None:
    task, digest = find_task(name), hashlib.sha256()
    rows = load_rows(task, mini_world)
    for row, bare in zip(rows, without_images(rows), strict=True):
        problem = to_problem(task, bare)
        said = [problem.problem_id, problem.group, problem.question, dict(problem.meta)]
        said += [without_pixels(messages_of(task, row, {"run_seed": 0})), dataclasses.asdict(problem.gold)]
        digest.update(json.dumps(said, sort_keys=True).encode())
    now = f"{len(rows)} rows {digest.hexdigest()[:16]}"
    assert json.loads(RECORDED.read_text()).get(name) == now, CHANGED.format(name=name, path=RECORDED.name, digest=now)


@pytest.mark.parametrize("name", NAMES)
def test_lmms_eval_asks_the_same(name, mini_world, lmms_task) -> None:
    task = find_task(name)
    rows = load_rows(task, mini_world, limit=6)
    theirs = lmms_task(task, rows, run_seed=5)
    for row in rows:
        assert without_pixels(messages_of(task, row, {"run_seed": 5})) == without_pixels(theirs.doc_to_messages(row))
        assert theirs.doc_to_target(row) == task.code.gold(row).answer

"""Answers in a store, without a model that gives them; and what others do to its file."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from atrl_bench.evaluation.cell_spec import cell_spec
from atrl_bench.experiments.plan import Job, Plan
from atrl_bench.models.local import TrainedModel
from atrl_bench.results.packing import unpacked
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.store import Store

STATES = {"+": "correct", "-": "wrong", "?": "unparseable", "t": "timed out", "j": "judge failed"}


def fill_cell(
    store: Store,
    spec: Mapping[str, Any],
    *repeats: str,
    problems: Sequence[Problem] = (),
    text: str = "\\boxed{3}",
    is_finished: bool = True,
) -> str:
    """Answer a cell and return its key: a string for each repeat, with a mark of STATES for each problem, or a point.

    A point stands for an answer that is not there. Without `problems` they are p0, p1, ..., each in a group of its own.
    """
    names = [problem.problem_id for problem in problems] or [f"p{number}" for number in range(len(repeats[0]))]
    key = store.add_cell(spec)
    store.add_problems(key, problems or [Problem(name, name, "What is 1 + 2?", Gold("3")) for name in names])
    marks = {
        (name, r): mark for r, of in enumerate(repeats) for name, mark in zip(names, of, strict=True) if mark != "."
    }
    store.add_responses(key, [Response(name, r, "h", text, 4, 0.1, False) for name, r in marks])
    store.add_verdicts(
        key, {at: Verdict(STATES[mark], "3", "judge" if mark == "j" else "fast", "") for at, mark in marks.items()}
    )
    if is_finished:
        store.finish_cell(key, expected=len(names) * len(repeats))
    return key


def finished_run(store: Store, spec: Mapping[str, Any], **told: Any) -> str:
    """Store a training as done, of which these are told, and return its key."""
    key = store.add_run(spec)
    store.finish_run(key, **{"checkpoint": f"checkpoints/{key}", "digest": key, "seconds": 75.0, "summary": {}, **told})
    return key


def fill_table(plan: Plan, marks_of: Callable[[Job], Sequence[str]], **told: Any) -> None:
    """Store what a plan names as if it had run: its trainings, and these repeats in each cell of a job."""
    with plan.run_dir.open_store() as store:
        for job in plan.jobs:
            model: str | TrainedModel = "mini"
            if job.run_spec is not None:
                model = TrainedModel(finished_run(store, job.run_spec, **told), job.run_key)
                (plan.run_dir.checkpoints / job.run_key).mkdir(parents=True)
                (plan.run_dir.checkpoints / job.run_key / "recipe.yaml").write_text("title: x\n", encoding="utf-8")
            for column in plan.definition.columns:
                spec = cell_spec(model, column.task, profile=plan.run_dir.profile, data_dir=plan.run_dir.given_data)
                fill_cell(store, spec.as_dict(), *marks_of(job))


def changed_on_disk(store: Store, statement: str) -> list[tuple[Any, ...]]:
    """Execute a statement past the store, as another program would; return its rows."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def records(path: Path) -> dict[str, list[str]]:
    """Return what a store holds, but for times, checksums, which cover them, and how often a judge had to be asked."""
    columns = {
        "cells": "key, spec, state, reason, expected",
        "responses": "cell, problem_id, repeat, prompt_hash, text, num_tokens, truncated",
        "grades": "cell, problem_id, repeat, extracted, state, grader, why, score, details",
        "runs": "key, spec, state, reason, checkpoint, digest",
    }
    with closing(sqlite3.connect(path)) as store:
        store.create_function("unpacked", 2, unpacked)
        return {
            f"{table} {row[:3]}": [re.sub(r'"calls":\d+', "", str(value)) for value in row]
            for table, names in columns.items()
            for row in store.execute(f"SELECT {names} FROM {table}")
        }


SPEC = {"kind": "evaluation", "task": "geoqa_test", "run_seed": 0}
WRITER = """
import sys
from pathlib import Path
from atrl_bench.results.shared_store import SharedStore
from atrl_bench.results.records import Gold, Problem, Response
path, worker, count, spec = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), eval(sys.argv[4])
with SharedStore(Path(path)) as store:
    key = store.add_cell(spec)
    store.add_problems(key, [Problem("p0", "p0", "?", Gold("1"))])
    print("open", flush=True)
    for i in range(count):
        repeats = range(10**6 * worker + 4 * i, 10**6 * worker + 4 * i + 4)
        store.add_responses(key, [Response("p0", repeat, "h", "text " * 50, 1, 0.1, False) for repeat in repeats])
        print(i, flush=True)
"""


def start_writer(path: Path, worker: int, count: int) -> subprocess.Popen[str]:
    """A process that stores so many batches of four answers to SPEC, from repeat 1,000,000 times `worker` on.

    It says "open", then each batch's number once that is stored.
    """
    command = [sys.executable, "-c", WRITER, str(path), str(worker), str(count), repr(SPEC)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])

"""Finished cells as logs of Inspect (inspect.aisi.org.uk): `inspect view --log-dir exports/inspect` opens them.

One JSON file a cell, in the form of version 2 of that log. An answer is a sample, its repeat an epoch, its points the
score; the other states of an answer than right and wrong stand in the score's metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.tasks import find_task, scored
from atrl_bench.results.files import write_atomically, writing
from atrl_bench.results.records import Sample
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics import score
from atrl_bench.results.store import Cell, Store

SCORER = "atrl_bench"
LETTERS = {1.0: "C", 0.0: "I"}  # what Inspect calls right and wrong
# Inspect asks for dates, and the store keeps none: the same store gives the same file.
NO_DATE = datetime.fromtimestamp(0, UTC).isoformat()


def write_inspect_logs(store: Store, target: Path) -> list[Path]:
    paths = []
    for cell in store.cells(kind="evaluation", state="done"):
        name = re.sub(r"[^A-Za-z0-9]+", "-", str(cell.spec["task"]))
        path = target / "inspect" / f"{NO_DATE[:10]}T00-00-00-00-00_{name}_{cell.key[:22]}.json"
        with writing(path):
            write_atomically(path, json.dumps(log_of(cell, store.samples(cell.key)), ensure_ascii=True).encode())
        paths.append(path)
    if not paths:
        raise MissingDataError(
            f"Nothing in {store.path} is a finished evaluation.", next_step="atrl-bench status, to see what is missing"
        )
    return paths


def log_of(cell: Cell, samples: Sequence[Sample]) -> dict[str, Any]:
    spec, task = cell.spec, find_task(str(cell.spec["task"]))
    repeats = int(spec["decoding"]["repeats"])
    metric = task.headline(repeats)
    estimate = score(scored(task.name, ScoreArray.of(samples), metric))
    problems = list(dict.fromkeys(sample.problem.problem_id for sample in samples))
    scorer = {
        "name": SCORER,
        "scorer": SCORER,
        "params": {},
        "metrics": _metrics(metric, estimate.mean, estimate.stderr),
    }
    judged = [sample for sample in samples if sample.score is not None]
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": cell.key,
            "run_id": cell.key,
            "task_id": cell.key,
            "created": NO_DATE,
            "task": task.name,
            "task_version": str(spec["task_version"]),
            "task_display_name": task.title,
            "dataset": {"name": task.title, "location": task.hub_id, "samples": len(problems), "sample_ids": problems},
            "model": str(spec["model_name"]),
            "model_generate_config": {
                "temperature": spec["decoding"]["temperature"],
                "max_tokens": spec["decoding"]["max_new_tokens"],
            },
            "config": {"epochs": repeats, "limit": spec.get("limit")},
            "packages": {"atrl-bench": version("atrl-bench")},
            "metadata": spec,
        },
        "plan": {"steps": [{"solver": "generate", "params": {}}]},
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(judged),
            "scores": [scorer | {"scored_samples": len(judged), "unscored_samples": len(samples) - len(judged)}],
        },
        "stats": {"started_at": NO_DATE, "completed_at": NO_DATE},
        "samples": [_sample(sample, str(spec["model_name"])) for sample in samples],
    }


def _metrics(metric: str, mean: float, stderr: float) -> dict[str, Any]:
    values = {metric: mean, "stderr": stderr}
    return {name: {"name": name, "value": value} for name, value in values.items() if value == value}


def _sample(sample: Sample, model: str) -> dict[str, Any]:
    problem, response, points = sample.problem, sample.response, sample.score
    answer = {"role": "assistant", "content": response.text, "source": "generate", "model": model}
    verdict = sample.verdict
    scores = {}
    if verdict is not None and points is not None:
        details = {"state": verdict.state, "grader": verdict.grader, **verdict.details}
        value = LETTERS.get(points, points)
        scores[SCORER] = {"value": value, "answer": verdict.extracted, "explanation": verdict.why, "metadata": details}
    return {
        "id": problem.problem_id,
        "epoch": response.repeat + 1,
        "input": problem.question,
        "choices": list(problem.gold.choices) or None,
        "target": problem.gold.answer,
        "messages": [{"role": "user", "content": problem.question}, answer],
        "output": {
            "model": model,
            "choices": [{"message": answer, "stop_reason": "max_tokens" if response.truncated else "stop"}],
            "usage": {"input_tokens": 0, "output_tokens": response.num_tokens, "total_tokens": response.num_tokens},
        },
        "scores": scores,
        "metadata": {"group": problem.group, "state": sample.state, **problem.meta},
        "total_time": response.seconds,
    }

"""Finished cells as the sample files that `lmms-eval --log_samples` writes: a line a problem, all repeats in it."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.results.files import write_atomically, writing
from atrl_bench.results.records import Sample
from atrl_bench.results.store import Store


def write_lmms_samples(store: Store, target: Path) -> list[Path]:
    """Return the files written: `lmms-eval/<model>/<cell>_samples_<task>.jsonl`, one for each finished cell."""
    paths = []
    for cell in store.cells(kind="evaluation", state="done"):
        task, by_problem = find_task(str(cell.spec["task"])), groupby(store.samples(cell.key), _problem_id)
        model = re.sub(r"[^A-Za-z0-9._-]+", "__", str(cell.spec["model_name"])).lstrip(".") or "model"
        path = target / "lmms-eval" / model / f"{cell.key}_samples_{task.lmms_eval_name}.jsonl"
        lines = [json.dumps(_line(number, list(samples))) for number, (_, samples) in enumerate(by_problem)]
        with writing(path):
            write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
        paths.append(path)
    if not paths:
        raise MissingDataError(
            f"Nothing in {store.path} is a finished evaluation.", next_step="atrl-bench status, to see what is missing"
        )
    return paths


def _problem_id(sample: Sample) -> str:
    return sample.problem.problem_id


def _line(number: int, samples: list[Sample]) -> dict[str, Any]:
    """Return what lmms-eval logs of a problem, under its names; the three metrics are those of our task files."""
    problem, points = samples[0].problem, [sample.score for sample in samples]
    known = [point for point in points if point is not None]
    return {
        "doc_id": number,
        "input": problem.question,
        "target": problem.gold.answer,
        "filtered_resps": [sample.response.text for sample in samples],
        "doc_hash": samples[0].response.prompt_hash,
        "problem_id": problem.problem_id,
        "mean_at_n": {"score": fmean(known) if known else None, "group": problem.group},
        "acc_at_1": {"score": points[0], "group": problem.group},
        "not_scored": {"score": (len(points) - len(known)) / len(points), "group": problem.group},
    }

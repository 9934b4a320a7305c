"""`atrl-bench export FORM`: what a run folder measured, in the forms other tools read.

Samples as Parquet or JSON lines, one row an answer, or as logs of Inspect; scores as CSV, Parquet and JSON, one row a
number; a card for each trained model.

A sample has a line for each table and row that it counts for, so choose a `table` before you average; an answer that no
rendered table shows has one line without. What a cell was asked with, which all its answers share, stands once in
`cells.json`. Written a few thousand answers at a time: a store of any size fits.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from atrl_bench.digests import canonical_json
from atrl_bench.errors import MissingDataError
from atrl_bench.escape import spreadsheet
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.report.frame import frame, headline_metric, places_of_cells, score_or_bounds
from atrl_bench.report.model_card import write_cards
from atrl_bench.results.files import replaced, write_atomically, writing
from atrl_bench.results.records import Sample, Verdict
from atrl_bench.results.store import Cell, Store
from atrl_bench.version import __version__

Format = Literal["parquet", "jsonl", "scores", "inspect", "card"]

# A line of samples: what it is an answer of first, then the problem, the response and the verdict.
PLACE = ("table", "row", "label", "recipe", "credit", "seed")
ROWS_AT_ONCE = 5_000  # of Parquet: one group of rows in the file
AS_JSON = ("choices", "meta", "details")  # in Parquet, which has one type a column


def export(run_dir: RunDir, form: Format, *, out: Path | None = None) -> list[Path]:
    """The files written from the run folder: into `out`, by default `exports` inside it.

    `parquet` and `jsonl`: `samples.<format>`. `scores`: `scores.csv`, `.parquet` and `.json`. `inspect`: a folder of
    that name. `card`: `cards/<checkpoint>/README.md`.
    """
    target = out or run_dir.root / "exports"
    with run_dir.open_store(read_only=True) as store, writing(f"the export to {target}", "--to"):
        if form == "scores":
            return _write_scores(run_dir, target)
        if form == "inspect":
            return _write_inspect_logs(store, target)
        if form == "card":
            return write_cards(run_dir, store, target)
        return _write_samples(run_dir, store, form, target)


def _write_scores(run_dir: RunDir, target: Path) -> list[Path]:
    scores = frame(run_dir)
    contents = {
        "csv": scores.map(lambda value: spreadsheet(value) if isinstance(value, str) else value).to_csv(index=False),
        "parquet": scores.to_parquet(index=False),
        "json": scores.to_json(orient="records", indent=1, force_ascii=True, double_precision=15) + "\n",
    }
    for suffix, content in contents.items():
        write_atomically(target / f"scores.{suffix}", content if isinstance(content, bytes) else content.encode())
    return [target / f"scores.{suffix}" for suffix in contents]


def _write_samples(run_dir: RunDir, store: Store, form: Literal["parquet", "jsonl"], target: Path) -> list[Path]:
    path, cells = target / f"samples.{form}", target / "cells.json"
    (_write_parquet if form == "parquet" else _write_jsonl)(path, _lines(run_dir, store))
    specs = {cell.key: cell.spec for cell in store.cells()}
    write_atomically(cells, (json.dumps(specs, indent=1, sort_keys=True) + "\n").encode())
    return [path, cells]


def _lines(run_dir: RunDir, store: Store) -> Iterator[dict[str, Any]]:
    places: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place in places_of_cells(run_dir, store):
        if place.fields not in places[place.cell.key]:  # two columns may show one cell under two metrics
            places[place.cell.key].append(place.fields)
    for cell in store.cells():
        names = {"task": cell.spec["task"], "model": cell.spec["model_name"], "cell": cell.key}
        for fields in places.get(cell.key) or [dict.fromkeys(PLACE)]:
            yield from (fields | names | _record(sample) for sample in store.stream(cell.key))


def _record(sample: Sample) -> dict[str, Any]:
    problem, verdict = sample.problem, sample.verdict
    record: dict[str, Any] = {"problem_id": problem.problem_id, "group": problem.group, "question": problem.question}
    record |= {"gold": problem.gold.answer, "choices": list(problem.gold.choices), "meta": dict(problem.meta)}
    record |= asdict(sample.response) | (verdict._asdict() if verdict else dict.fromkeys(Verdict._fields))
    return record | {"details": dict(record["details"] or {}), "score": sample.score}


def _write_jsonl(path: Path, records: Iterator[dict[str, Any]]) -> None:
    with replaced(path) as file:
        file.writelines(json.dumps(line, ensure_ascii=True).encode() + b"\n" for line in records)


def _write_parquet(path: Path, records: Iterator[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    response = ("prompt_hash", "text", "num_tokens", "seconds", "truncated", "num_thought")
    problem = ("problem_id", "group", "question", "gold", "choices", "meta", "repeat")
    names = (*PLACE, "task", "model", "cell", *problem, *response, *Verdict._fields)
    kinds = dict.fromkeys(("seed", "repeat", "num_tokens", "num_thought"), pa.int64()) | {"truncated": pa.bool_()}
    kinds |= dict.fromkeys(("seconds", "score"), pa.float64())
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    with replaced(path) as file, pq.ParquetWriter(file, schema) as writer:
        while some := list(islice(records, ROWS_AT_ONCE)):
            flat = [line | {name: canonical_json(line[name]) for name in AS_JSON} for line in some]
            writer.write_table(pa.Table.from_pylist(flat, schema=schema))


# Logs of Inspect ------------------------------------------------------------------------------------------------------
#
# Finished cells for `inspect view --log-dir exports/inspect` (inspect.aisi.org.uk), one file a cell, in the form of
# version 2 of that log. An answer is a sample, its repeat an epoch, its points the score; the other states of an answer
# than right and wrong stand in the score's metadata.

SCORER = "atrl_bench"
LETTERS = {1.0: "C", 0.0: "I"}  # what Inspect calls right and wrong
# Inspect asks for dates, and the store keeps none: the same store gives the same file.
NO_DATE = datetime.fromtimestamp(0, UTC).isoformat()


def _write_inspect_logs(store: Store, target: Path) -> list[Path]:
    paths = []
    for cell in store.cells(kind="evaluation", state="done"):
        name = re.sub(r"[^A-Za-z0-9]+", "-", str(cell.spec["task"]))
        path = target / "inspect" / f"{NO_DATE[:10]}T00-00-00-00-00_{name}_{cell.key[:22]}.json"
        write_atomically(path, json.dumps(log_of(store, cell), ensure_ascii=True).encode())
        paths.append(path)
    if not paths:
        raise MissingDataError(
            f"Nothing in {store.path} is a finished evaluation.", next_step="atrl-bench status, to see what is missing"
        )
    return paths


def log_of(store: Store, cell: Cell) -> dict[str, Any]:
    samples = store.samples(cell.key)
    spec, model, decoding = cell.spec, str(cell.spec["model_name"]), cell.spec["decoding"]
    task, metric = headline_metric(cell)
    estimate, between = score_or_bounds(store, cell, metric)
    problems = list(dict.fromkeys(sample.problem.problem_id for sample in samples))
    figures = {metric: estimate.mean, "stderr": estimate.stderr}
    if between is not None:  # the judge failed on too many answers for one number
        figures = {f"{metric}, lowest": between[0], f"{metric}, highest": between[1]}
    metrics = {name: {"name": name, "value": value} for name, value in figures.items() if not math.isnan(value)}
    scorer = {"name": SCORER, "scorer": SCORER, "params": {}, "metrics": metrics}
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
            "model": model,
            "model_generate_config": {"temperature": decoding["temperature"], "max_tokens": decoding["max_new_tokens"]},
            "config": {"epochs": int(decoding["repeats"]), "limit": spec.get("limit")},
            "packages": {"atrl-bench": __version__},
            "metadata": spec,
        },
        "plan": {"steps": [{"solver": "generate", "params": {}}]},
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(judged),
            "scores": [scorer | {"scored_samples": len(judged), "unscored_samples": len(samples) - len(judged)}],
        },
        "stats": {"started_at": NO_DATE, "completed_at": NO_DATE},
        "samples": [_sample(sample, model) for sample in samples],
    }


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

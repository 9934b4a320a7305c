"""Every answer of a run folder as a line of Parquet or JSON: what it is an answer of first, then the answer.

A line for each table and row that an answer counts for, so choose a `table` before you average; an answer that no
rendered table shows has one line without. What a cell was asked with, which all its answers share, stands once in
`cells.json`. Written a few thousand answers at a time: a store of any size fits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from atrl_bench.digests import canonical_json
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.report.frame import places_of_cells
from atrl_bench.results.files import replaced, write_atomically, writing
from atrl_bench.results.records import Sample, Verdict
from atrl_bench.results.store import Store

PLACE = ("table", "row", "label", "recipe", "credit", "seed")
NUMBERS = ("seed", "repeat", "num_tokens")
FRACTIONS = ("seconds", "score")
ROWS_AT_ONCE = 5_000  # of Parquet: one group of rows in the file
AS_JSON = ("choices", "meta", "details")  # in Parquet, which has one type a column


def write_samples(run_dir: RunDir, store: Store, form: Literal["parquet", "jsonl"], target: Path) -> list[Path]:
    """Return the files written: all answers, and beside them what each cell was asked with."""
    path, cells = target / f"samples.{form}", target / "cells.json"
    with writing(path):
        (_write_parquet if form == "parquet" else _write_jsonl)(path, lines(run_dir, store))
        specs = {cell.key: cell.spec for cell in store.cells()}
        write_atomically(cells, (json.dumps(specs, indent=1, sort_keys=True) + "\n").encode())
    return [path, cells]


def lines(run_dir: RunDir, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the lines of one cell after another."""
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

    response = ("prompt_hash", "text", "num_tokens", "seconds", "truncated")
    problem = ("problem_id", "group", "question", "gold", "choices", "meta", "repeat")
    names = (*PLACE, "task", "model", "cell", *problem, *response, *Verdict._fields)
    kinds = dict.fromkeys(NUMBERS, pa.int64()) | dict.fromkeys(FRACTIONS, pa.float64()) | {"truncated": pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    with replaced(path) as file, pq.ParquetWriter(file, schema) as writer:
        while some := list(islice(records, ROWS_AT_ONCE)):
            flat = [line | {name: canonical_json(line[name]) for name in AS_JSON} for line in some]
            writer.write_table(pa.Table.from_pylist(flat, schema=schema))

"""`atrl-bench export FORM`: what a run folder measured, in the forms other tools read.

Samples as Parquet or JSON lines, one row an answer, or as logs of Inspect; scores as CSV, Parquet and JSON, one row a
number; a card for each trained model.

A sample has a line for each table and row that it counts for, so choose a `table` before you average; an answer that no
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
from atrl_bench.errors import MissingDataError
from atrl_bench.escape import spreadsheet
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.report.frame import frame, places_of_cells
from atrl_bench.report.inspect_logs import write_inspect_logs
from atrl_bench.report.model_card import write_cards
from atrl_bench.results.files import replaced, write_atomically, writing
from atrl_bench.results.records import Sample, Verdict
from atrl_bench.results.store import Store

Format = Literal["parquet", "jsonl", "scores", "inspect", "card"]

# A line of samples: what it is an answer of first, then the problem, the response and the verdict.
PLACE = ("table", "row", "label", "recipe", "credit", "seed")
NUMBERS = ("seed", "repeat", "num_tokens")
FRACTIONS = ("seconds", "score")
ROWS_AT_ONCE = 5_000  # of Parquet: one group of rows in the file
AS_JSON = ("choices", "meta", "details")  # in Parquet, which has one type a column


def export(run_dir: RunDir, form: Format, *, out: Path | None = None) -> list[Path]:
    """The files written from the run folder: into `out`, by default `exports` inside it.

    `parquet` and `jsonl`: `samples.<format>`. `scores`: `scores.csv`, `.parquet` and `.json`. `inspect`: a folder of
    that name. `card`: `cards/<checkpoint>/README.md`.
    """
    if not run_dir.store_path.is_file():
        raise MissingDataError(
            f"There is no result store in {run_dir.root}.",
            why="Only a run folder can be exported.",
            next_step=f"atrl-bench run-table main_7b {run_dir.options}",
        )
    target = out or run_dir.root / "exports"
    if form == "scores":
        return _write_scores(run_dir, target)
    with run_dir.open_store(read_only=True) as store:
        if form == "inspect":
            return write_inspect_logs(store, target)
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
        path = target / f"scores.{suffix}"
        with writing(path):
            write_atomically(path, content if isinstance(content, bytes) else content.encode())
    return [target / f"scores.{suffix}" for suffix in contents]


def _write_samples(run_dir: RunDir, store: Store, form: Literal["parquet", "jsonl"], target: Path) -> list[Path]:
    path, cells = target / f"samples.{form}", target / "cells.json"
    with writing(path):
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

    response = ("prompt_hash", "text", "num_tokens", "seconds", "truncated")
    problem = ("problem_id", "group", "question", "gold", "choices", "meta", "repeat")
    names = (*PLACE, "task", "model", "cell", *problem, *response, *Verdict._fields)
    kinds = dict.fromkeys(NUMBERS, pa.int64()) | dict.fromkeys(FRACTIONS, pa.float64()) | {"truncated": pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    with replaced(path) as file, pq.ParquetWriter(file, schema) as writer:
        while some := list(islice(records, ROWS_AT_ONCE)):
            flat = [line | {name: canonical_json(line[name]) for name in AS_JSON} for line in some]
            writer.write_table(pa.Table.from_pylist(flat, schema=schema))

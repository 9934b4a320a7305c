"""The rows of a benchmark as its task prepares them, and each as a problem."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.data.dataset import media_folder, table_files
from atrl_bench.data.pictures import CELL, with_own_files
from atrl_bench.data.tables import read_tables, reading
from atrl_bench.errors import AtrlBenchError, InvalidFileError, reason_of
from atrl_bench.evaluation.hooks import MEDIA_ROOT, Row
from atrl_bench.evaluation.prompts_for import UnreadableRow
from atrl_bench.evaluation.tasks import Task
from atrl_bench.results.records import Problem

if TYPE_CHECKING:
    from datasets import Dataset


def load_rows(task: Task, data_dir: Path | None, limit: int | None = None) -> Dataset:
    import datasets

    origin = data_dir or task.hub_id or task.folder
    paths = table_files(task, data_dir)
    with reading(f"The {task.title} data in {origin}"):
        rows = datasets.concatenate_datasets([datasets.Dataset(_read_table(path)) for path in paths])
    if not len(rows):
        raise InvalidFileError(f"The {task.title} data in {origin} has no rows.", next_step="fetch or copy it again")
    missing = [column for column in task.code.columns if column not in rows.column_names]
    if missing:
        what = f"The {task.title} data in {origin} has no column {', '.join(map(repr, missing))}."
        then = "give a --data-dir with the columns of the published dataset"
        raise InvalidFileError(what, why=f"It has {', '.join(rows.column_names)}.", next_step=then)
    if task.shows_videos:
        rows = rows.add_column(MEDIA_ROOT, [str(media_folder(task, data_dir))] * len(rows))
    with reading(f"The {task.title} data in {origin}"):
        rows = task.code.process_docs(rows)
    root = data_dir / task.folder if data_dir else paths[0].parent
    rows = rows.with_transform(partial(with_own_files, root=root))
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def _read_table(path: Path) -> Any:
    import datasets

    # Straight from the file: `load_dataset` would first write a second copy of it into its cache. What the file says of
    # its columns is not believed: `datasets` opens whatever a column names that is called an image, audio, video, PDF.
    table = read_tables([path])
    with reading(path):
        schema = table.schema.remove_metadata()
        features = datasets.Features.from_arrow_schema(schema)
        image = datasets.Image(decode=False)
        features |= {field.name: image for field in schema if _is_picture(field.type)}
        features |= {field.name: datasets.List(image) for field in schema if _is_picture(_item_type(field.type))}
        return datasets.table.InMemoryTable(table.cast(features.arrow_schema))


def _is_picture(kind: Any) -> bool:
    import pyarrow as pa

    return isinstance(kind, pa.StructType) and {part.name for part in kind} == CELL


def _item_type(kind: Any) -> Any:
    import pyarrow as pa

    return kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None


def without_images(rows: Dataset) -> Dataset:
    import datasets

    return rows.remove_columns([name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)])


def row_name(task: Task, row: Row, index: int) -> str:
    """The problem id of a row; one that is too damaged to have an id is named by its place."""
    try:
        name = task.code.problem_id(row)
    except Exception:
        return f"row {index}"
    return name if isinstance(name, str) else f"row {index}"


def read_problems(task: Task, rows: Dataset) -> tuple[Dataset, list[Problem], list[UnreadableRow]]:
    problems, damaged, kept = [], [], []
    for index, row in enumerate(without_images(rows)):
        try:
            problem = _checked(to_problem(task, row))
            task.code.doc_to_text(row, {})
        except (AtrlBenchError, MemoryError):
            raise
        except Exception as error:  # whatever a task's code makes of a row that is not as its publisher describes
            damaged.append((index, row_name(task, row, index), reason_of(error)))
        else:
            kept.append(index)
            problems.append(problem)
    names, unreadable = {problem.problem_id for problem in problems}, []
    for index, name, reason in damaged:  # counted by their names: what several have in common names none of them
        unreadable.append(UnreadableRow(f"row {index}" if name in names else name, reason))
        names.add(name)
    return (rows.select(kept) if damaged else rows), problems, unreadable


def _checked(problem: Problem) -> Problem:
    gold = problem.gold
    texts = [("question", problem.question), ("group", problem.group), ("answer", gold.answer)]
    texts += [("option", option) for option in gold.choices] + [("answer", answer) for answer in gold.references]
    for name, text in [("id", problem.problem_id), *texts]:
        if text is None:
            raise ValueError(f"it has no {name}")
        if not isinstance(text, str):
            raise TypeError(f"its {name} is no text but of type {type(text).__name__}")
    json.dumps(problem.meta)
    return problem


def to_problem(task: Task, row: Row) -> Problem:
    code = task.code
    meta = {name: row[name] for name in code.kept if name in row}
    if code.judge_question is not None:
        meta["judge_question"] = code.judge_question(row)
    gold = code.gold(row)
    if gold.precision is None:
        gold = replace(gold, precision=task.precision)
    return Problem(code.problem_id(row), code.group(row), code.question(row), gold, meta)

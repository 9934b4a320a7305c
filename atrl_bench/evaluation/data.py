"""The rows of a benchmark as its task prepares them, and each as a problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.data.dataset import media_folder, table_files
from atrl_bench.data.layout import own_file
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
    tables = [_read_table(path, data_dir and data_dir / task.folder) for path in table_files(task, data_dir)]
    with reading(f"The {task.title} data in {origin}"):
        rows = datasets.concatenate_datasets([datasets.Dataset(table) for table in tables])
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
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def _read_table(path: Path, root: Path | None) -> Any:
    import datasets

    # Straight from the file: `load_dataset` would first write a second copy of it into its cache.
    table = read_tables([path])
    with reading(path):
        described = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features")
        features = datasets.Features.from_dict(described) if described else _guessed_features(table.schema)
        for column in [name for name, kind in features.items() if isinstance(kind, datasets.Image)]:
            table = _with_own_files(table, column, root or path.parent)
        return datasets.table.InMemoryTable(table.cast(features.arrow_schema))


def _with_own_files(table: Any, column: str, root: Path) -> Any:
    """The table with those images of a column that are files, not embedded, found below the dataset's folder."""
    import pyarrow as pa
    import pyarrow.compute as pc

    images, field = table[column], table.schema.field(column)
    if not pa.types.is_struct(field.type):
        return table
    is_file = pc.and_(images.is_valid(), pc.struct_field(images, "bytes").is_null())
    if not pc.any(is_file).as_py():
        return table
    cells = [
        cell and cell | ({} if cell["bytes"] else {"path": str(own_file(root, cell["path"] or ""))})
        for cell in images.to_pylist()
    ]
    return table.set_column(table.schema.get_field_index(column), field, pa.array(cells, field.type))


def _guessed_features(schema: Any) -> Any:
    import datasets
    import pyarrow as pa

    features = datasets.Features.from_arrow_schema(schema)
    for column in schema:
        if pa.types.is_struct(column.type) and {part.name for part in column.type} == {"bytes", "path"}:
            features[column.name] = datasets.Image()
    return features


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
    return Problem(code.problem_id(row), code.group(row), code.question(row), code.gold(row), meta)

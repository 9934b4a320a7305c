"""The page `evaluations.html`: models that were evaluated in no table, under headings that say how they were asked.

It is a table like any other, with a column a benchmark, so its numbers have error bars and open to their answers. Only
models that were asked in one way stand under one heading, and are compared with its first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atrl_bench.digests import key_of, spec_key
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.definition import TableDefinition, table_of_cells
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.templates import template_name
from atrl_bench.printable import counted, flat_text
from atrl_bench.report.answers import AnswerSource, file_name, remembered_shades
from atrl_bench.report.build import build_table, made_with
from atrl_bench.report.cells import TableSource
from atrl_bench.report.compare import name_of
from atrl_bench.report.frame import places_of_cells
from atrl_bench.report.table_run import write_report
from atrl_bench.results.store import Cell, Store

NAME = "evaluations"
CAPTION = "Percent, with 95 % intervals over groups of problems. Each heading says how the models below it were asked."

ON_OTHERS = "on other rows, or by another version of the benchmark, than the newest's left out here."
OF_ROW_OR_COLUMN = ("kind", "model_digest", "model_name", "task", "task_version", "split", "data_digest")
MAX_TEXT = 40  # characters of a setting


def write_evaluations(run_dir: RunDir) -> Path | None:
    """Write the page; None where every evaluation is a table's."""
    with run_dir.open_store() as store:
        cells = cells_without_table(run_dir, store)
        if not cells:
            return None
        cells, notes = _of_newest(cells)
        definition, keys = _definition(cells, store)
        table = build_table(TableSource(definition, store, run_dir.profile, keys), notes=notes)
        shades, generated = remembered_shades(run_dir), run_dir.profile.generated_data
        answers = AnswerSource(store, keys, run_dir.data_dir, shades, has_known_anchors=generated)
        table = made_with(table, run_dir.profile, run_dir.environment())
        return write_report(table, run_dir.reports, answers, drawings={})[0]


def cells_without_table(run_dir: RunDir, store: Store) -> list[Cell]:
    """The finished evaluations under the folder's profile that no rendered table shows, by its judge."""
    placed = {place.cell.key for place in places_of_cells(run_dir, store)}
    done = store.cells(kind="evaluation", state="done", profile=run_dir.profile.name)
    cells = of_one_judge(done, run_dir.judge, run_dir.engine)
    return [cell for cell in cells if cell.key not in placed]


def protocol(spec: Mapping[str, Any]) -> str:
    """How a cell was asked and its answers were drawn, in words: what has to be equal where models are compared."""
    return "; ".join(_protocol(spec))


def _protocol(spec: Mapping[str, Any]) -> Iterator[str]:
    decoding, prompt = spec["decoding"], spec.get("prompt") or {}
    yield f"profile {spec['profile']}"
    yield "greedy" if decoding["temperature"] == 0 else f"temperature {decoding['temperature']:g}"
    if decoding["top_p"] < 1:
        yield f"top-p {decoding['top_p']:g}"
    if "top_k" in decoding:
        yield f"top-k {decoding['top_k']}"
    yield f"at most {decoding['max_new_tokens']:,} tokens"
    yield f"{decoding['repeats']} answers" if decoding["repeats"] > 1 else "1 answer"
    yield f"template {template_name(prompt['template'])}" if "template" in prompt else "three templates"
    if "system" in prompt:
        yield f"system prompt {template_name(prompt['system'])}"
    if "image" in spec:
        yield f"pictures {spec['image']}"
    if decoding.get("num_frames"):
        yield f"{decoding['num_frames']} frames of a video"
    if spec["limit"] is not None:
        yield f"the first {spec['limit']:,} problems"
    if spec["run_seed"]:
        yield f"seed {spec['run_seed']}"
    if spec.get("judge"):
        yield f"judge {spec['judge']['model']}"
    if "grader" in spec:
        yield f"graded by {spec['grader']}"
    if spec.get("engine"):
        yield f"by {spec['engine']['name']} {spec['engine']['version']}"


def headings(cells: Sequence[Cell]) -> dict[str, str]:
    """How each cell was asked, by its key: in words, and where cells differ in what these leave out, by that."""
    words = {cell.key: protocol(cell.spec) for cell in cells}
    settings = [(cell.key, *setting) for cell in cells for setting in flat_text(cell.spec) if setting[1] != "none"]
    texts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, name, text in settings:
        texts[words[key], name].add(text)
    said = dict(words)
    for key, name, text in settings:
        if name not in OF_ROW_OR_COLUMN and len(texts[words[key], name]) > 1:
            short = text if len(text) <= MAX_TEXT else key_of(text)
            said[key] += f"; {name.rpartition('.')[2].replace('_', ' ')} {short}"
    return said


def _of_newest(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """The cells on the newest rows of each benchmark, and what is said of the others."""

    def read(cell: Cell) -> tuple[Any, Any]:
        return cell.spec["data_digest"], cell.spec.get("task_version")

    newest = {cell.spec["task"]: read(cell) for cell in sorted(cells, key=lambda cell: cell.created)}
    kept = [cell for cell in cells if read(cell) == newest[cell.spec["task"]]]
    left_out = Counter(find_task(cell.spec["task"]).title for cell in cells if cell not in kept)
    return kept, [f"{title}: {counted(number, 'evaluation')} {ON_OTHERS}" for title, number in left_out.items()]


def _definition(cells: Sequence[Cell], store: Store) -> tuple[TableDefinition, dict[tuple[str, str], list[str]]]:
    groups: dict[str, dict[str, Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    columns: dict[str, dict[str, Any]] = {}
    keys: dict[tuple[str, str], list[str]] = {}
    of_cells = headings(cells)
    for cell in cells:
        spec, words = cell.spec, of_cells[cell.key]
        group, task, repeats = spec_key({"protocol": words}), find_task(spec["task"]), spec["decoding"]["repeats"]
        row = file_name(f"{spec['model_name'].replace('/', '_')}.{spec_key({'of': spec['model_digest'], 'in': group})}")
        column, metric = f"{task.name}.{repeats}", task.headline(repeats)
        label = name_of(spec["model_name"], store)
        rows.setdefault(row, {"id": row, "label": label, "group": group, "in_paper": False})
        columns.setdefault(
            column,
            {"id": column, "label": task.title, "task": task.name, "metric": metric}
            | {"subscript": metric if repeats > 1 else ""},
        )
        of_group = groups.setdefault(group, {"id": group, "label": words, "baseline": row, "columns": []})
        of_group["columns"] = list(dict.fromkeys([*of_group["columns"], column]))
        keys[row, column] = [cell.key]
    ordered = [row for group in groups for row in rows.values() if row["group"] == group]
    parts = {"columns": list(columns.values()), "groups": list(groups.values()), "rows": ordered}
    baseline = ordered[0]["id"]
    return table_of_cells(NAME, title="Evaluations", caption=CAPTION, baseline=baseline, average=False, **parts), keys

"""`atrl-bench export FORM`: what a run folder measured, in the forms other tools read.

Samples as Parquet or JSON lines, one row an answer with its problem, verdict and the setting of its cell; scores as
the hub's `.eval_results/*.yaml`, one file a model; and a manifest that names every file by its digest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atrl_bench.errors import InvalidFileError, MissingDataError, StoreError
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results.files import write_atomically
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from atrl_bench.grading.judge import JudgeConfig
    from atrl_bench.results.statistics import Estimate

Format = Literal["parquet", "jsonl", "eval-results", "manifest"]
MANIFEST = "manifest.json"
# What changes while a store is open, and what a manifest cannot name: itself, and the locks of runs.
_NOT_LISTED = ("store.sqlite-wal", "store.sqlite-shm", "lock")


def export(run_dir: RunDir, form: Format, *, out: Path | None = None) -> list[Path]:
    """Return the files written from the run folder: into `out`, by default `exports` inside it.

    `parquet` and `jsonl`: `samples.<format>`. `eval-results`: `.eval_results/<model>.yaml`, to be laid into that
    model's repository. `manifest`: `manifest.json` beside the store.
    """
    if not run_dir.store_path.is_file():
        raise MissingDataError(
            f"There is no result store in {run_dir.root}.",
            why="Only a run folder can be exported.",
            next_step=f"atrl-bench run-table main_7b {run_dir.options}",
        )
    if form == "manifest":
        return [write_manifest(run_dir.root)]
    target = out or run_dir.root / "exports"
    with run_dir.open_store(read_only=True) as store:
        if form == "eval-results":
            return _write_eval_results(store, target, run_dir.judge)
        path = target / f"samples.{form}"
        if form == "parquet":
            store.export_parquet(None, path)
        else:
            store.export_jsonl(None, path)
        return [path]


def export_text(paths: Sequence[Path]) -> str:
    """Return what was written, a line a file."""
    return "\n".join(f"Wrote {path} ({path.stat().st_size:,} bytes)" for path in paths)


# .eval_results --------------------------------------------------------------------------------------------------------


def eval_results(store: Store, judge: JudgeConfig | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return by model the entries of the hub's format for every finished cell of a benchmark that is on the hub.

    The value is the benchmark's own number in percent, over all repeats; the notes say what else it depends on. There
    is no date: the hub takes the commit's, and the same store gives the same file. Generated twins of benchmarks are
    left out, since they are not those benchmarks. Answers that several graders decided about count once, by `judge`.
    """
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in of_one_judge(store.cells(kind="evaluation", state="done"), judge):
        if not _is_generated(cell):
            entry = _entry(store, cell)
            if entry is not None:
                entries[str(cell.spec["model_name"])].append(entry)
    return dict(entries)


def _entry(store: Store, cell: Cell) -> dict[str, Any] | None:
    from atrl_bench.evaluation.tasks import find_task

    info = find_task(str(cell.spec["task"]))
    if info.hub_id is None or cell.spec.get("limit"):
        return None
    estimate, metric = _headline(store, cell)
    if not estimate.num_problems:
        return None
    dataset = {"id": info.hub_id, "task_id": info.name}
    if info.revision:
        dataset["revision"] = info.revision
    return {
        "dataset": dataset,
        "value": round(100 * estimate.mean, 2),
        "notes": _notes(cell, metric, 100 * estimate.half_width(), estimate.num_problems),
    }


def _headline(store: Store, cell: Cell) -> tuple[Estimate, str]:
    """Return the number a benchmark is quoted by, over all repeats, and what it is called."""
    from atrl_bench.evaluation.tasks import find_task
    from atrl_bench.experiments.evaluate_command import headline_answers
    from atrl_bench.results.statistics import score

    repeats = int(cell.spec["decoding"]["repeats"])
    answers = headline_answers(find_task(str(cell.spec["task"])), store.samples(cell.key), repeats)
    return score(answers), answers.metric


def _notes(cell: Cell, metric: str, half_width: float, num_problems: int) -> str:
    spec = cell.spec
    judge = spec.get("judge")
    parts = [
        f"atrl-bench {metric}, split {spec['split']}, {num_problems} problems",
        f"95 % interval ±{half_width:.2f}",
        f"temperature {spec['decoding']['temperature']}, {spec['decoding']['max_new_tokens']} new tokens at most",
        f"judge {judge['model']}" if judge else "rule grader, no judge",
        f"task {spec['task_version']}, prompts {spec['prompt_version']}, grader {spec['grader_version']}",
        f"cell {cell.key}",
    ]
    return "; ".join(parts)


def _is_generated(cell: Cell) -> bool:
    from atrl_bench.profiles import list_profiles, load_profile

    name = str(cell.spec.get("profile"))
    return name in list_profiles() and load_profile(name).generated_data


def _write_eval_results(store: Store, target: Path, judge: JudgeConfig | None) -> list[Path]:
    import yaml

    found = eval_results(store, judge)
    if not found:
        raise MissingDataError(
            f"Nothing in {store.path} belongs into `.eval_results`.",
            why="It takes finished evaluations of whole benchmarks that are on the hub; generated twins are not those.",
            next_step="atrl-bench evaluate MODEL --tasks mathvista_testmini --profile paper",
        )
    paths = []
    for model, entries in sorted(found.items()):
        name = re.sub(r"[^A-Za-z0-9._-]+", "__", model).lstrip(".") or "model"
        path = target / ".eval_results" / f"{name}.yaml"
        content = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)
        _write(path, content.encode())
        paths.append(path)
    return paths


# The manifest ---------------------------------------------------------------------------------------------------------


def write_manifest(run_dir: Path) -> Path:
    """Write `manifest.json` into the run folder and return its path."""
    path = run_dir / MANIFEST
    content = json.dumps({"files": manifest(run_dir)}, indent=2, sort_keys=True) + "\n"
    _write(path, content.encode())
    return path


def manifest(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of every file of a run folder, by its path inside it.

    Fold the store's log into it first, by closing every process that uses it: what is only in the log is not named.
    """
    return {
        path.relative_to(run_dir).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in _files_of(run_dir)
    }


def check_manifest(run_dir: Path) -> list[str]:
    """Return what differs from the run folder's manifest: a sentence for each file changed, missing or new."""
    path, command = run_dir / MANIFEST, f"atrl-bench export manifest --out {run_dir}"
    if not path.is_file():
        raise MissingDataError(f"There is no {path}.", next_step=command)
    try:
        noted = dict(json.loads(path.read_text(encoding="utf-8"))["files"])
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidFileError(
            f"{path} is not a manifest.",
            why=f"{type(error).__name__}: {error}.",
            next_step=f"take it from where this folder came from, or write what is here now: {command}",
        ) from None
    now = manifest(run_dir)
    differences = [f"{name} is missing" for name in noted if name not in now]
    differences += [f"{name} has changed" for name in noted if name in now and now[name] != noted[name]]
    return sorted(differences + [f"{name} is new" for name in now if name not in noted])


def _files_of(run_dir: Path) -> Iterator[Path]:
    for path in sorted(run_dir.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name not in _NOT_LISTED and path != run_dir / MANIFEST:
            yield path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise StoreError(
            f"Cannot write {path}.", why=f"{error}.", next_step="use a folder you can write to with --out"
        ) from error

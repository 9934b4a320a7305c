"""`atrl-bench export FORM`: what a run folder measured, in the forms other tools read.

Samples as Parquet or JSON lines, one row an answer, as logs of Inspect or as lmms-eval's sample files; scores as CSV,
Parquet and JSON, one row a number, or as the hub's `.eval_results/*.yaml`, one file a model; a card for each trained
model; and a manifest that names every file by its digest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from atrl_bench.analysis.task_scores import scored
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.escape import spreadsheet
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import Block, Record
from atrl_bench.profiles import list_profiles, load_profile
from atrl_bench.report.frame import frame
from atrl_bench.report.inspect_logs import write_inspect_logs
from atrl_bench.report.lmms_samples import write_lmms_samples
from atrl_bench.report.model_card import write_cards
from atrl_bench.report.sample_exports import write_samples
from atrl_bench.results.files import write_atomically, writing
from atrl_bench.results.statistics import score
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from atrl_bench.grading.judge.judge import JudgeConfig

Format = Literal["parquet", "jsonl", "scores", "inspect", "lmms-eval", "eval-results", "card", "manifest"]
MANIFEST = "manifest.json"
# What changes while a store is open, and what a manifest cannot name: itself, and the locks of runs.
_NOT_LISTED = ("store.sqlite-wal", "store.sqlite-shm", "store.sqlite-working", "store.sqlite-turn", "lock")


@dataclass(frozen=True)
class ExportedFiles(Record):
    """What was written."""

    paths: tuple[Path, ...]

    def document(self) -> list[str]:
        """Return what `--json` prints."""
        return [str(path) for path in self.paths]

    def blocks(self) -> Iterable[Block]:
        """Yield a line a file."""
        for path in self.paths:
            yield f"Wrote {path} ({path.stat().st_size:,} bytes)"


@dataclass(frozen=True)
class ManifestCheck(Record):
    """What differs from a run folder's manifest: a sentence for each file changed, missing or new."""

    run_dir: Path
    differences: tuple[str, ...]

    def document(self) -> list[str]:
        """Return what `--json` prints."""
        return list(self.differences)

    def blocks(self) -> Iterable[Block]:
        """Yield the differences, or that there is none."""
        yield from self.differences or [f"{self.run_dir} is what its manifest says."]


def export(run_dir: RunDir, form: Format, *, out: Path | None = None) -> ExportedFiles:
    """Return the files written from the run folder: into `out`, by default `exports` inside it.

    `parquet` and `jsonl`: `samples.<format>`. `scores`: `scores.csv`, `.parquet` and `.json`. `inspect` and
    `lmms-eval`: a folder of that name. `eval-results`: `.eval_results/<model>.yaml`, to be laid into that model's
    repository. `card`: `cards/<checkpoint>/README.md`. `manifest`: `manifest.json`, by default beside the store.
    """
    if not run_dir.store_path.is_file():
        raise MissingDataError(
            f"There is no result store in {run_dir.root}.",
            why="Only a run folder can be exported.",
            next_step=f"atrl-bench run-table main_7b {run_dir.options}",
        )
    usual = run_dir.root if form == "manifest" else run_dir.root / "exports"
    return ExportedFiles(tuple(_export(run_dir, form, out or usual)))


def _export(run_dir: RunDir, form: Format, target: Path) -> list[Path]:
    if form == "manifest":
        return [write_manifest(run_dir.root, target)]
    if form == "scores":
        return _write_scores(run_dir, target)
    with run_dir.open_store(read_only=True) as store:
        if form == "eval-results":
            return _write_eval_results(store, target, run_dir)
        if form == "inspect":
            return write_inspect_logs(store, target)
        if form == "lmms-eval":
            return write_lmms_samples(store, target)
        if form == "card":
            return write_cards(run_dir, store, target)
        return write_samples(run_dir, store, form, target)


def _write_scores(run_dir: RunDir, target: Path) -> list[Path]:
    scores = frame(run_dir)
    contents = {
        "csv": scores.map(lambda value: spreadsheet(value) if isinstance(value, str) else value).to_csv(index=False),
        "parquet": scores.to_parquet(index=False),
        "json": scores.to_json(orient="records", indent=1, force_ascii=True, double_precision=15) + "\n",
    }
    for suffix, content in contents.items():
        _write(target / f"scores.{suffix}", content if isinstance(content, bytes) else content.encode())
    return [target / f"scores.{suffix}" for suffix in contents]


# .eval_results --------------------------------------------------------------------------------------------------------


def eval_results(
    store: Store, judge: JudgeConfig | None = None, engine: Engine | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return by model the entries of the hub's format for every finished cell of a benchmark that is on the hub.

    The value is the benchmark's own number in percent, over all repeats; the notes say what else it depends on. There
    is no date: the hub takes the commit's, and the same store gives the same file. Synthetic benchmarks are
    not those on the hub and are left out. Answers that several graders decided about count once, by `judge`;
    a model that several engines answered for, by `engine`.
    """
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    generated = {name for name in list_profiles() if load_profile(name).generated_data}
    for cell in of_one_judge(store.cells(kind="evaluation", state="done"), judge, engine):
        if cell.spec.get("profile") not in generated and not cell.spec.get("limit"):
            entries[str(cell.spec["model_name"])] += _entries(store, cell)
    return {model: of_model for model, of_model in entries.items() if of_model}


def _entries(store: Store, cell: Cell) -> list[dict[str, Any]]:
    info = find_task(str(cell.spec["task"]))
    samples = scored(info.name, store.scores(cell.key), f"headline@{cell.spec['decoding']['repeats']}")
    estimate = score(samples)
    if info.hub_id is None or not estimate.num_problems:
        return []
    dataset = {"id": info.hub_id, "task_id": info.name} | ({"revision": info.revision} if info.revision else {})
    notes = _notes(cell, samples.metric, 100 * estimate.half_width(), estimate.num_problems)
    return [{"dataset": dataset, "value": round(100 * estimate.mean, 2), "notes": notes}]


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


def _write_eval_results(store: Store, target: Path, run_dir: RunDir) -> list[Path]:
    by_model = eval_results(store, run_dir.judge, run_dir.engine)
    if not by_model:
        raise MissingDataError(
            f"Nothing in {store.path} belongs into `.eval_results`.",
            why="It takes finished evaluations of whole benchmarks on the hub; synthetic benchmarks are not those.",
            next_step="atrl-bench evaluate MODEL --tasks mathvista_testmini --profile paper",
        )
    paths = []
    for model, entries in sorted(by_model.items()):
        name = re.sub(r"[^A-Za-z0-9._-]+", "__", model).lstrip(".") or "model"
        path = target / ".eval_results" / f"{name}.yaml"
        content = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)
        _write(path, content.encode())
        paths.append(path)
    return paths


# The manifest ---------------------------------------------------------------------------------------------------------


def write_manifest(run_dir: Path, target: Path | None = None) -> Path:
    """Write `manifest.json` of a run folder, into it or into `target`, and return its path."""
    path = (target or run_dir) / MANIFEST
    content = json.dumps({"files": manifest(run_dir, path)}, indent=2, sort_keys=True) + "\n"
    _write(path, content.encode())
    return path


def manifest(run_dir: Path, own_path: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of every file of a run folder but the manifest itself, by its path inside the folder.

    Fold the store's log into it first, by closing every process that uses it: what is only in the log is not named.
    """
    files = (path for path in sorted(run_dir.rglob("*")) if path.is_file() and not path.is_symlink())
    own = (own_path.resolve(), (run_dir / MANIFEST).resolve())
    listed = (path for path in files if path.name not in _NOT_LISTED and path.resolve() not in own)
    return {path.relative_to(run_dir).as_posix(): _size_and_digest(path) for path in listed}


def _size_and_digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def check_manifest(run_dir: Path, target: Path | None = None) -> ManifestCheck:
    """Return what differs from the run folder's manifest, which is in it or in `target`."""
    to = f" --to {target}" if target else ""
    path, command = (target or run_dir) / MANIFEST, f"atrl-bench export manifest --out {run_dir}{to}"
    if not path.is_file():
        raise MissingDataError(f"There is no {path}.", next_step=command)
    try:
        entries = dict(json.loads(path.read_text(encoding="utf-8"))["files"])
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidFileError(
            f"{path} is not a manifest.",
            why=f"{type(error).__name__}: {error}.",
            next_step=f"take it from where this folder came from, or write what is here now: {command}",
        ) from None
    now = manifest(run_dir, path)
    differences = dict.fromkeys(entries.keys() - now.keys(), "is missing")
    differences |= dict.fromkeys(now.keys() - entries.keys(), "is new")
    differences |= {name: "has changed" for name in now.keys() & entries.keys() if now[name] != entries[name]}
    return ManifestCheck(run_dir, tuple(sorted(f"{name} {what}" for name, what in differences.items())))


def _write(path: Path, content: bytes) -> None:
    with writing(path):
        write_atomically(path, content)

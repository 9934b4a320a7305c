"""The judge of a run folder: chosen once, then asked by every table and every evaluation in that folder (D8).

Who judges is part of a cell's key, so a folder's tables need one answer to that question. It lies in `run.json`
beside the store, without any key. Another judge, or none, makes other cells from the same answers; those of the judge
before stay in the store and are found again when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from atrl_bench.digests import spec_key
from atrl_bench.evaluation.cell_spec import GRADING_FIELDS, Engine
from atrl_bench.experiments.run_dir import RunDir, keep_settings
from atrl_bench.grading.judge.calibration import CalibrationReport, calibration_report, check_calibration
from atrl_bench.grading.judge.judge import Judge, JudgeConfig
from atrl_bench.printable import Block, Record
from atrl_bench.results.store import Cell

NOBODY = "none: the rule grader alone decides"
KINDS = ("known right", "known wrong", "attempts to talk it round")


@dataclass(frozen=True)
class FolderJudge(Record):
    """Who judges in a run folder, and how the judge did on its calibration set there; None where nobody asked it."""

    root: Path
    judge: JudgeConfig | None = None
    calibration: CalibrationReport | None = None

    def blocks(self) -> Iterable[Block]:
        if self.judge is None:
            yield f"No judge in {self.root}: the rule grader alone decides."
            return
        scope = "every answer" if self.judge.scope == "all" else "every answer but option letters"
        yield f"Judge in {self.root}: {self.judge.model} at {self.judge.base_url}"
        yield f"It decides about {scope} that the rules cannot prove right; temperature {self.judge.temperature:g}."
        if self.judge.criteria is not None:
            yield f"It is told in the user's own words what is equal: {self.judge.criteria}"
        if self.calibration is None:
            yield "Its calibration questions have not been asked in this folder."
            return
        parts = (self.calibration.right, self.calibration.wrong, self.calibration.injection)
        passed = [f"{text} {part.passed} of {part.total}" for text, part in zip(KINDS, parts, strict=True)]
        yield f"Calibration questions passed: {', '.join(passed)}."
        yield from (f"Objection: {text}" for text in self.calibration.objections)


def choose_judge(run_dir: RunDir, judge: JudgeConfig) -> FolderJudge:
    """Have this judge judge the folder; raises `EndpointError` for one that is silent or fails its calibration."""
    with run_dir.open_store() as store:
        calibration = check_calibration(Judge(judge, store), anew=True)
    keep_settings(run_dir.root, judge=judge)
    return FolderJudge(run_dir.root, judge, calibration)


def drop_judge(run_dir: RunDir) -> FolderJudge:
    keep_settings(run_dir.root, judge=None)
    return FolderJudge(run_dir.root)


def folder_judge(run_dir: RunDir) -> FolderJudge:
    """Who judges in this folder, and what it said to its calibration questions here; asks nobody."""
    if run_dir.judge is None or not run_dir.store_path.is_file():
        return FolderJudge(run_dir.root, run_dir.judge)
    with run_dir.open_store(read_only=True) as store:
        return FolderJudge(run_dir.root, run_dir.judge, calibration_report(store, run_dir.judge.identity))


def judge_name(judge: JudgeConfig | None) -> str:
    return NOBODY if judge is None else f"{judge.model} at {judge.base_url}"


def of_one_judge(cells: Iterable[Cell], judge: JudgeConfig | None, engine: Engine | None = None) -> list[Cell]:
    """The cells, of those that differ in judge or engine alone the one of these, else the newest."""
    identity, answerer = judge.identity if judge is not None else None, asdict(engine) if engine is not None else None

    def rank(cell: Cell) -> tuple[Any, ...]:
        return cell.spec.get("engine") == answerer, cell.spec.get("judge") == identity, cell.created, cell.key

    best: dict[str, Cell] = {}
    for cell in cells:
        answers = spec_key({k: value for k, value in cell.spec.items() if k not in (*GRADING_FIELDS, "engine")})
        best[answers] = max(best.get(answers, cell), cell, key=rank)
    return list(best.values())

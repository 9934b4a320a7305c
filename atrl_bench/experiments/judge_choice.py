"""The judge of a run folder: chosen once, then asked by every table and every evaluation in that folder (D8).

Who judges is part of a cell's key, so a folder's tables need one answer to that question. It lies in `judge.json`
beside the store, without any key. Another judge, or none, makes other cells from the same answers; those of the judge
before stay in the store and are found again when it comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.digests import spec_key
from atrl_bench.errors import InvalidFileError
from atrl_bench.escape import folded
from atrl_bench.results.files import write_atomically
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.grading.judge.judge import JudgeConfig

FILE = "judge.json"
NOBODY = "none: the rule grader alone decides"


def read_judge(root: Path) -> JudgeConfig | None:
    """Return the judge that was chosen for this run folder, None where the rules alone decide."""
    path = root / FILE
    if not path.is_file():
        return None
    from pydantic import TypeAdapter

    from atrl_bench.grading.judge.judge import JudgeConfig

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        judge = TypeAdapter(JudgeConfig).validate_python(content)
        if unknown := content.keys() - asdict(judge).keys():
            raise ValueError(f"A judge has no field {', '.join(sorted(unknown))}.")
    except ValueError as error:  # pydantic's are of this kind, too
        reason = str(error).splitlines()
        raise InvalidFileError(
            f"{path} does not describe a judge.",
            why=" ".join(reason[:3]),
            next_step=f"correct {path}, or delete it and choose again: atrl-bench judge URL --out {root}",
        ) from None
    return judge


def choose_judge(run_dir: RunDir, judge: JudgeConfig) -> dict[str, Any]:
    """Return how this judge does on its calibration set, after writing down that it judges the folder from now on.

    Raises `EndpointError` for one that does not answer, or is not fit; then nothing is written.
    """
    from atrl_bench.grading.judge.calibration import check_calibration
    from atrl_bench.grading.judge.judge import Judge

    with Store.open(run_dir.store_path) as store:
        report = check_calibration(Judge(judge, store), anew=True)
    content = json.dumps(asdict(judge), indent=2, sort_keys=True) + "\n"
    write_atomically(run_dir.root / FILE, content.encode())
    return {"judge": asdict(judge), "calibration": asdict(report)}


def drop_judge(run_dir: RunDir) -> dict[str, Any]:
    """Leave the verdicts of this folder to the rule grader alone from now on."""
    (run_dir.root / FILE).unlink(missing_ok=True)
    return {"judge": None, "calibration": None}


def judge_record(run_dir: RunDir) -> dict[str, Any]:
    """Return who judges in this folder, and what it said to its calibration questions here; asks nobody."""
    from atrl_bench.grading.judge.calibration import calibration_report

    if run_dir.judge is None:
        return {"judge": None, "calibration": None}
    report = None
    if run_dir.store_path.is_file():
        with Store.open(run_dir.store_path, read_only=True) as store:
            report = calibration_report(store, run_dir.judge.identity)
    return {"judge": asdict(run_dir.judge), "calibration": asdict(report) if report else None}


def judge_name(judge: JudgeConfig | None) -> str:
    """Return who decides about answers, in a few words."""
    return NOBODY if judge is None else f"{judge.model} at {judge.base_url}"


def judge_text(record: dict[str, Any], run_dir: RunDir) -> str:
    """Return who judges in this folder as a person reads it."""
    judge, calibration_set = record["judge"], record["calibration"]
    if judge is None:
        return "\n".join(folded(f"No judge in {run_dir.root}: the rule grader alone decides.", rest="  "))
    scope = "every answer" if judge["scope"] == "all" else "every answer but option letters"
    said = [
        f"Judge in {run_dir.root}: {judge['model']} at {judge['base_url']}",
        f"It decides about {scope} that the rules cannot prove right; temperature {judge['temperature']:g}.",
    ]
    if calibration_set is None:
        said.append("Its calibration questions have not been asked in this folder.")
    else:
        names = {"right": "known right", "wrong": "known wrong", "injection": "attempts to talk it round"}
        passed = [
            f"{text} {calibration_set[kind]['passed']} of {calibration_set[kind]['total']}"
            for kind, text in names.items()
        ]
        said.append(f"Calibration questions passed: {', '.join(passed)}.")
        said += [f"Objection: {text}" for text in calibration_set["objections"]]
    return "\n".join(line for sentence in said for line in folded(sentence, rest="  "))


def of_one_judge(cells: Iterable[Cell], judge: JudgeConfig | None) -> list[Cell]:
    """Return the cells, and of those that grade the same answers the one of this judge, else the newest."""
    from atrl_bench.evaluation.cell_spec import GRADING_FIELDS

    wanted = judge.identity if judge is not None else None
    chosen: dict[str, Cell] = {}
    for cell in cells:
        answers = spec_key({name: value for name, value in cell.spec.items() if name not in GRADING_FIELDS})
        other = chosen.get(answers)
        if other is None or _rank(cell, wanted) > _rank(other, wanted):
            chosen[answers] = cell
    return list(chosen.values())


def _rank(cell: Cell, judge: dict[str, Any] | None) -> tuple[Any, ...]:
    return cell.spec.get("judge") == judge, cell.created, cell.key

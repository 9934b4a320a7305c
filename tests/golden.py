"""What small runs store and show, as digests that the repository keeps: a change of structure must not move them.

    python tests/golden.py           runs four commands (minutes), prints what changed, and records it
    python tests/golden.py FOLDER    the same for a folder in which they ran already

`tests/test_run_table.py`, and so `tox`, compares on every run. A commit that records anew says which entries moved,
and why. Processors add in other orders: what follows from the last digits of trained weights, their digest and the keys
of what they answered, is not compared, and weights are compared by how far and along what they moved. A signal is
compared by its numbers within a tolerance, but for the answers after a step, of which the last digits flip some; so is
its card without any number.
"""

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from atrl_bench.mini import BASE

RECORD = Path(__file__).with_name("golden.json")
SIGNAL = "signal mini-perception --prompts 9 --held-out 2 --rules atrl,random --json"
COMMANDS = ("run-table main_7b", "ablate hard_truncation --topk 0.15", "run-table video", SIGNAL, "export jsonl")
# One instruction set; on another, or a processor of another maker, weights part by 1e-5 of what they moved.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL",
}
# Another version of these may round, draw or encode otherwise: then a difference is no fault.
LIBRARIES = ("torch", "transformers", "trl", "numpy", "scipy", "pymetis", "matplotlib", "pillow", "decord", "lmms-eval")
TOLERANCE = 1e-3  # of how far weights moved
NEAR = 0.01  # for what is measured of a rule; between processors it moves by 2e-5
NEAR_FACTOR = 0.1  # for how many times fewer problems it needs, which divides by nearly nothing and moves by 0.03
MEASURED = ("anchor_auc", "reliability", "reliability_ends", "top_share")
DURATION = re.compile(r"(?<=<td>done</td><td>)[^<]*(?=</td>)")
NUMBER = re.compile(r"\d+\.\d+(e-?\d+)?")
ANY_NUMBER = re.compile(r"[-−+]?(\d+(\.\d+)?(e-?\d+)?|∞)")
DIGEST = re.compile(r"(?<![.\w])[0-9a-f]{16}\b")  # of weights; keys are as long, and so are decimals
TEXT = {".html", ".json", ".csv", ".md", ".tex", ".svg"}

Digests = dict[str, dict[str, Any]]


def run(folder: Path) -> dict[str, str]:
    """Run the commands in one run folder; return what each printed."""
    printed = {}
    for command in COMMANDS:
        program = [sys.executable, "-m", "atrl_bench", *command.split(), "--profile", "smoke", "--out", str(folder)]
        done = subprocess.run(program, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr[-3000:]}"
        printed[command] = done.stdout
    (folder / "signal.json").write_text(printed[SIGNAL], encoding="utf-8")
    return printed


def libraries() -> dict[str, str]:
    """Return the versions that the digests were recorded with."""
    return {name: version(name) for name in LIBRARIES}


def contents(folder: Path) -> Digests:
    """Return what must not change: scores, prompts, answers and verdicts by cell, keys, weights, pages, a signal."""
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (folder / "exports" / "samples.jsonl").read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        seed = "" if sample["seed"] is None else f" seed {sample['seed']}"
        cells[f"{sample['table']} {sample['row']}{seed} {sample['task']}"].append(sample)
    found: Digests = {"libraries": libraries(), "cells": {}, "weights": {}, "pages": dict(_pages(folder))}
    for name, samples in sorted(cells.items()):
        samples.sort(key=lambda sample: (sample["problem_id"], sample["repeat"]))
        scores = [sample["score"] for sample in samples]
        trained = folder / "checkpoints" / samples[0]["model"] / "model.safetensors"
        found["cells"][name] = {
            **({} if trained.is_file() else {"key": samples[0]["cell"]}),
            "score": f"{sum(score or 0.0 for score in scores) / len(scores):.4f}",
            "prompts": _of(samples, "problem_id", "question", "gold", "choices", "meta", "prompt_hash"),
            "answers": _of(samples, "text", "num_tokens", "truncated"),
            "verdicts": _of(samples, "state", "extracted", "grader", "why", "score", "details"),
        }
        if trained.is_file():
            found["weights"][name.rpartition(" ")[0]] = {"key": samples[0]["model"], **_movement(trained)}
    found["signal"] = {
        row["rule"]: {name: row[name] for name in MEASURED} | {"factor": row["efficiency_scaled"]["factor"]}
        for row in json.loads((folder / "signal.json").read_text(encoding="utf-8"))["rules"]
    }
    return found


def differences(before: Digests, after: Digests) -> list[str]:
    """Return a line for each entry that is not the same, whatever libraries it is of."""
    lines = []
    for kind in sorted((before.keys() | after.keys()) - {"libraries"}):
        old, new = before.get(kind, {}), after.get(kind, {})
        for name in sorted(old.keys() | new.keys()):
            was, is_now = old.get(name), new.get(name)
            if isinstance(was, dict) and isinstance(is_now, dict):
                for field in sorted(was.keys() | is_now.keys()):
                    of_signal = NEAR_FACTOR if field == "factor" else NEAR
                    within = of_signal if kind == "signal" else TOLERANCE * was.get("moved", 0.0)
                    if not _same(was.get(field), is_now.get(field), within):
                        lines.append(f"{kind}: {name}: {field} {was.get(field)} -> {is_now.get(field)}")
            elif was != is_now:
                change = "new" if name not in old else "gone" if name not in new else f"{was} -> {is_now}"
                lines.append(f"{kind}: {name}: {change}")
    return lines


def _same(left: Any, right: Any, within: float) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return all(_same(*pair, within) for pair in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=0.0, abs_tol=within)
    return bool(left == right)


def _movement(path: Path) -> dict[str, float]:
    """Return how far trained weights are from the base, and how far along a fixed random direction."""
    before, after, rng = load_file(BASE / "model.safetensors"), load_file(path), torch.Generator().manual_seed(0)
    change = torch.cat([(after[name].double() - before[name].double()).flatten() for name in sorted(after)])
    direction = torch.randn(len(change), generator=rng, dtype=torch.float64)
    return {"moved": round(change.norm().item(), 6), "along": round((change @ direction).item(), 6)}


def _pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the digest of each rendered file, and one of all pictures; without keys, digests, machine and versions."""
    reports, pictures = folder / "reports", []
    environment = json.loads((reports / "main_7b.json").read_text(encoding="utf-8"))["environment"]
    varying = re.compile("|".join([DIGEST.pattern, *map(re.escape, sorted(value for _, value in environment))]))
    for path in sorted(path for path in reports.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.suffix in TEXT:
            text = DURATION.sub("", varying.sub("", content.decode()))
            text = ANY_NUMBER.sub("", text) if path.name.startswith("card_") else text
            content = (_rounded(text) if path.suffix == ".json" else text).encode()
        if path.parent.name == "media":
            pictures.append(_digest(content))
        else:
            yield str(path.relative_to(reports)), _digest(content)
    yield "media", _digest(repr(sorted(pictures)))


def _rounded(text: str) -> str:
    return NUMBER.sub(lambda number: f"{float(number[0]):.3g}", text)


def _of(samples: list[dict[str, Any]], *fields: str) -> str:
    return _digest(json.dumps([[sample[field] for field in fields] for sample in samples], sort_keys=True))


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:12]


def recorded() -> Digests:
    """Return what the repository keeps."""
    return json.loads(RECORD.read_text(encoding="utf-8"))


def write_record(digests: Digests) -> None:
    """Write one line an entry, so that a diff shows what moved."""
    kinds = []
    for kind, entries in digests.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
        kinds.append(f" {json.dumps(kind)}: {{\n{lines}\n }}")
    RECORD.write_text("{\n" + ",\n".join(kinds) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Run if no folder is given, print what changed, and record."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        if not (folder / "signal.json").is_file():
            run(folder)
        now = contents(folder)
    changed = differences(recorded(), now) if RECORD.exists() else ["everything: recorded for the first time"]
    print("\n".join(changed) or "Nothing changed.")
    write_record(now)


if __name__ == "__main__":
    main()

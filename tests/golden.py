"""Whether a change of structure changed a result: a smoke run before and after it, compared byte for byte.

    python tests/golden.py record DIR          runs a table, an ablation and a table of videos (about three minutes)
    python tests/golden.py compare DIR DIR     says what differs: weights, prompts, answers, verdicts, rendered files

Cells and trainings are told apart by their settings and not by their keys, and keys inside rendered files are replaced
by those settings: a change of what a key is made of is no difference here, a change of what is stored or shown is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = ("run-table main_7b", "ablate hard_truncation --topk 0.15", "run-table video")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
UNNAMED = ("task_version",)  # settings that may change their name without changing what is asked
# The versions of tasks, and how long a training took.
VARYING = re.compile(r"\b\d+\.\d+-[0-9a-f]{8}\b|(?<=<td>done</td><td>)[^<]*(?=</td>)")
TEXT = {".html", ".json", ".csv", ".md", ".tex", ".svg"}


def record(folder: Path) -> None:
    """Run the three commands in a run folder."""
    for command in COMMANDS:
        program = [sys.executable, "-m", "atrl_bench", *command.split(), "--profile", "smoke", "--out", str(folder)]
        subprocess.run(program, check=True, env=os.environ | ENVIRONMENT, stdout=subprocess.DEVNULL)


def compare(before: Path, after: Path) -> list[str]:
    """Return a line for everything that is not the same in two run folders."""
    old, new = dict(_contents(before)), dict(_contents(after))
    return [
        f"{name}: {'only before' if name not in new else 'only after' if name not in old else 'differs'}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _contents(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each thing that must not change, by name, as a digest."""
    store = sqlite3.connect(f"file:{folder / 'store.sqlite'}?mode=ro", uri=True)
    names = {key: _name(json.loads(spec)) for key, spec in store.execute("SELECT key, spec FROM cells")}
    for table in ("problems", "responses", "grades"):
        columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})") if row[1] not in ("cell", "seconds")]
        listed = ", ".join(f'"{column}"' for column in columns)
        for key, name in names.items():
            rows = store.execute(f"SELECT {listed} FROM {table} WHERE cell = ? ORDER BY problem_id", (key,)).fetchall()
            yield f"{table} of {name}", _digest(repr(sorted(rows, key=repr)))
    for key, spec, digest in store.execute("SELECT key, spec, digest FROM runs"):
        names[key] = _name(json.loads(spec))
        yield f"weights of {names[key]}", digest
    keys = re.compile("|".join(names) or "$^")
    pictures = []
    for path in sorted(path for path in (folder / "reports").rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.suffix in TEXT:
            content = VARYING.sub("", keys.sub(lambda key: names[key[0]], content.decode())).encode()
        if path.parent.name == "media" and path.suffix == ".json":  # named by its benchmark's version
            pictures.append(_digest(content))
        else:
            yield f"file {path.relative_to(folder)}", _digest(content)
    yield "pictures of benchmarks", _digest(repr(sorted(pictures)))


def _name(spec: dict[str, Any]) -> str:
    settings = {name: value for name, value in spec.items() if name not in UNNAMED}
    told = spec.get("task") or f"{spec['recipe'].get('objective')} seed {spec['seed']}"
    return f"{told} {_digest(json.dumps(settings, sort_keys=True))[:12]}"


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


if __name__ == "__main__":
    verb, *folders = sys.argv[1:]
    if verb == "record":
        record(Path(folders[0]))
    else:
        differences = compare(Path(folders[0]), Path(folders[1]))
        print("\n".join(differences) or "Nothing differs.")
        sys.exit(bool(differences))

"""Planted mistakes that the tests have to notice: `tox -e mutants`, or `python tests/mutants.py [WORDS]`.

Each entry of mutants.yaml is one small mistake in the core, with the tests that should fail over it. One at a time is
planted in a copy of the checkout. A mistake that no test notices survives: it is an assertion that somebody forgot.
WORDS choose the mistakes that have one of them in their name or their file.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (
    "atrl_bench",
    "tasks",
    "recipes",
    "reports",
    "examples",
    "environments",
    "docs",
    "tests",
    "pyproject.toml",
    "README.md",
)
PASSED, FAILED = 0, 1  # of pytest's exit statuses; the others say that it found nothing to run


@dataclass(frozen=True)
class Mutant:
    mistake: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, root: Path) -> str:
        """The text of the file with the mistake in it."""
        path = root / self.file
        count = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        if count != 1:
            raise LookupError(f"{self.mistake}: {self.file} has its text {count} times; mend tests/mutants.yaml")
        return path.read_text(encoding="utf-8").replace(self.old, self.new)


def read_mutants() -> list[Mutant]:
    entries = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text(encoding="utf-8"))
    return [Mutant(**entry | {"tests": tuple(entry["tests"].split())}) for entry in entries]


def failure_of(root: Path, tests: Sequence[str]) -> str | None:
    """Run these tests on the package in `root`; return what pytest says where one fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, *tests], cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (PASSED, FAILED):
        raise RuntimeError(f"{' '.join(tests)} cannot be run:\n{done.stdout}")
    return done.stdout if done.returncode == FAILED else None


def survives(mutant: Mutant, root: Path) -> bool:
    path = root / mutant.file
    right = path.read_text(encoding="utf-8")
    path.write_text(mutant.planted(root), encoding="utf-8")
    try:
        return failure_of(root, mutant.tests) is None
    finally:
        path.write_text(right, encoding="utf-8")


def copy_checkout(root: Path) -> None:
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "_shipped"))
        else:
            shutil.copy(ROOT / name, root / name)


def main(words: Sequence[str]) -> int:
    mutants = [m for m in read_mutants() if not words or any(word in f"{m.mistake} {m.file}" for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        copy_checkout(root)
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        if failure := failure_of(root, tests):
            print(f"{failure}\nA test fails without any planted mistake.")
            return 1
        survivors = []
        for number, mutant in enumerate(mutants, start=1):
            started = time.monotonic()
            survived = survives(mutant, root)
            survivors += [mutant] if survived else []
            state = "SURVIVED" if survived else "noticed "
            print(
                f"{number:3}/{len(mutants)} {state} {time.monotonic() - started:4.0f} s  {mutant.mistake}", flush=True
            )
    for mutant in survivors:
        print(f"No test of {' '.join(mutant.tests)} notices: {mutant.mistake} ({mutant.file})")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

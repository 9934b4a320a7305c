"""Resolve the constraints files of this folder anew: `tox -e lock`, and with `-- --upgrade` to the newest versions.

A file is what was tried, never what is required: pyproject.toml has the ranges.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parent / "pyproject.toml"
CUDA = ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_28"]
ON_GPUS = [*CUDA, *(word for name in ("vllm", "ray", "s3", "wandb", "tensorboard") for word in ("--extra", name))]


def verl_needs() -> list[str]:
    """What docs/other_trainers.md installs for verl; this package goes beside it without its own needs."""
    page = (FOLDER.parent / "docs" / "other_trainers.md").read_text(encoding="utf-8")
    return shlex.split(re.findall(r"^pip install (.*verl\[.*)$", page, re.MULTILINE)[0])


# Each file: what resolves it, and the requirements besides pyproject.toml, or in its place.
FILES: dict[str, tuple[list[str], list[str]]] = {
    "cpu.txt": (["--universal", "--python-version", "3.11", "--extra", "test", "--extra", "style", str(PROJECT)], []),
    "cuda.txt": ([*ON_GPUS, str(PROJECT)], []),
    "cuda-torch-2.11.txt": ([*ON_GPUS, str(PROJECT)], ["torch==2.11.0"]),  # with which an H100 was measured
    "verl.txt": (CUDA, verl_needs()),
}


def main() -> None:
    for name, (words, needs) in FILES.items():
        file = FOLDER / name
        file.touch()  # what it holds is kept where it still fits
        command = ["uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--output-file", str(file)]
        subprocess.run([*command, *words, *sys.argv[1:], "-"], input="\n".join(needs), check=True, text=True)
        print(f"{name}: {len(file.read_text(encoding='utf-8').splitlines())} packages", flush=True)


if __name__ == "__main__":
    main()

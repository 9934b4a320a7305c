"""Native libraries, each tried in a process of its own: a broken one may end the process that loads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from atrl_bench.experiments.doctor.diagnosis import SECONDS, Check
from atrl_bench.sandbox.isolation import HOW_TO_ISOLATE, known_leaks

TRY_METIS = """
import pymetis
cuts, parts = pymetis.part_graph(2, adjacency=[[1, 2], [0, 2], [0, 1, 3], [2, 4, 5], [3, 5], [3, 4]])
assert (cuts, len(set(parts))) == (1, 2), (cuts, parts)
"""
TRY_VIDEO = """
import tempfile
import numpy as np
from atrl_bench.models.video import decode
from atrl_bench.mini.videos import encode
with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
    file.write(encode(np.zeros((4, 32, 32, 3), np.uint8), 4))
    file.flush()
    assert decode(file.name, 2).frames.shape == (2, 32, 32, 3)
"""
MEND_METIS = "pip install --force-reinstall 'pymetis>=2025.2'"
MEND_VIDEO = "pip install --force-reinstall decord av"


def native(code: str, fix: str) -> Iterator[Check]:
    """Yield whether this program ends well in a process of its own."""
    # In the interpreter's own environment, but from nowhere in particular: the current folder may hold anything.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        yield Check("", "missing", f"not within {SECONDS} s", fix)
        return
    if tried.returncode == 0:
        yield Check("", "ok", "yes")
        return
    lines = tried.stderr.strip().splitlines()
    why = lines[-1] if lines else f"the process ended with {tried.returncode}"
    yield Check("", "missing", why, fix)


def isolation() -> Iterator[Check]:
    """Yield what programs of a model would be isolated by."""
    if leaks := known_leaks():
        # Only benchmarks that run programs of a model want it, and their cells then say so.
        yield Check("", "note", f"none, so ChartMimic is not measured: {'; '.join(leaks)}", HOW_TO_ISOLATE)
    else:
        yield Check("", "ok", "unshare (used only with --allow-code)")


def tools() -> Iterator[Check]:
    """Yield which programs are here that nothing depends on."""
    latex = shutil.which("pdflatex") or shutil.which("tectonic")
    found = latex or "no pdflatex: tables are written as LaTeX but not compiled"
    yield Check("LaTeX (optional)", "ok" if latex else "note", found)
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    yield Check("browser (optional)", "ok" if browser else "note", browser or "none: reports open on another machine")

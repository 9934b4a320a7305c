"""What some tests need that a machine may lack: a test without it is skipped, and the summary of the run says so.

These are the only reasons there are. With any other one a test fails, so that none is skipped unnoticed.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from atrl_bench.sandbox.isolation import known_leaks

SHARED = Path(__file__).resolve().parents[2] / "shared"
DATA = Path(os.environ.get("ATRL_BENCH_TEST_DATA", SHARED / "data"))  # rows and verdicts of real benchmarks
PAPER = SHARED / "paper" / "at_rl.tex"
SYSTEM_PYTHON = Path("/usr/bin/python3")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

NO_ISOLATION = "programs cannot be isolated here"
NOT_FOR_EVERYBODY = "the package is not for everybody to read"
OTHER_LIBRARIES = "the digests are of other libraries"
NO_GPU, A_GPU = "no GPU", "there is a GPU, and this tells what happens without"
NO_WINDOW_KERNEL = "torch has no kernel for all windows at once"
# What the reasons of skips begin with.
REASONS = [NO_ISOLATION, NOT_FOR_EVERYBODY, OTHER_LIBRARIES, NO_GPU, A_GPU, NO_WINDOW_KERNEL]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that is skipped for any other reason."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):  # that of an expected failure is another
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(tuple(REASONS)):
            report.outcome, report.longrepr = "failed", f"skipped for a reason that tests/needs.py has not: {reason}"
    return report


@pytest.fixture(scope="session")
def isolated():
    leaks = known_leaks()
    if leaks and leaks[0].startswith(("no ", "does not start")):  # this machine lacks something
        pytest.skip(f"{NO_ISOLATION}: {'; '.join(leaks)}")
    assert leaks == []  # what the probe tried, with no test here that tries it again


def _needed(is_here: bool, reason: str) -> pytest.MarkDecorator:
    REASONS.append(reason)
    return pytest.mark.skipif(not is_here, reason=reason)


def _package(name: str, reason: str) -> pytest.MarkDecorator:
    return _needed(importlib.util.find_spec(name) is not None, reason)


data = _needed(DATA.is_dir(), "no rows of real benchmarks beside this checkout, nor in ATRL_BENCH_TEST_DATA")
paper = _needed(PAPER.is_file(), "no source of the paper beside this checkout")
isolation = pytest.mark.usefixtures("isolated")
linux = _needed(sys.platform == "linux", "no Linux")
another_user = _needed(
    os.geteuid() == 0 and SYSTEM_PYTHON.exists() and shutil.which("setpriv") is not None,
    "only root becomes an ordinary user, who needs a Python that everybody can read",
)
flash_attention = _package("flash_attn", "no flash-attn")
chromium = _needed(CHROMIUM is not None, "no Chromium")
pdflatex = _needed(shutil.which("pdflatex") is not None, "no pdflatex")
pdftotext = _needed(shutil.which("pdftotext") is not None, "no pdftotext")
inspect_ai = _package("inspect_ai", "no inspect-ai: it brings sixty packages, and `test` leaves it")
mathruler = _package("mathruler", "no mathruler: `test` leaves it, since one option asks for it")
trackio = _package("trackio", "no trackio: it takes no Pillow 13, and `test` leaves it")
vllm = _package("vllm", "no vLLM")

"""Programs that tests start with this Python: how they ended, and what they printed."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any


def ended(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Return how Python ended with these arguments."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)


def printed(*arguments: str | Path, **options: Any) -> str:
    """Return what Python prints with these arguments; it must succeed."""
    done = ended(*arguments, **options)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout


command = partial(printed, "-m", "atrl_bench")

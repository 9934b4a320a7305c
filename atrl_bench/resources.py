"""What there is around the package: the folders that a user reads and edits, and the cores of the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

PACKAGE = Path(__file__).resolve().parent


def folder(name: Literal["tasks", "recipes", "reports"]) -> Path:
    """The folder `name`: in a checkout it stands beside the package, an installed wheel carries it as data."""
    shipped = PACKAGE / "_shipped" / name
    return shipped if shipped.is_dir() else PACKAGE.parent / name


def users_home() -> Path:
    """The user's folder; of one who has none a place where nothing is, and nothing can be written."""
    try:
        return Path.home()
    except RuntimeError:  # neither HOME nor a name for the user's number, as in some containers
        return Path(os.devnull)


def usable_cores() -> int:
    """How many cores this process may use, which a container or a scheduler may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

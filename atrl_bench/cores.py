"""How many cores there are to work on."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return how many cores this process may use, which a container or a scheduler may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""How much may come out of a file that a stranger packed."""

from __future__ import annotations

from pathlib import Path

MAX_RATIO = 50  # of unpacked to packed bytes; pictures and videos have about 1
SMALL_BYTES = 256 << 20  # what a file of any size may unpack to


def most_bytes(packed: Path) -> int:
    return max(SMALL_BYTES, MAX_RATIO * packed.stat().st_size)

"""Where the folders live that a user reads and edits: `tasks/`, `recipes/` and `reports/`.

In a checkout they stand beside the package; an installed wheel carries them as data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

PACKAGE = Path(__file__).resolve().parent


def folder(name: Literal["tasks", "recipes", "reports"]) -> Path:
    """Return the folder `name` of the checkout this package runs from, or the copy inside the wheel."""
    shipped = PACKAGE / "_shipped" / name
    return shipped if shipped.is_dir() else PACKAGE.parent / name

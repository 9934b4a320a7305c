"""Tables of signals as data: which rules are measured at the bases of which worlds.

One file a table, `reports/signal_tables/<id>.yaml`. Nothing here loads what measures.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from atrl_bench.errors import UnknownNameError
from atrl_bench.resources import folder
from atrl_bench.settings import Settings, read_settings


class SignalSizes(Settings):
    """How much one measurement takes."""

    prompts: int = Field(ge=9, description="problems whose gradients are measured")
    held_out: int = Field(ge=0, description="problems that one step is tried on")


class SignalGrid(Settings):
    """One of the grids of a table: a number of each rule at each base."""

    title: str
    explanation: str
    shows: Literal["efficiency", "efficiency_scaled", "over_uniform", "reliability", "anchor_auc", "top_share"]
    neutral: float | None = Field(None, description="the number that says there is no difference")
    is_drawn: bool = False
    is_ratio: bool = False


class SignalTable(Settings):
    """One table of signals, complete."""

    id: str
    title: str = Field(description="one line, for lists and headings")
    caption: str = Field(description="what the numbers are")
    label: str = Field(description="the LaTeX label")
    grids: tuple[SignalGrid, ...] = Field(min_length=1, description="the first is what the answer is about")
    says: str = Field(description="how the answer begins")
    recipe: str = Field(description="whose loss")
    rules: tuple[str, ...] = Field(min_length=1, description="credit rules; uniform credit is measured with them")
    worlds: tuple[str, ...] = Field(min_length=1, description="worlds, of which every base is a column")
    without: dict[str, tuple[str, ...]] = Field({}, description="rules that a world's data cannot know, by world")
    sizes: SignalSizes
    profiles: dict[str, SignalSizes] = Field({}, description="other sizes, by profile")


def list_signal_tables() -> list[str]:
    return sorted(_files())


def _files() -> dict[str, Path]:
    return {path.stem: path for path in (folder("reports") / "signal_tables").glob("*.yaml")}


@cache
def load_signal_table(name: str) -> SignalTable:
    files = _files()
    if name not in files:
        raise UnknownNameError("table", name, files)
    return read_settings(files[name], SignalTable, id=name)

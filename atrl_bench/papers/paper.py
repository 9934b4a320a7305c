"""A paper as a folder (D10): who it is, how it measured, and what the rows and columns of its tables stand for.

    reports/<paper>/paper.yaml      this
                    tables/*.yaml   what can be trained and evaluated again
                    scores/*.csv    what is printed, digit by digit, one file a table
                    claims.yaml     what its sentences say of those numbers
                    derived.csv     averages and changes that stand beside them
                    recipes/        methods of its own

Only `paper.yaml` is required. A name of a row or column means the same in all tables of a paper, and a checkpoint, a
benchmark or a method is called by the same words in all papers: that is what the audit compares them by.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from atrl_bench.errors import UnknownNameError
from atrl_bench.experiments.protocol import PaperProtocol, StatedProtocol
from atrl_bench.plugins import paper_folders
from atrl_bench.settings import Settings, read_settings

Origin = Literal["own", "of others", "measured again"]


class PrintedRow(Settings):
    """What a row's name stands for."""

    checkpoint: str | None = Field(None, description="released weights, by their hub id")
    base: str | None = Field(None, description="what was trained; none: nothing was")
    method: str | None = None
    data: str | None = None
    settings: dict[str, Any] = Field({}, description="of the training, where stated")
    seed: int | None = Field(None, description="one of several trainings that differ in nothing else")
    baseline: str | None = Field(None, description="the row that its gains are against: ROW, or TABLE/ROW")
    origin: Origin = Field("own", description="of others: it is not said who measured it")
    protocol: StatedProtocol = StatedProtocol()


class PrintedColumn(Settings):
    """What a column's name stands for: a benchmark, or a number that follows from other columns."""

    benchmark: str | None = None
    problems: int | None = Field(None, gt=0, description="how many, where it is known")
    mean_of: tuple[str, ...] = ()
    gain_of: str | None = Field(None, description="percent of the baseline row's number in this column")
    protocol: StatedProtocol = StatedProtocol()


class PrintedTable(Settings):
    """One file of `scores/`: where it is printed, and in what its numbers are."""

    source: str
    unit: Literal["percent", "fraction"] = "percent"
    settings: dict[str, Any] = Field({}, description="what all its trainings have in common and others have not")


class Paper(PaperProtocol):
    """`paper.yaml`."""

    name: str
    home: Path
    title: str
    short: str = Field("", description="what pages call it; none: its folder's name")
    identifier: str = Field("", description="arXiv id and version, or repository and commit")
    link: str = Field("", pattern=r"^(https?://\S+)?$")
    note: str = ""
    models: dict[str, dict[str, Any]] = Field({}, description="released checkpoints: hub id to licence, base, size")
    marks: dict[str, str] = Field({}, description="signs after a score, with what they mean")
    again: tuple[str, ...] = Field((), description="those marks that say: measured by these authors")
    rows: dict[str, PrintedRow] = Field({})
    columns: dict[str, PrintedColumn] = Field({})
    tables: dict[str, PrintedTable] = Field({}, description="by the name of the file in scores/")

    @property
    def text(self) -> str:
        return self.short or self.name


def list_papers() -> list[str]:
    return sorted(paper_folders())


def load_paper(name: str) -> Paper:
    folders = paper_folders()
    if name not in folders:
        raise UnknownNameError("paper", name, folders, next_step="atrl-bench list papers")
    return _read(folders[name], name)


@cache
def _read(home: Path, name: str) -> Paper:
    return read_settings(home / "paper.yaml", Paper, name=name, home=home)

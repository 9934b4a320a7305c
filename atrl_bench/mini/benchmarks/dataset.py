"""What a generated dataset is, and the parts that several of them are made of."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, DigitProblem, draw_problem

if TYPE_CHECKING:
    import numpy as np
    from datasets import Features
    from PIL.Image import Image

Row = dict[str, Any]
Rows = Callable[[int, "np.random.Generator"], list[Row]]  # (about how many, random numbers) -> rows


@dataclass(frozen=True)
class SyntheticDataset:
    """One generated dataset: where it lies, its columns, and its rows.

    A column is given as "string" or another type of value, as "image" for an embedded image, as a list with the kind of
    its items, or as a dict of further columns.
    """

    folder: str  # of the benchmark, below the data folder
    split: str
    columns: dict[str, Any]
    rows: Rows
    config: str = ""  # the subset, of a dataset that the hub keeps in several
    files: Callable[[list[Row]], Iterator[tuple[str, bytes]]] | None = None  # (path in the folder, content): videos
    label: str = ""  # where the folder alone does not name the dataset

    @property
    def name(self) -> str:
        return self.label or self.folder

    def features(self) -> Features:
        from datasets import Features, Image, List, Value

        def feature(kind: Any) -> Any:
            if isinstance(kind, dict):
                return {name: feature(part) for name, part in kind.items()}
            if isinstance(kind, list):
                return List(feature(kind[0]))
            return Image() if kind == "image" else Value(kind)

        return Features(feature(self.columns))


def embedded(problem: DigitProblem, name: str, *, with_glyph: bool = False) -> dict[str, Any]:
    """The problem's picture as the `datasets` Image feature stores it."""
    return encoded(draw(problem, with_glyph=with_glyph), name)


def encoded(picture: Image, name: str) -> dict[str, Any]:
    return {"bytes": png(picture), "path": name}


def png(picture: Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def picture_name(problem: DigitProblem) -> str:
    """What `named_picture` needs to draw the problem's picture again: its kind and its scans."""
    return f"{problem.kind.name}-{'-'.join(map(str, problem.scans))}"


def named_picture(name: str) -> bytes:
    kind, *scans = name.split("-")
    return png(draw(DigitProblem(KINDS[kind], tuple(map(int, scans)), (), 0, "", "")))


def each(make: Callable[[int, np.random.Generator], Row]) -> Rows:
    """The rows of a dataset that are made one by one, each from its index."""
    return lambda count, rng: [make(index, rng) for index in range(count)]


def drawn(names: Sequence[str], index: int, rng: np.random.Generator) -> DigitProblem:
    """A test problem of the kind whose turn it is: every kind comes equally often."""
    return draw_problem(KINDS[names[index % len(names)]], "test", rng)


def strings(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, "string")

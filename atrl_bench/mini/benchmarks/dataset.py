"""What a generated dataset is, and the parts that several of them are made of."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, DigitProblem, draw_problem
from atrl_bench.mini.videos import Scene

if TYPE_CHECKING:
    import numpy as np
    from datasets import Features
    from PIL.Image import Image

Row = dict[str, Any]
Rows = Callable[[int, "np.random.Generator"], list[Row]]  # (about how many, random numbers) -> rows


@dataclass(frozen=True)
class SyntheticDataset:
    """One generated dataset: where it lies, and its rows, whose columns have the types of what is in them.

    `types` has those of columns that may be empty in every row: "string" or another type of value, "image" for an
    embedded one, a list with the type of its items, or a dict of further columns.
    """

    folder: str  # of the benchmark, below the data folder
    split: str
    rows: Rows
    types: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""  # the subset, of a dataset that the hub keeps in several
    files: Callable[[list[Row]], Iterator[tuple[str, bytes]]] | None = None  # (path in the folder, content): videos
    label: str = ""  # where the folder alone does not name the dataset

    @property
    def name(self) -> str:
        return self.label or self.folder

    def features(self, rows: Sequence[Row]) -> Features:
        from datasets import Features, Image, List, Value

        def feature(kind: Any) -> Any:
            if isinstance(kind, dict):
                return {name: feature(part) for name, part in kind.items()}
            if isinstance(kind, list):
                return List(feature(kind[0]))
            return Image() if kind == "image" else Value(kind)

        columns = {name: self.types.get(name) or _type_of([row[name] for row in rows]) for name in rows[0]}
        return Features(feature(columns))


_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64", bytes: "binary"}


def _type_of(cells: Sequence[Any]) -> Any:
    first = cells[0]
    if isinstance(first, list):
        return [_type_of(list(chain.from_iterable(cells)))]
    if isinstance(first, dict):
        is_image = first.keys() == {"bytes", "path"}
        return "image" if is_image else {name: _type_of([cell[name] for cell in cells]) for name in first}
    return _TYPES[type(first)]


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


def named_media(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The pictures and videos at these paths, each drawn by its own name."""
    for path in dict.fromkeys(paths):
        file = PurePosixPath(path)
        yield path, Scene.named(file.stem).mp4() if file.suffix == ".mp4" else named_picture(file.stem)


def each(make: Callable[[int, np.random.Generator], Row]) -> Rows:
    """The rows of a dataset that are made one by one, each from its index."""
    return lambda count, rng: [make(index, rng) for index in range(count)]


def drawn(names: Sequence[str], index: int, rng: np.random.Generator) -> DigitProblem:
    """A test problem of the kind whose turn it is: every kind comes equally often."""
    return draw_problem(KINDS[names[index % len(names)]], "test", rng)

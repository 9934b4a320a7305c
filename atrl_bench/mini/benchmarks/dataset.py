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


@dataclass(frozen=True)
class SyntheticDataset:
    """One generated dataset: where it lies, its columns, and its rows."""

    folder: str  # of the benchmark, below the data folder
    split: str
    features: Callable[[], Features]
    rows: Callable[[int, np.random.Generator], list[Row]]  # (about how many, random numbers) -> rows
    config: str = ""  # the subset, of a dataset that the hub keeps in several
    files: Callable[[list[Row]], Iterator[tuple[str, bytes]]] | None = None  # (path in the folder, content): videos
    label: str = ""  # where the folder alone does not name the dataset

    @property
    def name(self) -> str:
        """What names this dataset among all of them."""
        return self.label or self.folder


def embedded(problem: DigitProblem, name: str, *, with_glyph: bool = False) -> dict[str, Any]:
    """Return the problem's picture as the `datasets` Image feature stores it."""
    return encoded(draw(problem, with_glyph=with_glyph), name)


def encoded(picture: Image, name: str) -> dict[str, Any]:
    """Return any picture as the `datasets` Image feature stores it."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return {"bytes": buffer.getvalue(), "path": name}


def drawn(names: Sequence[str], index: int, rng: np.random.Generator) -> DigitProblem:
    """Return a test problem of the kind whose turn it is: every kind comes equally often."""
    return draw_problem(KINDS[names[index % len(names)]], "test", rng)


def columns(**kinds: Any) -> Features:
    """Return `datasets` features; a name such as "string" stands for a value, "image" for an embedded image."""
    from datasets import Features, Image, Value

    def resolve(kind: Any) -> Any:
        if isinstance(kind, dict):
            return {name: resolve(part) for name, part in kind.items()}
        return Image() if kind == "image" else Value(kind) if isinstance(kind, str) else kind

    return Features({name: resolve(kind) for name, kind in kinds.items()})


def strings(*names: str) -> dict[str, Any]:
    """Return columns of text."""
    return dict.fromkeys(names, "string")

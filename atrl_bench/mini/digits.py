"""Handwritten digits: the 1,797 real scans that scikit-learn bundles, split once by index, drawn into 56-pixel cells.

One cell becomes four visual tokens of Qwen2.5-VL (patch 14, merge 2), and lies on the token grid wherever it is placed.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import distribution
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

Split = Literal["train", "test"]

CELL = 56
NUM_TRAIN_SCANS = 1300
STROKE_FRACTION = 0.4  # of the cells
PAPER = 255  # the white of a page; scans are drawn as dark ink on it


@lru_cache(maxsize=1)
def _scans() -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    # Its file alone: scikit-learn itself takes a second of processor time to import.
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(str(file), delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)


def scans_of(digit: int, split: Split) -> np.ndarray:
    """The indices of the scans that show `digit`: below 1,300 for training, the rest for testing."""
    import numpy as np

    _, labels = _scans()
    indices = np.flatnonzero(labels == digit)
    return indices[indices < NUM_TRAIN_SCANS] if split == "train" else indices[indices >= NUM_TRAIN_SCANS]


def draw_scan(scan: int, rng: np.random.Generator) -> Image.Image:
    """One scan as a grey 56-pixel cell: turned, scaled and shifted at random, sometimes with a stroke across it.

    As they are, the scans are read almost without error by a model of a million parameters, and a benchmark that is
    solved as soon as one looks has nothing left to measure.
    """
    import numpy as np
    from PIL import Image, ImageDraw

    images, _ = _scans()
    cell = Image.fromarray((PAPER - images[scan] * (PAPER / 16)).astype(np.uint8)).resize(
        (CELL, CELL), Image.Resampling.BICUBIC
    )
    angle, scale = rng.uniform(-20, 20), rng.uniform(0.6, 1.05)
    shift_x, shift_y = rng.uniform(-7, 7, size=2)
    cosine, sine, middle = np.cos(np.radians(angle)) / scale, np.sin(np.radians(angle)) / scale, CELL / 2
    # PIL asks for the inverse map: where in the source each pixel of the result comes from.
    inverse = (
        cosine, sine, middle - cosine * (middle + shift_x) - sine * (middle + shift_y),
        -sine, cosine, middle + sine * (middle + shift_x) - cosine * (middle + shift_y),
    )  # fmt: skip
    cell = cell.transform((CELL, CELL), Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR, fillcolor=PAPER)
    if rng.random() < STROKE_FRACTION:
        start, end = (tuple(rng.integers(4, CELL - 4, size=2).tolist()) for _ in range(2))
        ImageDraw.Draw(cell).line((*start, *end), fill=int(rng.integers(0, 160)), width=3)
    return cell


def digit_of(scan: int) -> int:
    _, labels = _scans()
    return int(labels[scan])

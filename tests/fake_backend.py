"""A model that answers with numbers, and a small GeoQA for it: where the bookkeeping of cells is the matter."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from atrl_bench.mini.benchmarks.dataset import png
from atrl_bench.models import local
from atrl_bench.results.records import Response


class FakeBackend:
    """Answers every prompt with its repeat number in a box, and counts."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()

    def generate(self, prompts, repeats, sampling):
        self.asked.update(
            (prompt.problem_id, repeat) for prompt, all_ in zip(prompts, repeats, strict=True) for repeat in all_
        )
        return [
            [Response(p.problem_id, repeat, "hash", f"\\boxed{{{repeat}}}", 3, 0.0, False) for repeat in all_]
            for p, all_ in zip(prompts, repeats, strict=True)
        ]


@pytest.fixture
def backend(monkeypatch) -> FakeBackend:
    fake = FakeBackend()
    monkeypatch.setattr(local, "load", lambda *_, **__: fake)
    return fake


def picture(colour: str | tuple[int, int, int] = "white", size: tuple[int, int] = (56, 56)) -> bytes:
    """A PNG file of one colour."""
    return png(Image.new("RGB", size, colour))


def write_geoqa(folder: Path, images: list[bytes]) -> Path:
    """A GeoQA file whose n-th row has the n-th image and the answer 0."""
    (folder / "geoqa").mkdir(parents=True)
    rows = {
        "question": [f"Question {place}" for place in range(len(images))],
        "ground_truth": ["0"] * len(images),
        "image": [{"bytes": image, "path": None} for image in images],
    }
    pq.write_table(pa.table(rows), folder / "geoqa" / "test.parquet")
    return folder

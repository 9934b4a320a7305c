"""The problems of these worlds on disk: a training set and a held-out benchmark, over different scans.

Both worlds pose the same problems; what their bases get wrong is all that differs. The training set says what each
picture shows and where the parts of a response stand (`atrl_bench.credit.truth.TokenTruth`); no trainer learns from it.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from atrl_bench.digests import spec_key
from atrl_bench.fingerprint import code_fingerprint
from atrl_bench.mini.benchmarks.dataset import Dataset, Row, columns, embedded, strings
from atrl_bench.mini.digits import Split
from atrl_bench.mini.world import random_numbers, sizes, world_digest
from atrl_bench.profiles import Profile
from atrl_bench.worlds import DATASETS
from atrl_bench.worlds.chains import PATTERNS, draw_code_problem

if TYPE_CHECKING:
    from datasets import Features

TRAINING_SET, BENCHMARK = DATASETS
SPLITS: dict[str, Split] = {TRAINING_SET: "train", BENCHMARK: "test"}
DECIDING = ("chains.py", "datasets.py")  # modules that decide what the rows hold


def _rows(split: Split, count: int, rng: np.random.Generator) -> list[Row]:
    problems = [draw_code_problem(split, rng) for _ in range(count)]
    known = {"token_patterns": PATTERNS} if split == "train" else {}
    return [
        {
            "id": str(index),
            "problem": problem.question,
            "answer": problem.answer,
            "image": embedded(problem, f"{index}.png"),
            "transcription": problem.transcription,
            **known,
        }
        for index, problem in enumerate(problems)
    ]


def _features(split: Split) -> Features:
    known = {"token_patterns": strings(*PATTERNS)} if split == "train" else {}
    return columns(**strings("id", "problem", "answer"), image="image", transcription="string", **known)


CODE_WORDS: dict[str, Dataset] = {
    name: Dataset(name, split, partial(_features, split), partial(_rows, split)) for name, split in SPLITS.items()
}


def write_code_words(out: Path, profile: Profile) -> Path:
    """Return the folder with both datasets at the sizes of this profile, written if new."""
    of_mini = sizes(profile)
    counts = {TRAINING_SET: of_mini["virl39k"], BENCHMARK: of_mini["geoqa"]}
    code = code_fingerprint([Path(__file__).with_name(name) for name in DECIDING])
    folder = out / f"code-words-{spec_key({'mini': world_digest(of_mini), 'sizes': counts, 'code': code})[:12]}"
    if folder.is_dir():
        return folder
    out.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=out))
    working.chmod(0o755)
    try:
        for name, dataset in CODE_WORDS.items():
            _write(dataset, counts[name], working / name)
        try:
            working.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same content
                raise
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return folder


def _write(dataset: Dataset, count: int, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = dataset.rows(count, random_numbers(dataset.name))
    folder.mkdir()
    # The schema carries the `datasets` features as metadata, as the hub's own files do.
    table = pa.Table.from_pylist(rows, schema=dataset.features().arrow_schema)
    pq.write_table(table, folder / f"{dataset.split}-00000-of-00001.parquet")

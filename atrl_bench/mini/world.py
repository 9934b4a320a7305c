"""The mini world on disk: every twin and training set as Parquet, in the layout of the real datasets."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from atrl_bench.mini.training_sets import TRAINING_SETS
from atrl_bench.mini.twins import TWINS

if TYPE_CHECKING:
    from atrl_bench.profiles import Profile

DEFAULT_PROBLEMS = 150
DEFAULT_TRAINING_PROBLEMS = 1024
MIN_TRAINING_PROBLEMS = 64


def sizes(profile: Profile) -> dict[str, int]:
    """Return how many rows each dataset gets: the profile's problems, and twice what its rollouts draw."""
    rollouts = profile.training.num_rollouts
    drawn = rollouts * profile.training.prompts_per_rollout if rollouts else DEFAULT_TRAINING_PROBLEMS // 2
    return {
        **dict.fromkeys(TWINS, profile.evaluation.max_problems or DEFAULT_PROBLEMS),
        **dict.fromkeys(TRAINING_SETS, max(2 * drawn, MIN_TRAINING_PROBLEMS)),
    }


def world_digest(counts: dict[str, int]) -> str:
    """Return the digest of everything that decides what the world holds: these modules and the sizes."""
    digest = hashlib.sha256(json.dumps(counts, sort_keys=True).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "model", "base"):  # the model is no part of the data
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def write_world(out: Path, profile: Profile) -> Path:
    """Return the folder of the mini world for this profile, writing it under `out` unless it is there already.

    The folder is written under a temporary name and renamed: a killed writer leaves no half of a world behind, and two
    writers at once end with one.
    """
    counts = sizes(profile)
    folder = out / f"mini-{world_digest(counts)}"
    if folder.is_dir():
        return folder
    out.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=out))
    try:
        for name, dataset in {**TWINS, **TRAINING_SETS}.items():
            _write(working / dataset.folder, name, counts[name])
        try:
            working.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same content
                raise
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return folder


def _write(folder: Path, name: str, count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    dataset = {**TWINS, **TRAINING_SETS}[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    folder.mkdir()
    # The schema carries the `datasets` features as metadata, as the hub's own files do.
    table = pa.Table.from_pylist(dataset.rows(count, rng), schema=dataset.features().arrow_schema)
    pq.write_table(table, folder / f"{dataset.split}-00000-of-00001.parquet")

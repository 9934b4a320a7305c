"""The mini world on disk: every synthetic benchmark and training set as Parquet, in the layout of the real datasets.

Each dataset is written when it is first asked for: a table over five image benchmarks makes no videos.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from atrl_bench.digests import spec_key
from atrl_bench.errors import MissingDataError
from atrl_bench.mini.benchmarks import SYNTHETIC_BENCHMARKS, SyntheticDataset
from atrl_bench.mini.benchmarks.main_7b import posed_mathvision
from atrl_bench.mini.code_words import CODE_WORDS, CODE_WORDS_TEST, SHORTCUT_WORDS, SHORTCUT_WORDS_TEST
from atrl_bench.mini.training_sets import TRAINING_SETS

if TYPE_CHECKING:
    import numpy as np

    from atrl_bench.mini.problems import DigitProblem
    from atrl_bench.profiles import Profile

DEFAULT_PROBLEMS = 150
DEFAULT_TRAINING_PROBLEMS = 1024
MIN_TRAINING_PROBLEMS = 64
VERSION = 2  # raise it when the world holds other rows: a run folder then gets them beside those that it has
DATASETS = {
    **SYNTHETIC_BENCHMARKS,
    **TRAINING_SETS,
    **{dataset.name: dataset for dataset in (CODE_WORDS, CODE_WORDS_TEST, SHORTCUT_WORDS, SHORTCUT_WORDS_TEST)},
}
IMITATED = 2  # times as many problems in the set of videos that is imitated: it is what teaches to see them


def sizes(profile: Profile) -> dict[str, int]:
    """How many rows each dataset gets: the profile's problems, and twice what its rollouts draw."""
    rollouts = profile.training.num_rollouts
    drawn = rollouts * profile.training.prompts_per_rollout if rollouts else DEFAULT_TRAINING_PROBLEMS // 2
    count = max(2 * drawn, MIN_TRAINING_PROBLEMS)
    return {
        **dict.fromkeys(
            [*SYNTHETIC_BENCHMARKS, CODE_WORDS_TEST.name, SHORTCUT_WORDS_TEST.name],
            profile.evaluation.max_problems or DEFAULT_PROBLEMS,
        ),
        **dict.fromkeys([*TRAINING_SETS, CODE_WORDS.name, SHORTCUT_WORDS.name], count),
        "video_r1_cot": IMITATED * count,
    }


def world_digest(counts: dict[str, int]) -> str:
    """What tells worlds apart in one folder. (What names them in a key is the contents of their files.)"""
    return spec_key({"sizes": counts, "version": VERSION})[:12]


def write_world(out: Path, profile: Profile, folders: Iterable[str] | None = None) -> Path:
    """The folder of the mini world for this profile, with these datasets in it (default: all), written if new.

    A dataset is given by its folder or by its name: two tables over the same videos share a folder.
    A dataset's folder is written under a temporary name and renamed: a killed writer leaves no half of one behind, and
    two writers at once end with one.
    """
    counts = sizes(profile)
    world = out / f"mini-{world_digest(counts)}"
    world.mkdir(parents=True, exist_ok=True)
    wanted = None if folders is None else {DATASETS[name].folder if name in DATASETS else name for name in folders}
    for folder in sorted({dataset.folder for dataset in DATASETS.values()}):
        if (wanted is None or folder in wanted) and not (world / folder).is_dir():
            _write_folder(world / folder, [name for name in DATASETS if DATASETS[name].folder == folder], counts)
    return world


def _write_folder(folder: Path, names: list[str], counts: dict[str, int]) -> None:
    working = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    working.chmod(0o755)
    try:
        for name in names:
            _write(DATASETS[name], name, counts[name], working)
        try:
            working.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same content
                raise
    except ModuleNotFoundError as error:
        raise MissingDataError(
            f"The generated data {folder.name} is not in this run folder.",
            why=f"It cannot be made here: {error.name} is not installed, which atrl-bench-light leaves out.",
            next_step="copy the run folder's data/ here too, or pip install atrl-bench",
        ) from error
    finally:
        shutil.rmtree(working, ignore_errors=True)


def random_numbers(name: str) -> np.random.Generator:
    import numpy as np

    return np.random.default_rng(zlib.crc32(name.encode()))


def _write(dataset: SyntheticDataset, name: str, count: int, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = dataset.rows(count, random_numbers(name))
    # The schema carries the `datasets` features as metadata, as the hub's own files do.
    table = pa.Table.from_pylist(rows, schema=dataset.features(rows).arrow_schema)
    (folder / dataset.config).mkdir(exist_ok=True)
    pq.write_table(table, folder / dataset.config / f"{dataset.split}-00000-of-00001.parquet")
    for path, content in dataset.files(rows) if dataset.files else ():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def mathvision_problems(profile: Profile) -> dict[str, DigitProblem]:
    """What the rows of the generated MathVision testmini really show, by their ids; the rows do not say it."""
    posed = posed_mathvision(sizes(profile)["mathvision"], random_numbers("mathvision"))
    return {str(index): item.problem for index, (_, item, _) in enumerate(posed, start=1)}

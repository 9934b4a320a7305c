"""Datasets that nobody has thought of: types, nesting, descriptions, paths and bombs, evaluated and read to train.

    pytest -m large -s tests/reliability/test_generated_datasets.py     # ten thousand of them
    ATRL_BENCH_DATASETS=2500:5000 pytest ...                            # some of them, beside others

Whatever is in them, no file outside their folder is opened, memory has an end, and every row that cannot be shown is
named. The model that answers is replaced, as all that matters has happened before it is asked.
"""

import contextlib
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_backend import FakeBackend
from hostile_rows import encoded, png
from memory import count_anew, most_held
from PIL import Image

from atrl_bench import digests, resources
from atrl_bench.errors import AtrlBenchError, InvalidFileError
from atrl_bench.evaluation import cell_writer
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.models import local
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store
from atrl_bench.training import data as training_data
from atrl_bench.training.data import load_training_data

SMOKE = load_profile("smoke")
MEMORY = 1 << 30  # that this process may take more than it had
GOOD = encoded("PNG")
BAD = {
    "a bomb": png(20_000, 20_000),
    "half": GOOD[: len(GOOD) // 2],
    "text": b"no picture",
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
    "one byte": b"\x89",
    "a PDF": b"%PDF-1.4\n",
}
OUTSIDE = (
    "{private}/a.png",
    "../../private/a.png",
    "../private/a.png",
    "link.png",
    "linked/a.png",
    "./x/../../../private/a.png",
)
NOWHERE = ("figure.png", ".", "", "a\0b.png", "x" * 5000, "http://127.0.0.1:9/a.png", "zip://a.png::{private}/a.zip")
TEXT, NUMBER = {"dtype": "string", "_type": "Value"}, {"dtype": "int64", "_type": "Value"}
DESCRIBED = (
    None,
    *({"_type": kind} for kind in ("Image", "Audio", "Video", "Pdf", "Nifti", "ClassLabel")),
    {"feature": {"_type": "Image"}, "_type": "List"},
    {"feature": {"_type": "Image"}, "length": 1, "_type": "Sequence"},
    {"bytes": {"dtype": "binary", "_type": "Value"}, "path": TEXT},
    TEXT,
    NUMBER,
    "nonsense",
)
FIELDS = {"bytes": pa.binary(), "path": pa.string()}
TEXTS = dict.fromkeys(FIELDS, pa.string())


@dataclass
class Generated:
    """A dataset, and how many of its rows show a picture; None where its table is not to be read at all."""

    rows: int
    num_good: int | None
    words: str = ""
    columns: dict[str, pa.Array] = field(default_factory=dict)


def generate(rng: random.Random, folder: Path, private: Path) -> Generated:
    rows = rng.randint(1, 6)
    columns = {"question": pa.array([f"Question {n}" for n in range(rows)]), "ground_truth": pa.array(["0"] * rows)}
    kind = rng.choice(["cells"] * 14 + ["other"] * 5 + ["bomb"])
    if kind == "bomb":
        times = rng.choice([300_000_000, 5_000_000])
        value, times = ("x" * (1 << 20), 600) if times > 10**8 else ("", times)
        column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, "int32")), pa.array([value]))
        names = ("question", "ground_truth", "image")
        return Generated(times, None, "bomb", dict.fromkeys(names, column))
    cells, num_good = [], 0
    for _ in range(rows):
        cell, is_good = _cell(rng, private)
        cells.append(cell)
        num_good += is_good
    if kind == "other":
        paths = [(cell or {}).get("path") for cell in cells]
        column = rng.choice(
            [
                lambda: pa.array(paths, pa.string()),
                lambda: pa.array(
                    [None if path is None else {"path": path} for path in paths], pa.struct({"path": pa.string()})
                ),
                lambda: pa.array([[path] for path in paths], pa.list_(pa.string())),
                lambda: pa.array([[("path", path)] for path in paths], pa.map_(pa.string(), pa.string())),
                lambda: pa.array([dict.fromkeys(FIELDS, path) for path in paths], pa.struct(TEXTS)),
                lambda: pa.array([[{"path": path}] for path in paths], pa.list_(pa.struct({"path": pa.string()}))),
                lambda: pa.array([{"image": {"bytes": None, "path": path}} for path in paths]),
                lambda: pa.array(range(rows), pa.int64()),
                lambda: pa.array(paths, pa.large_string()).dictionary_encode(),
                lambda: pa.nulls(rows),
            ]
        )()
        num_good = 0
    else:
        names = list(FIELDS)
        rng.shuffle(names)
        more = rng.random() < 0.3
        fields = {name: FIELDS[name] for name in names} | ({"more": pa.int64()} if more else {})
        column = pa.array(cells, pa.struct(fields))
        if more:  # a file is a picture in a cell of bytes and path alone
            num_good = sum(cell is not None and cell["bytes"] == GOOD for cell in cells)
    (folder / "x").mkdir(parents=True)
    (folder / "own.png").write_bytes(GOOD)
    (folder / "link.png").symlink_to(private / "a.png")
    (folder / "linked").symlink_to(private)
    return Generated(rows, num_good, kind, {**columns, "image": column})


def _cell(rng: random.Random, private: Path) -> tuple[dict | None, bool]:
    name = rng.choice([*OUTSIDE, *NOWHERE]).format(private=private)
    which = rng.random()
    if which < 0.35:
        return {"bytes": GOOD, "path": rng.choice([None, name])}, True
    if which < 0.45:
        return {"bytes": None, "path": "own.png"}, True
    if which < 0.65:
        return {"bytes": rng.choice(list(BAD.values())), "path": name}, False
    if which < 0.7:
        return None, False
    return {"bytes": rng.choice([None, b""]), "path": name}, False


def write(generated: Generated, path: Path, rng: random.Random) -> None:
    rows = pa.table(generated.columns)
    if (described := rng.choice(DESCRIBED)) is not None:
        features = {"question": TEXT, "ground_truth": TEXT, "image": described}
        rows = rows.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, compression=rng.choice(["snappy", "zstd", "gzip"]), store_schema=rng.random() < 0.5)


class Opened:
    """Every file that Python opens while it is listened to, outside the folders that it may read."""

    def __init__(self) -> None:
        self.may_read: tuple[str, ...] | None = None
        self.private = ""
        self.outside: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple) -> None:
        if event == "open" and self.may_read is not None and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(self.private) or not path.startswith(self.may_read):
                self.outside.append(path)

    @contextlib.contextmanager
    def only_in(self, folder: Path, private: Path) -> Iterator[None]:
        self.private = f"{private.resolve()}/"
        self.may_read = (f"{folder.resolve()}/", str(digests.memory_file("").resolve()), *OURS)
        try:
            yield
        finally:
            self.may_read = None
        assert not self.outside


# The package, what it imports, and what a process is told of its machine.
OURS = tuple(
    f"{os.path.realpath(path)}/"
    for path in (resources.PACKAGE.parent, sys.prefix, sys.base_prefix, "/proc", "/dev", "/sys", "/etc", "/usr")
)
OPENED = Opened()


@pytest.fixture(autouse=True)
def _all_rows_may_be_bad(monkeypatch):
    monkeypatch.setattr(local, "load", lambda *_, **__: FakeBackend())
    monkeypatch.setattr(cell_writer, "MAX_BAD_FRACTION", 1.0)
    monkeypatch.setattr(training_data, "MAX_BAD_FRACTION", 1.0)


def check(number: int, folder: Path) -> Counter[str]:
    """Return how many rows and tables it had, and how many of them were bad."""
    rng, private = random.Random(number), folder / "private"
    private.mkdir(parents=True)
    Image.new("RGB", (123, 77), "red").save(private / "a.png")
    data = folder / "data"
    generated = generate(rng, data / "geoqa", private)
    write(generated, data / "geoqa" / "test.parquet", rng)
    counts = Counter(datasets=1)
    with OPENED.only_in(folder, private), Store.open(folder / "store.sqlite") as store:
        if generated.num_good is None:
            with pytest.raises(InvalidFileError):
                evaluate("mini", "geoqa_test", store=store, profile=SMOKE, data_dir=data)
            counts["bombs"] = 1
        else:
            key, said = _outcome(lambda: evaluate("mini", "geoqa_test", store=store, profile=SMOKE, data_dir=data))
            if key is None:  # a table with columns that no dataset has
                assert said, number
                assert generated.num_good == 0, (number, said)
                counts["tables refused"] = 1
            else:
                bad = generated.rows - generated.num_good
                assert len(store.skipped(key)) == bad, number
                assert all(store.skipped(key).values()), number
                assert store.cell(key).num_problems == generated.rows, number
                counts.update({"rows": generated.rows, "bad rows named": bad})
        _train_on(data / "geoqa" / "test.parquet", generated, number)
    shutil.rmtree(folder)
    return counts


def _outcome(work):
    """What it gives, or None and the words of its error."""
    try:
        return work(), ""
    except AtrlBenchError as error:
        return None, error.why or error.next_step


def _train_on(path: Path, generated: Generated, number: int) -> None:
    data, said = _outcome(lambda: load_training_data(f"{path}?answer=ground_truth", None))
    if data is None:
        assert said, number
        return
    assert generated.num_good is not None
    assert len(data.problems) + sum(data.left_out.values()) == generated.rows, number
    for index in range(len(data.problems)):
        with contextlib.suppress(AtrlBenchError):
            assert all(image.size == (56, 56) for image in data.example(index, 0)["images"]), number


def run(numbers: range, folder: Path, monkeypatch) -> Counter[str]:
    before, counts = count_anew(), Counter()
    for number in numbers:
        with monkeypatch.context() as patch:  # what is remembered of some files is not read for all of them
            patch.setenv("XDG_CACHE_HOME", str(folder / "cache" / str(number // 100)))
            counts += check(number, folder / str(number))
    taken = most_held() - before
    assert taken < MEMORY
    return counts + Counter({"MiB taken": taken >> 20})


def test_generated_datasets_open_no_file_of_others(tmp_path, monkeypatch) -> None:
    counts = run(range(100), tmp_path, monkeypatch)
    assert counts["bombs"] > 1
    assert counts["bad rows named"] > 100


@pytest.mark.large
def test_ten_thousand_generated_datasets(tmp_path, monkeypatch) -> None:
    first, _, end = os.environ.get("ATRL_BENCH_DATASETS", "0:10000").rpartition(":")
    started = time.monotonic()
    counts = run(range(int(first or 0), int(end)), tmp_path, monkeypatch)
    print(f"{dict(counts)} in {time.monotonic() - started:.0f} s")

"""Datasets that are not as their publishers describe: a bad row is skipped, counted and named, a bad table says so."""

import re
import subprocess
import sys
import time
import zlib
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_backend import FakeBackend
from hostile_rows import encoded, png
from memory import TESTS, taking_less_than
from PIL import Image

from atrl_bench.data import archives
from atrl_bench.data.pictures import MAX_WEBP_PIXELS, open_picture
from atrl_bench.data.tables import read_tables
from atrl_bench.errors import AtrlBenchError, InvalidFileError, MissingDataError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.data import load_rows, read_problems
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.models import local
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store
from atrl_bench.training.data import load_training_data, stream_problems

SMOKE = load_profile("smoke")
NUM_ROWS = 101  # of which one may be bad: just less than one in a hundred


@pytest.fixture(autouse=True, scope="module")
def _answers_at_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "load", lambda *_, **__: FakeBackend())
        yield


WHOLE = encoded("PNG")
IMAGES = {
    "no cell": None,
    "nothing in the cell": {"bytes": None, "path": None},
    "no bytes": {"bytes": b"", "path": None},
    "no bytes but a name": {"bytes": b"", "path": "figure.png"},
    "a name of no file": {"bytes": None, "path": "figure.png"},
    "a name of a folder": {"bytes": None, "path": "."},
    "a name outside": {"bytes": None, "path": "/etc/hostname"},
    "a name that climbs out": {"bytes": None, "path": "../../etc/hostname"},
    "a name with a null": {"bytes": None, "path": "figure\0.png"},
    "a name without end": {"bytes": None, "path": "x" * 100_000},
    "one byte": {"bytes": b"\x89", "path": None},
    "text": {"bytes": b"no image at all", "path": None},
    "a drawing in XML": {"bytes": b"<svg xmlns='http://www.w3.org/2000/svg'/>", "path": None},
    "a web page": {"bytes": b"<html><body>404 Not Found</body></html>", "path": None},
    "a pointer of Git LFS": {"bytes": b"version https://git-lfs.github.com/spec/v1\n", "path": None},
    "half a PNG": {"bytes": WHOLE[: len(WHOLE) // 2], "path": None},
    "half a JPEG": {"bytes": encoded("JPEG", (500, 500))[:700], "path": None},
    "half a GIF": {"bytes": encoded("GIF")[:40], "path": None},
    "half a TIFF": {"bytes": encoded("TIFF")[:60], "path": None},
    "half a WebP": {"bytes": encoded("WEBP")[:30], "path": None},
    "half a BMP": {"bytes": encoded("BMP")[:100], "path": None},
    "a wrong checksum": {"bytes": WHOLE[:40] + b"\xff" + WHOLE[41:], "path": None},
    "a bomb": {"bytes": png(20_000, 20_000), "path": None},
    "a smaller bomb": {"bytes": png(12_000, 12_000), "path": None},
    "a bomb of text": {"bytes": png(9, 9, (b"zTXt", b"a\0\0" + zlib.compress(b"x" * (80 << 20), 9))), "path": None},
    "a side of nothing": {"bytes": png(0, 9), "path": None},
    "a side of two thousand million": {"bytes": png(2**31 - 1, 1), "path": None},
    "a PNG of no lines": {"bytes": png(9, 9), "path": None},
}


PICTURE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def table(num_rows: int = NUM_ROWS, **columns: list) -> pa.Table:
    whole = {
        "question": [f"Question {number}" for number in range(num_rows)],
        "ground_truth": ["0"] * num_rows,
        "image": pa.array([{"bytes": WHOLE, "path": None}] * num_rows, PICTURE),
    }
    return pa.table(whole | columns)


def write(folder: Path, rows: pa.Table | bytes, name: str = "test.parquet", dataset: str = "geoqa") -> Path:
    (folder / dataset).mkdir(parents=True, exist_ok=True)
    if isinstance(rows, bytes):
        (folder / dataset / name).write_bytes(rows)
    else:
        pq.write_table(rows, folder / dataset / name)
    return folder


def evaluated(store: Store, data: Path) -> str:
    return evaluate("mini", "geoqa_test", store=store, profile=SMOKE, data_dir=data)


ROWS = {
    **{name: {"image": cell} for name, cell in IMAGES.items()},
    "a question of nothing": {"question": None},
    "an answer of nothing": {"ground_truth": None},
}


@pytest.fixture(scope="module")
def skipped(tmp_path_factory):
    """What became of a table with all of these rows, each among a hundred whole ones: the reasons by row."""
    folder, num_rows = tmp_path_factory.mktemp("rows"), NUM_ROWS * len(ROWS)
    columns = {name: column.to_pylist() for name, column in zip(*_parts(table(num_rows)), strict=True)}
    for index, row in enumerate(ROWS.values()):
        for name, value in row.items():
            columns[name][index * NUM_ROWS] = value
    columns["image"] = pa.array(columns["image"], PICTURE)
    with Store.open(folder / "store.sqlite") as store:
        key = evaluated(store, write(folder / "data", pa.table(columns)))
        cell = store.cell(key)
        assert cell.state == "done"
        assert cell.expected == (num_rows - len(ROWS)) * SMOKE.evaluation.num_repeats == cell.num_responses
        return store.skipped(key), str(folder)


def _parts(rows: pa.Table) -> tuple[list[str], list[pa.ChunkedArray]]:
    return rows.column_names, rows.columns


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_cannot_be_read_or_shown_is_skipped_counted_and_named(skipped, name) -> None:
    reasons, folder = skipped
    reason = reasons[str(list(ROWS).index(name) * NUM_ROWS)]
    assert reason == reason.strip() != ""
    assert not re.search(r"0x[0-9a-f]{6}", reason), "an address would differ in the next run"
    assert folder not in reason, "a folder would differ on the next machine"


def test_only_rows_that_are_bad_are_skipped(skipped) -> None:
    reasons, _ = skipped
    assert set(reasons) == {str(index * NUM_ROWS) for index in range(len(ROWS))}


def test_rows_that_share_a_name_are_each_counted(mini_world) -> None:
    task = find_task("mathverse_testmini")
    rows = load_rows(task, mini_world)
    blank = datasets.Dataset.from_list([dict.fromkeys(rows.features)] * 3, features=rows.features)
    kept, problems, unreadable = read_problems(task, datasets.concatenate_datasets([rows, blank]))
    assert len(kept) == len(problems) == len(rows)
    assert len({row.problem_id for row in unreadable}) == 3


SCHEMA = pa.schema([("question", pa.string()), ("ground_truth", pa.string()), ("image", pa.binary())])
TABLES = {
    "empty": (b"", "cannot be read"),
    "text": (b"404: Not Found", "cannot be read"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", "cannot be read"),
    "only its magic": (b"PAR1PAR1", "cannot be read"),
    "an absurd footer": (b"PAR1" + b"\xff" * 12 + b"\xff\xff\xff\x7fPAR1", "cannot be read"),
    "without rows": (SCHEMA.empty_table(), "has no rows"),
    "without columns": (pa.table({}), "has no"),
    "without the answers": (table().drop_columns("ground_truth"), "no column 'ground_truth'"),
    "answers that are lists": (table(ground_truth=[["0"]] * NUM_ROWS), "rows cannot be read, shown or asked"),
    "answers that are numbers": (table(ground_truth=[0] * NUM_ROWS), "rows cannot be read, shown or asked"),
    "answers that are nothing": (table(ground_truth=pa.nulls(NUM_ROWS)), "rows cannot be read, shown or asked"),
    "questions that are numbers": (table(question=list(range(NUM_ROWS))), "rows cannot be read, shown or asked"),
    "questions that are bytes": (table(question=[b"\xff\xfe"] * NUM_ROWS), "rows cannot be read, shown or asked"),
    "images that are numbers": (table(image=[5] * NUM_ROWS), "rows cannot be read, shown or asked"),
    "images that are names": (table(image=["a.png"] * NUM_ROWS), "rows cannot be read, shown or asked"),
}


@pytest.mark.parametrize(("rows", "words"), TABLES.values(), ids=TABLES.keys())
def test_a_table_that_is_none_of_the_benchmark_fails_its_cell_with_a_reason(store, tmp_path, rows, words) -> None:
    data = write(tmp_path / "data", rows)
    with pytest.raises(AtrlBenchError, match=words) as raised:
        evaluated(store, data)
    assert raised.value.next_step
    assert {cell.state for cell in store.cells()} <= {"failed"}
    assert not any(cell.num_responses for cell in store.cells())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_table_that_was_cut_off_is_named(store, tmp_path, share) -> None:
    file = write(tmp_path / "data", table()) / "geoqa" / "test.parquet"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InvalidFileError, match=r"test\.parquet cannot be read"):
        evaluated(store, tmp_path / "data")


def test_parts_of_a_table_with_other_columns_are_an_error_and_no_traceback(store, tmp_path) -> None:
    write(tmp_path / "data", table(), "test-00000-of-00002.parquet")
    other = table(ground_truth=[0] * NUM_ROWS).rename_columns(["question", "ground_truth", "picture"])
    data = write(tmp_path / "data", other, "test-00001-of-00002.parquet")
    with pytest.raises(AtrlBenchError):
        evaluated(store, data)


def test_ten_thousand_columns_more_are_refused_at_once(store, tmp_path) -> None:
    rows = table()
    wide = dict.fromkeys(map(str, range(10000)), rows["ground_truth"])
    data = write(tmp_path / "data", pa.table(dict(zip(rows.column_names, rows.columns, strict=True)) | wide))
    started = time.monotonic()
    with pytest.raises(InvalidFileError, match="has 10003 columns"):
        evaluated(store, data)
    assert time.monotonic() - started < 10


MOST = """
import sys
from pathlib import Path
from memory import most_held
from atrl_bench.data.pictures import open_picture
open_picture(Path(sys.argv[1]))  # imports what it needs
before = most_held()
open_picture(Path(sys.argv[2]))
print(most_held() - before)
"""


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize(
    ("kind", "bytes_a_pixel", "most_pixels"),
    [("png", 10, Image.MAX_IMAGE_PIXELS), ("gif", 10, Image.MAX_IMAGE_PIXELS), ("webp", 18, MAX_WEBP_PIXELS)],
)
def test_a_picture_takes_so_many_bytes_a_pixel_and_so_less_than_a_gigabyte(
    tmp_path, mode, kind, bytes_a_pixel, most_pixels
) -> None:
    for side in (10, 3000):
        Image.new(mode, (side, side)).save(tmp_path / f"{side}.{kind}", lossless=True)
    program = [sys.executable, "-c", MOST, tmp_path / f"10.{kind}", tmp_path / f"3000.{kind}"]
    taken = int(subprocess.run(program, check=True, capture_output=True, text=True, cwd=TESTS).stdout)
    assert 3 * 3000**2 < taken < bytes_a_pixel * 3000**2  # the result alone has three
    assert bytes_a_pixel * most_pixels < 1 << 30


def test_a_webp_picture_of_more_pixels_than_fit_is_refused(tmp_path) -> None:
    Image.new("RGB", (7500, 7400)).save(tmp_path / "large.webp", lossless=True, method=0)  # 55,500,000
    with pytest.raises(Image.DecompressionBombWarning, match="7500 x 7400"):
        open_picture(tmp_path / "large.webp")


def test_a_transparent_picture_is_laid_on_white_the_same_in_strips_as_whole(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (600, 31, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    whole = Image.alpha_composite(Image.new("RGBA", (31, 600), "white"), Image.fromarray(pixels)).convert("RGB")
    assert open_picture(tmp_path / "a.png").tobytes() == whole.tobytes()


def test_a_picture_is_shown_as_viewers_show_it_upright_and_its_sixteen_bits_as_eight(tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera held upright: what it saw is turned by a quarter
    Image.fromarray(np.array([[0, 128], [0, 128], [0, 128]], "uint8")).save(tmp_path / "turned.png", exif=exif)
    assert np.asarray(open_picture(tmp_path / "turned.png"))[..., 0].tolist() == [[0, 0, 0], [128, 128, 128]]
    Image.fromarray(np.array([[0, 128 << 8, 255 << 8]], "uint16")).save(tmp_path / "scan.png")
    assert np.asarray(open_picture(tmp_path / "scan.png"))[..., 0].tolist() == [[0, 128, 255]]
    Image.new("RGB", (3, 2)).save(tmp_path / "damaged.jpg", exif=b"Exif\0\0no tags at all")
    assert open_picture(tmp_path / "damaged.jpg").size == (3, 2)


# Texts of a few hundred kilobytes that would be gigabytes of cells.
TEXTS = {
    "names.jsonl": "".join(f'{{"name {n}": 1}}\n' for n in range(5000)),
    "holes.jsonl": "".join(f'{{"name {n % 900}": 1}}\n' for n in range(100_000)),
    "inside.jsonl": "".join(f'{{"q": {{"name {n}": 1}}}}\n' for n in range(1500)),
    "deep.json": "[" * 100_000,
    "wide.csv": ",".join(map(str, range(20_000))) + "\n" + ",".join(["1"] * 20_000),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_small_text_that_is_a_large_table_is_refused(tmp_path, name, monkeypatch) -> None:
    if name == "inside.jsonl":  # which takes long to fill the usual 256 MiB
        monkeypatch.setattr(archives, "SMALL_BYTES", 1 << 20)
    (tmp_path / name).write_text(TEXTS[name])
    with taking_less_than(256 << 20), pytest.raises(InvalidFileError, match=name):
        read_tables([tmp_path / name])


def test_rows_of_a_csv_that_end_early_are_not_filled_up(tmp_path) -> None:
    (tmp_path / "short.csv").write_text(",".join(map(str, range(20_000))) + "\n" + "1\n" * 20_000)
    assert read_tables([tmp_path / "short.csv"]).shape == (20_000, 1)


# Training sets ----------------------------------------------------------------------------------------------------


def three_of(images: list) -> pa.Table:
    return pa.table({"problem": ["?"] * 3, "answer": ["5"] * 3, "images": images})


TABLE, LINES = "geometry3k/train-0.parquet", "r1_vl/train.jsonl"
NO_TABLES = [b"", b"PAR1PAR1", b"404: Not Found"]
NO_JSON = [b"{", b"[1, 2]", b'{"problem": 1}\n{"problem": "a"}\n', b"\xff\xfe"]
NO_TABLE, UNUSABLE = r"train-0\.parquet cannot be read", "3 of 3 rows of geometry3k cannot be used"


@pytest.mark.parametrize(
    ("name", "rows", "read", "error", "words"),
    [
        *((TABLE, content, load_training_data, InvalidFileError, NO_TABLE) for content in NO_TABLES),
        *((LINES, content, load_training_data, AtrlBenchError, "") for content in NO_JSON),
        # Rows of another kind, each counted with its reason; a search through them says so at its end.
        (TABLE, three_of([5, 6, 7]), load_training_data, MissingDataError, rf"{UNUSABLE}(.|\n)*3 undecodable image"),
        (TABLE, three_of([[{"path": 1}]] * 3), stream_problems, MissingDataError, UNUSABLE),
    ],
)
def test_a_training_set_that_is_none_ends_a_training_with_a_reason(tmp_path, name, rows, read, error, words) -> None:
    dataset, file = name.split("/")
    write(tmp_path, rows, file, dataset)
    with pytest.raises(error, match=words):
        list(read(dataset, tmp_path))

"""Pictures, films and tables of others: none starts a program, leads to another file or unpacks to gigabytes."""

import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_rows import encoded
from memory import taking_less_than

from atrl_bench.data import tables
from atrl_bench.data.pictures import open_picture
from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.hooks import open_image, picture_sizes
from atrl_bench.mini.videos import encode
from atrl_bench.models.video import BadVideoError, read_video

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(secret) print\nshowpage\n%%EOF\n"


def test_a_picture_starts_no_other_program(tmp_path, monkeypatch) -> None:
    """EPS is drawn by Ghostscript: a false one leaves a file when it is started."""
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    with pytest.raises(OSError, match="cannot identify"):
        open_image({"bytes": POSTSCRIPT, "path": None})
    with pytest.raises(OSError, match="cannot identify"):
        open_picture(POSTSCRIPT)
    assert picture_sizes({"image": {"bytes": POSTSCRIPT}}) == []
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_the_usual_kinds_of_pictures_are_shown(kind) -> None:
    assert open_image({"bytes": encoded(kind, (123, 77)), "path": None}).size == (123, 77)


@pytest.mark.parametrize("kind", ["PPM", "ICO", "PDF", "PCX", "TGA", "JPEG2000"])
def test_others_are_not(kind) -> None:
    with pytest.raises(OSError, match="cannot identify"):
        open_image({"bytes": encoded(kind), "path": None})


# Videos ---------------------------------------------------------------------------------------------------------------

FILM = np.repeat(np.arange(9, dtype=np.uint8) * 3, 56 * 56 * 3).reshape(9, 56, 56, 3)
LISTS = {
    "HLS": "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile://{film}\n#EXT-X-ENDLIST\n",
    "ffconcat": "ffconcat version 1.0\nfile '{film}'\n",
    "concat of one beside it": "ffconcat version 1.0\nfile ../private.ts\n",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS.keys())
def test_a_list_of_films_that_is_called_a_film_leads_to_none(text, tmp_path) -> None:
    """FFmpeg asks what is in a file, not what it is called, and follows a playlist to any file."""
    av = pytest.importorskip("av")
    private, film = tmp_path / "private.ts", tmp_path / "own" / "film.mp4"
    with av.open(str(private), "w", format="mpegts") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width = stream.height = 56
        for frame in FILM:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    film.parent.mkdir()
    film.write_text(text.format(film=private))
    with pytest.raises(BadVideoError, match=r"film\.mp4 cannot be decoded"):
        read_video(film, 4)


def test_a_film_that_promises_frames_of_gigabytes_costs_its_worker_alone(tmp_path) -> None:
    film = bytearray(encode(FILM, 8))
    at = film.index(b"tkhd") + 4 + 76  # width and height, as 16.16 numbers; and again in its sample description
    film[at : at + 8] = struct.pack(">II", 60_000 << 16, 60_000 << 16)
    at = film.index(b"stsd") + 4 + 8 + 8 + 24
    film[at : at + 4] = struct.pack(">HH", 60_000, 60_000)
    (tmp_path / "film.mp4").write_bytes(film)
    with taking_less_than(100 << 20), suppress(BadVideoError):  # whether it is believed is for the decoder to say
        read_video(tmp_path / "film.mp4", 4)


# Tables that unpack to gigabytes --------------------------------------------------------------------------------------


def repeated(path: Path, value: str, times: int, compression: str = "zstd", *, stored: bool = False) -> Path:
    """A small file: one value in its dictionary, and a number that repeats it."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, "int32")), pa.array([value]))
    pq.write_table(
        pa.table({"question": column, "ground_truth": column}), path, compression=compression, store_schema=stored
    )
    return path


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "as a dictionary"])
@pytest.mark.parametrize("compression", ["zstd", "gzip", "snappy", "brotli"])
def test_a_table_that_unpacks_to_gigabytes_is_refused_before_it_is_read(compression, stored, tmp_path) -> None:
    path = repeated(tmp_path / "test.parquet", "x" * (1 << 20), 4000, compression, stored=stored)
    assert path.stat().st_size < 300_000
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidFileError, match=r"more than [\d,]+ MiB|needed more than"):
        tables.read_parquet(path)
    with pytest.raises(InvalidFileError):
        list(tables.stream_batches([path]))
    with pytest.raises(InvalidFileError):
        tables.read_light_rows(path)
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_one_value_larger_than_the_memory_of_who_counts_is_refused(tmp_path) -> None:
    path = repeated(tmp_path / "test.parquet", "x" * (100 << 20), 64)
    with pytest.raises(InvalidFileError):
        tables.read_parquet(path)


def test_values_that_no_row_has_are_counted_too(tmp_path) -> None:
    value = pa.DictionaryArray.from_arrays(pa.array(np.zeros(9, "int32")), pa.array(["a", "x" * (30 << 20)]))
    table = pa.table({f"column {number}": value for number in range(12)})
    pq.write_table(table, tmp_path / "test.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "test.parquet").stat().st_size < 20_000
    with pytest.raises(InvalidFileError, match="far more than the file"):
        tables.read_parquet(tmp_path / "test.parquet")


def test_rows_of_nothing_without_end_are_refused(tmp_path) -> None:
    pq.write_table(pa.table({"a": pa.nulls(6_000_000)}), tmp_path / "test.parquet")
    with pytest.raises(InvalidFileError, match="far more than the file"):
        tables.read_parquet(tmp_path / "test.parquet")


def test_honest_tables_are_counted_once_and_read(tmp_path, monkeypatch) -> None:
    path = tmp_path / "test.parquet"
    pq.write_table(pa.table({"a": ["b" * 100] * 1000}), path)
    assert tables.read_parquet(path).num_rows == 1000
    monkeypatch.setattr(tables, "_counted", lambda _: pytest.fail("it was counted"))
    assert tables.read_parquet(path).num_rows == 1000

"""Archives: honest ones in every form are unpacked and resumed; hostile ones leave nothing outside and say why."""

import errno
import os
import shutil
import signal
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import hub_layouts
import pytest
from memory import TESTS
from programs import ended, printed

from atrl_bench.data import archives
from atrl_bench.data.archives import unpack
from atrl_bench.errors import InvalidFileError, MissingDataError, StoreError

VIDEOS = {f"scans/scene{number}.mp4": os.urandom(40_000) for number in range(5)} | {"labels.json": b"{}"}


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(hub_layouts.packed(files, zipfile.ZIP_DEFLATED))
    return path


def tarred(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(hub_layouts.tarred(files, "w:gz" if path.name.endswith("gz") else "w"))
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    "zip": lambda folder: zipped(folder / "v.zip", VIDEOS),
    "tar": lambda folder: tarred(folder / "v.tar", VIDEOS),
    "tar.gz": lambda folder: tarred(folder / "v.tar.gz", VIDEOS),
}


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and archives.MARKERS not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("form", FORMS)
def test_an_archive_of_every_form_is_unpacked_once(form, tmp_path) -> None:
    archive, into = FORMS[form](tmp_path), tmp_path / "into"
    assert sorted(unpack(archive, into)) == sorted(into / name for name in VIDEOS)
    assert contents(into) == VIDEOS
    times = {path: path.stat().st_mtime_ns for path in into.rglob("*.mp4")}
    unpack(archive, into)
    assert {path: path.stat().st_mtime_ns for path in into.rglob("*.mp4")} == times


def test_a_file_that_is_gone_and_an_archive_that_is_another_are_noticed(tmp_path) -> None:
    archive, into = FORMS["zip"](tmp_path), tmp_path / "into"
    unpack(archive, into)
    (into / "labels.json").unlink()
    unpack(archive, into)
    assert contents(into) == VIDEOS
    zipped(archive, {**VIDEOS, "more.mp4": b"more"})
    assert into / "more.mp4" in unpack(archive, into)


KILLED_AT_THE_20TH = """
import os, signal, sys
from pathlib import Path
from atrl_bench.data import archives
left, replace = [20], os.replace
def rename(*paths):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    replace(*paths)
archives.os.replace = rename
archives.unpack(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_a_killed_command_goes_on_and_no_file_is_ever_half_there(form, tmp_path) -> None:
    files = {f"{number}.bin": os.urandom(200_000) for number in range(30)}
    archive = zipped(tmp_path / "v.zip", files) if form == "zip" else tarred(tmp_path / "v.tar.gz", files)
    into = tmp_path / "into"
    done = ended("-c", KILLED_AT_THE_20TH, archive, into)
    assert done.returncode == -signal.SIGKILL
    written = contents(into)
    assert len(written) == 20
    assert written.items() <= files.items()
    before = {path: path.stat().st_mtime_ns for path in into.glob("*.bin")}
    unpack(archive, into)
    assert contents(into) == files
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was there was not written again


# Hostile ones -----------------------------------------------------------------------------------------------------


def linked(path: Path, kind: bytes, target: str) -> Path:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("entry")
        info.type, info.linkname = kind, target
        archive.addfile(info)
    return path


def zip_entry(path: Path, mode: int, content: bytes = b"/etc/passwd", flags: int = 0) -> Path:
    info = zipfile.ZipInfo("entry")
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, content)
    if flags:
        data = path.read_bytes()
        at = data.index(b"PK\x01\x02") + 8
        path.write_bytes(data[:at] + flags.to_bytes(2, "little") + data[at + 2 :])
    return path


OUTSIDE = ["../outside", "/tmp/outside", "a/../../outside", "..\\outside", "C:/outside", ".unpacked/v.json"]
HOSTILE: dict[str, Callable[[Path], Path]] = {
    **{f"zip {name}": lambda at, name=name: zipped(at / "v.zip", {"a": b"", name: b"x"}) for name in OUTSIDE},
    **{f"tar {name}": lambda at, name=name: tarred(at / "v.tar", {name: b"x"}) for name in OUTSIDE},
    "tar symbolic link": lambda at: linked(at / "v.tar", tarfile.SYMTYPE, "/etc/passwd"),
    "tar hard link": lambda at: linked(at / "v.tar", tarfile.LNKTYPE, "/etc/passwd"),
    "tar device": lambda at: linked(at / "v.tar", tarfile.CHRTYPE, ""),
    "tar pipe": lambda at: linked(at / "v.tar", tarfile.FIFOTYPE, ""),
    "zip symbolic link": lambda at: zip_entry(at / "v.zip", stat.S_IFLNK | 0o777),
    "zip pipe": lambda at: zip_entry(at / "v.zip", stat.S_IFIFO | 0o600),
    "zip encrypted": lambda at: zip_entry(at / "v.zip", stat.S_IFREG | 0o600, flags=1),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_is_written(kind, tmp_path) -> None:
    archive, into = HOSTILE[kind](tmp_path), tmp_path / "deep" / "into"
    with pytest.raises(InvalidFileError, match="is not unpacked") as caught:
        unpack(archive, into)
    assert caught.value.why
    assert caught.value.next_step
    assert contents(into) == {}
    assert not (tmp_path / "deep" / "outside").exists()
    assert not (tmp_path / "outside").exists()
    assert not Path("/tmp/outside").exists()


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_a_bomb_is_refused_before_it_fills_the_disk(form, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(archives, "SMALL_BYTES", 1_000_000)
    bomb = {f"{number}.mp4": bytes(1_000_000) for number in range(20)}  # zeros: 20 MB in some 20 kB
    archive = zipped(tmp_path / "v.zip", bomb) if form == "zip" else tarred(tmp_path / "v.tar.gz", bomb)
    with pytest.raises(InvalidFileError, match="far more than packed"):
        unpack(archive, tmp_path / "into")
    assert not list((tmp_path / "into" / archives.MARKERS).glob("*.json"))  # it does not pass for unpacked
    written = sum(len(content) for content in contents(tmp_path / "into").values())
    assert written <= max(1_000_000, archives.MAX_RATIO * archive.stat().st_size)


def test_more_files_than_any_data_set_has_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILES", 10)
    archive = zipped(tmp_path / "v.zip", {str(number): b"" for number in range(11)})
    with pytest.raises(InvalidFileError, match="more than 10 files"):
        unpack(archive, tmp_path / "into")
    assert contents(tmp_path / "into") == {}


def test_an_archive_that_does_not_fit_the_disk_is_not_begun(tmp_path, monkeypatch) -> None:
    archive = zipped(tmp_path / "v.zip", VIDEOS)
    usage = shutil.disk_usage(tmp_path)._replace(free=archives.SPARE_BYTES + 100_000)  # it has 200,000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match=r"v\.zip does not fit the disk"):
        unpack(archive, tmp_path / "into")
    assert contents(tmp_path / "into") == {}


def test_a_file_of_the_data_set_is_not_written_over_and_a_link_is_not_followed(tmp_path) -> None:
    into, elsewhere = tmp_path / "into", tmp_path / "elsewhere"
    into.mkdir()
    elsewhere.mkdir()
    (into / "test.parquet").write_bytes(b"rows")
    (into / "videos").symlink_to(elsewhere)
    for files in ({"test.parquet": b"other rows"}, {"videos/a.mp4": b"video"}):
        with pytest.raises(InvalidFileError, match="written over another file"):
            unpack(zipped(tmp_path / "v.zip", files), into)
    assert (into / "test.parquet").read_bytes() == b"rows"
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_an_archive_that_was_cut_off_is_named_with_the_next_step(form, tmp_path) -> None:
    archive = FORMS[form](tmp_path)
    archive.write_bytes(archive.read_bytes()[:-30_000])
    with pytest.raises(InvalidFileError, match="cannot be unpacked") as caught:
        unpack(archive, tmp_path / "into")
    assert str(archive) in caught.value.what
    assert not list((tmp_path / "into" / archives.MARKERS).glob("*.json"))


def test_a_disk_without_locks_is_unpacked_to_all_the_same(tmp_path, monkeypatch) -> None:
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    archive, into = FORMS["zip"](tmp_path), tmp_path / "into"
    unpack(archive, into)
    assert contents(into) == VIDEOS
    assert not [*into.rglob("*.part")]


def test_an_archive_that_is_not_there_is_a_clear_error(tmp_path) -> None:
    with pytest.raises(MissingDataError, match="There is no archive"):
        unpack(tmp_path / "v.zip", tmp_path / "into")


def bomb_of_a_header(path: Path, megabytes: int = 64) -> Path:
    """A packed tar whose one file has a name, or a comment, of so many megabytes."""
    info = tarfile.TarInfo("a.mp4")
    info.pax_headers = {"comment": "x" * (megabytes << 20)}
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    return path


UNPACK_IN_LITTLE_MEMORY = """
import sys
from pathlib import Path
from memory import most_held
from atrl_bench.data.archives import unpack
from atrl_bench.errors import InvalidFileError
before = most_held()
try:
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
except InvalidFileError as error:
    print(error, (most_held() - before) >> 20, sep="\\n")
"""


def test_a_header_of_a_tar_that_unpacks_to_megabytes_is_refused_before_it_is_read(tmp_path) -> None:
    archive = bomb_of_a_header(tmp_path / "v.tar.gz")
    *words, megabytes = printed("-c", UNPACK_IN_LITTLE_MEMORY, archive, tmp_path / "into", cwd=TESTS).splitlines()
    assert "more than 1,048,576 bytes" in "".join(words)
    assert int(megabytes) < 16


def test_many_headers_one_after_another_are_refused_too(tmp_path) -> None:
    block = tarfile.TarInfo("PaxHeader")
    block.type, body = tarfile.XHDTYPE, b"600000 comment=" + b"x" * (600_000 - 16) + b"\n"
    block.size = len(body)
    padded = body + b"\0" * (-len(body) % 512)
    (tmp_path / "v.tar").write_bytes((block.tobuf() + padded) * 40 + b"\0" * 1024)
    with pytest.raises(InvalidFileError, match="more than 1,048,576 bytes"):
        unpack(tmp_path / "v.tar", tmp_path / "into")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["x" * 300], "is no name of a file"),
        (["a/" * 3000 + "b"], "is no name of a file"),
        (["a", "a/b"], "written over another file"),
        ([".complete"], "is no path below a folder"),
    ],
)
@pytest.mark.parametrize("form", ["v.zip", "v.tar"])
def test_names_that_no_file_can_have_are_refused_in_words(form, names, words, tmp_path) -> None:
    pack = zipped if form.endswith("zip") else tarred
    with pytest.raises(InvalidFileError, match=words):
        unpack(pack(tmp_path / form, dict.fromkeys(names, b"1")), tmp_path / "into")

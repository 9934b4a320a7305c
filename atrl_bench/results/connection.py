"""Open a store file safely: journal mode, version, locks, and SQLite's failures said in words a user can act on."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from atrl_bench.errors import StoreError
from atrl_bench.results import packing, schema, write_lock

BUSY_SECONDS = 60.0
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")

# WAL shares memory between processes through a mapped file, which these do not offer across hosts.
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "glusterfs", "fuse.glusterfs"}
    | {"fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "9p", "orangefs", "panfs"}
)


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """An open connection to the store at `path`, created unless `read_only`."""
    with explained(path, "open"):
        if read_only:
            return _checked(_connect_read_only(path), path, read_only=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection = _checked(connection, path, read_only=False)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock from the first statement on: a reader that becomes a writer half-way could find it taken."""
    _patiently(connection, "BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has already rolled back by itself after some errors (disk full, I/O): then there is nothing to undo.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turn a failure of SQLite or of the file system into a `StoreError` that says what, why and the next step."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(error, path, verb) from error
    except OSError as error:
        raise StoreError(
            f"Cannot {verb} {path}.",
            why=f"{type(error).__name__}: {error.strerror or error}.",
            next_step="use a folder you can write to with --out",
        ) from error


def _patiently(connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    """Execute what needs a lock that SQLite does not always wait for by itself.

    It returns some kinds of BUSY (recovery after a killed writer, a change of the journal's mode) at once.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return connection.execute(statement)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(BUSY) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _connect_read_only(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise _nothing_there(path)
    uri = f"file:{quote(bytes(path.resolve()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        log = path.with_name(path.name + "-wal")
        if not error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) or _size(log) > 0:
            raise
        # A store at rest in a folder that cannot be written: WAL wants to put its index beside the file, but with an
        # empty log there is nothing to index and the file can be read as it stands.
        connection = sqlite3.connect(uri + "&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    except BaseException:
        connection.close()
        raise
    return connection


def _nothing_there(path: Path) -> StoreError:
    return StoreError(
        f"There is no result store at {path}.",
        why="Nothing has been run there yet.",
        next_step="atrl-bench run-table main_7b",
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _checked(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> sqlite3.Connection:
    """The connection unless the file is not a store of ours or is one that this version must not touch."""
    try:
        version, application, is_empty = _header(connection)
        deadline = time.monotonic() + BUSY_SECONDS
        while is_empty and read_only:
            if not write_lock.is_held(path) or time.monotonic() > deadline:
                raise _nothing_there(path)
            time.sleep(0.01)  # another command has just begun, and creates it
            version, application, is_empty = _header(connection)
        if application != schema.APPLICATION_ID and not is_empty:
            raise StoreError(
                f"{path} is an SQLite file but not a result store.",
                why="Its header carries another application's mark.",
                next_step="give --out another folder",
            )
        if version != schema.VERSION and not is_empty:
            raise StoreError(
                f"The result store {path} was written by another version of atrl-bench.",
                why=f"Its tables are of version {version}; this installation knows version {schema.VERSION}.",
                next_step="pip install --upgrade atrl-bench, or give --out another folder",
            )
        for function in (packing.packed, packing.unpacked):
            connection.create_function(function.__name__, 2, function, deterministic=True)
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def checksum_of(*values: object) -> int:
    """The CRC-32 of an answer's columns: no bit of them changes on disk without its being noticed."""
    return zlib.crc32("\x1f".join(map(str, values)).encode())


def _header(connection: sqlite3.Connection) -> tuple[int, int, bool]:
    """The file's version, whose mark it carries and whether it is empty, all of one moment.

    Another process may be creating the store just now: read one by one, they could show a file that has tables and no
    mark yet.
    """
    connection.execute("BEGIN")
    try:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        return version, application, tables == 0
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    wanted = "DELETE" if filesystem_of(path) in NETWORK_FILESYSTEMS else "WAL"
    mode = _patiently(connection, f"PRAGMA journal_mode = {wanted}").fetchone()[0]  # WAL may be refused
    # A committed answer survives a power cut too. The log is flushed by `flush`, after the next writer was let in.
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
    if _version(connection) == schema.VERSION:
        return
    with transaction(connection):
        if _version(connection) == schema.VERSION:  # by another process, while this one waited for the lock
            return
        for statement in (*schema.tables(), *schema.TRIGGERS):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {schema.VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def flush(path: Path) -> None:
    """Have what was committed to the store at `path` survive a power cut; several threads' flushes are one.

    What a checkpoint has moved out of the log meanwhile was flushed by it. Without a log SQLite flushes by itself.
    """
    with contextlib.suppress(FileNotFoundError):
        log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(log)
        finally:
            os.close(log)


def filesystem_of(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The type of the file system that holds `path` ("ext4", "nfs4", ...), or "" where that cannot be told."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    resolved, best, kind = path.resolve(), -1, ""
    for line in lines:
        fields = line.split()
        point = Path(fields[1].replace("\\040", " "))
        # Of two file systems mounted on one point the later one is seen, hence >=.
        if resolved.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def _explain(error: sqlite3.Error, path: Path, verb: str) -> StoreError:
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    what = f"Cannot {verb} the result store {path}."
    if name.startswith(BUSY):
        why = f"Another process has held its lock for {BUSY_SECONDS:.0f} seconds."
        return StoreError(
            what, why=why, next_step="see what runs with `atrl-bench status`, then the same command again"
        )
    if name == "SQLITE_FULL":
        why = "The disk is full. Everything stored before is intact."
        return StoreError(what, why=why, next_step="free space, then the same command again: it resumes")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        why = "The file or its folder cannot be written by this user."
        return StoreError(what, why=why, next_step="use a folder you can write to with --out")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        why = f"It is not a readable SQLite file ({error})."
        next_step = f"move it away and run again; `sqlite3 {path} .recover` prints what can be saved"
        return StoreError(what, why=why, next_step=next_step)
    return StoreError(
        what, why=f"SQLite says {name}: {error}.", next_step="check the disk and the folder's permissions"
    )

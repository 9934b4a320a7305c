"""A store that several processes share: one of them writes it, the others hand over what they have to write.

The first process that opens a store writes it. When it has ended, in whatever way, the next that has something to write
takes its place. What travels are calls: rows for a statement that has a name, and between machines, where nobody else
has the file to read from, the store's methods. A call that was not answered is made again, since nothing is there
twice: whoever dies loses only what was never stored.
"""

from __future__ import annotations

import inspect
import io
import os
import pickle
import secrets
import socket
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any

from atrl_bench.errors import StoreError, reason_of
from atrl_bench.results.connection import connect, explained
from atrl_bench.results.store import Store
from atrl_bench.results.write_lock import Address, announce, announced, take

WRITER = "ATRL_BENCH_STORE_WRITER"  # the variable with the address of a writer on another machine
PLACE = "ATRL_BENCH_PLACE"  # the variable with the name of the machine that work runs on
HERE = "127.0.0.1"
PATIENCE = 60.0  # seconds that a writer may be out of reach, or busy
PAUSE = 0.01  # seconds between two attempts to reach it
BACKLOG = 256  # processes that may come at once
MAX_STRANGERS = 256  # that have not shown the key yet
STRANGER_SECONDS = 10.0  # each of them has
OF_OTHERS = {("builtins", "RuntimeError"), ("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
}

METHODS = frozenset(name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_"))
CALLS = METHODS - {"close", "stream"} | {"_commit"}  # that travel


class _HandingOver(Store):
    """A store of which another process carries out calls, as long as there is a connection to one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sqlite3.connect(":memory:"))  # on another machine there is no file
        self._writer: Connection[Any, Any] | None = None
        self._join(time.monotonic() + PATIENCE)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        super().close()

    def _hand_over(self, name: str, *arguments: Any, **named: Any) -> Any:
        deadline = time.monotonic() + PATIENCE
        with self._lock:
            while self._writer is not None:
                try:
                    answer = _answer(self._writer, (name, arguments, named))
                except TimeoutError as error:
                    self._writer.close()
                    raise self._unreachable(error) from error
                except (EOFError, OSError):
                    self._writer.close()
                    self._join(deadline)
                    continue
                except BaseException:
                    self._writer.close()  # the next call must not get the answer to this one
                    raise
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return getattr(Store, name)(self, *arguments, **named)  # this process has become the writer

    def _join(self, deadline: float) -> None:
        while True:
            try:
                return self._find_writer()
            except (OSError, EOFError, AuthenticationError) as error:  # it begins, or has just ended
                if time.monotonic() > deadline:
                    raise self._unreachable(error) from error
            time.sleep(PAUSE)

    def _find_writer(self) -> None:
        raise NotImplementedError

    def _unreachable(self, error: Exception) -> StoreError:
        raise NotImplementedError


def _answer(writer: Connection[Any, Any], call: tuple[Any, ...]) -> Any:
    writer.send(call)
    if not writer.poll(PATIENCE):
        raise TimeoutError
    return _received(writer)


class _Records(pickle.Unpickler):
    """Reads what travels between stores: records, errors and arrays, and nothing that can be called."""

    def find_class(self, module: str, name: str) -> Any:
        is_ours = module.startswith("atrl_bench.results.") or module == "atrl_bench.errors"
        if "." in name or not (is_ours or (module, name) in OF_OTHERS):
            raise pickle.UnpicklingError(f"{module}.{name} does not travel.")
        found = super().find_class(module, name)
        if is_ours and getattr(found, "__module__", None) != module:
            raise pickle.UnpicklingError(f"{module}.{name} does not travel.")
        return found


def _received(connection: Connection[Any, Any]) -> Any:
    return _Records(io.BytesIO(connection.recv_bytes())).load()


def _handed_over(name: str) -> Callable[..., Any]:
    @wraps(getattr(Store, name))
    def method(store: _HandingOver, *arguments: Any, **named: Any) -> Any:
        return store._hand_over(name, *arguments, **named)

    return method


class SharedStore(_HandingOver):
    """A store that this process writes, or reads while another one writes it."""

    _write_lock: int | None = None
    _server: _Server | None = None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        super().close()
        if self._write_lock is not None:
            os.close(self._write_lock)
            self._write_lock = None

    def _commit(self, name: str, rows: list[tuple[Any, ...]], is_flushed: bool) -> int:
        num_changed: int = self._hand_over("_commit", name, rows, is_flushed)
        return num_changed

    def _find_writer(self) -> None:
        with explained(self.path, "open"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write_lock = take(self.path)
        if self._write_lock is not None:
            return self._become_writer(self._write_lock)
        writer = _connected(announced(self.path))
        if self._writer is None:
            self._connection.close()
            self._connection = connect(self.path, read_only=True)
        self._writer = writer
        return None

    def _become_writer(self, lock: int) -> None:
        self._writer = None
        self._connection.close()
        try:
            self._connection = connect(self.path, read_only=False)
            self._server = _Server(self, HERE)
            announce(lock, self._server.address)
        except BaseException:
            self.close()
            raise

    def _unreachable(self, error: Exception) -> StoreError:
        return StoreError(
            f"Cannot write to the result store {self.path}.",
            why=f"Another process has held its lock for {PATIENCE:.0f} seconds, and does not answer.",
            next_step="see what runs with `atrl-bench status`, then the same command again",
        )


class RemoteStore(_HandingOver):
    """The store that a process on another machine writes."""

    def __init__(self, path: Path, address: Address) -> None:
        self.address = address
        super().__init__(path)

    def heartbeat(self, kind: str, key: str, done: int, total: int, place: str = "") -> None:
        self._hand_over("heartbeat", kind, key, done, total, place or os.environ.get(PLACE, ""))

    def _find_writer(self) -> None:
        try:
            self._writer = _connected(self.address)
        except AuthenticationError as error:
            raise StoreError(
                f"The process at {self.address.host}:{self.address.port} does not write this run's results.",
                why="It knows another key: the command that started this job has ended.",
                next_step="the same command again; what was stored is there",
            ) from error

    def _unreachable(self, error: Exception) -> StoreError:
        return StoreError(
            f"The process that writes the results, at {self.address.host}:{self.address.port}, does not answer.",
            why=f"{type(error).__name__}, for {PATIENCE:.0f} seconds: it has ended, or this machine may not reach it.",
            next_step="the same command again, on a machine that the others can reach; what was stored is there",
        )


for _name in CALLS - {"heartbeat"}:
    setattr(RemoteStore, _name, _handed_over(_name))


@contextmanager
def served(store: Store, host: str) -> Iterator[Address]:
    """Carry out what other machines ask of an open store, at this address of this one, until the context ends."""
    server = _Server(store, host)
    try:
        yield server.address
    finally:
        server.close()


class _Server:
    """Carries out what others ask of a store, each in a thread of its own, until it is closed."""

    def __init__(self, store: Store, host: str) -> None:
        self._store, self._is_open = store, True
        self._connections: set[Connection[Any, Any]] = set()
        self._strangers = Semaphore(MAX_STRANGERS)
        self._listener = Listener((host, 0), backlog=BACKLOG)
        self.address = Address(host, self._listener.address[1], secrets.token_hex(32))
        self._thread = Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_open = False
        Client(self._listener.address).close()  # wakes who waits there for others
        self._thread.join()
        self._listener.close()
        for connection in tuple(self._connections):
            with suppress(OSError), _socket(connection) as end:
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # who came has gone, or too many files are open
                time.sleep(PAUSE)
                continue
            if not self._is_open:
                connection.close()
                return
            if not self._strangers.acquire(blocking=False):
                connection.close()  # who belongs here comes again
                continue
            self._connections.add(connection)
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        try:
            with suppress(OSError, EOFError, AuthenticationError, pickle.UnpicklingError), connection:
                self._let_in(connection)
                while True:
                    connection.send(self._carried_out(*_received(connection)))
        finally:
            self._connections.discard(connection)

    def _let_in(self, connection: Connection[Any, Any]) -> None:
        """Have a stranger show the key, in a few seconds and a few bytes: the rest is read from nobody else."""
        try:
            _send_at_once(connection)
            _limit(connection, STRANGER_SECONDS)
            key = self.address.key.encode()
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            _limit(connection, 0)  # who has shown it may take as long as its work takes
        finally:
            self._strangers.release()

    def _carried_out(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            if name not in CALLS:
                raise ValueError(f"{name} is no call of a store.")
            return getattr(self._store, name)(*arguments, **named)
        except StoreError as error:
            return error
        except Exception as error:  # of a kind that may not survive the way there
            return RuntimeError(reason_of(error))


def _connected(address: Address) -> Connection[Any, Any]:
    """A connection to a writer; raises `AuthenticationError` where another key is asked for."""
    connection, key = Client((address.host, address.port)), address.key.encode()
    _send_at_once(connection)
    _limit(connection, PATIENCE)  # one that was stopped accepts, and says nothing
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    return connection


def _limit(connection: Connection[Any, Any], seconds: float) -> None:
    """Let no read or write of a connection take longer, or 0: any of them as long as it takes."""
    limit = struct.pack("ll", *divmod(int(seconds * 1e6), 10**6))
    with _socket(connection) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _send_at_once(connection: Connection[Any, Any]) -> None:
    # A long message is sent after its length: by default its end would wait 40 ms until that is acknowledged.
    with _socket(connection) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _socket(connection: Connection[Any, Any]) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))

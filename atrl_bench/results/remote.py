"""A store that one process writes, and others reach over the network: no SQLite file is ever shared by two machines.

`written_here` answers for an open store as long as it is entered; a `RemoteStore` elsewhere does everything that a
store does by asking there. What it returned from is on that disk: whoever dies loses only what was never sent.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import StoreError
from atrl_bench.results.store import Store
from atrl_bench.results.working import hold

if TYPE_CHECKING:
    import httpx

WRITER = "ATRL_BENCH_STORE_WRITER"  # the variable with the address of the process that writes the store
TOKEN = "ATRL_BENCH_STORE_TOKEN"  # the variable with what every request carries
PLACE = "ATRL_BENCH_PLACE"  # the variable with the name of the machine that work runs on
PATIENCE = 60.0  # seconds that a writer may be silent; what it did twice is there once
MAX_PAUSE = 5.0  # between two attempts
SECONDS = 300.0  # that an answer may take: others write too


@dataclass(frozen=True)
class Writer:
    """Where a store is written, and the token that its requests carry."""

    url: str
    token: str


@contextmanager
def written_here(store: Store, host: str) -> Iterator[Writer]:
    """Answer at this address of this machine for an open store, until the context ends."""
    writer_token = secrets.token_urlsafe(32)
    store.refuse_other_files()
    handler = type("Handler", (_Requests,), {"store": store, "token": writer_token})
    server = ThreadingHTTPServer((host, 0), handler)
    server.daemon_threads = True
    working = hold(store.path)  # those who work elsewhere hold no lock on this disk
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Writer(f"http://{host}:{server.server_address[1]}", writer_token)
    finally:
        server.shutdown()
        server.server_close()
        os.close(working)


class _Requests(BaseHTTPRequestHandler):
    """One request after another of one worker; each is a query with its values, or a statement with its rows."""

    store: Store
    token: str
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and content go out one after the other

    def do_POST(self) -> None:
        """Do what a worker asks, and send what it gets."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sent = self.headers.get("Authorization", "")
        if not hmac.compare_digest(sent.encode(), f"Bearer {self.token}".encode()):
            self._send(401, {"what": "This is another run's store."})
            return
        try:
            self._send(200, self._result(json.loads(body)))
        except StoreError as error:
            self._send(409, {"what": error.what, "why": error.why, "next_step": error.next_step})

    def _result(self, request: dict[str, Any]) -> Any:
        if "query" in request:
            return self.store._read(request["query"], *request["values"])
        return self.store._write(request["statement"], request["rows"], is_flushed=request["is_flushed"])

    def _send(self, code: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: thousands of requests come in an hour."""


class RemoteStore(Store):
    """The store that a process on another machine, or of another job, writes."""

    def __init__(self, path: Path, url: str) -> None:
        super().__init__(path, sqlite3.connect(":memory:"))
        self.url, self.place = url, os.environ.get(PLACE, "")

    @cached_property
    def _client(self) -> httpx.Client:
        import httpx

        headers = {"Authorization": f"Bearer {os.environ.get(TOKEN, '')}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=SECONDS, trust_env=False)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
        super().close()

    def _say_working(self) -> None:
        """Leave it to the writer, which holds the lock for all."""

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._ask({"query": query, "values": values})]

    def _write(self, statement: str, rows: Iterable[Sequence[Any]], *, is_flushed: bool = True) -> int:
        content = {"statement": statement, "rows": [list(row) for row in rows], "is_flushed": is_flushed}
        num_changed: int = self._ask(content)
        return num_changed

    def _ask(self, content: dict[str, Any]) -> Any:
        """Return what the writer answers; one that cannot be reached is asked again, since nothing is done twice."""
        import httpx

        deadline, pause = time.monotonic() + PATIENCE, 0.1
        while True:
            try:
                reply = self._client.post("/", content=json.dumps(content).encode("ascii"))
                break
            except httpx.TransportError as error:
                if time.monotonic() > deadline:
                    raise self._unreachable(error) from error
                time.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
        if reply.status_code == 200:
            return reply.json()
        if reply.status_code == 409:
            raise StoreError(**reply.json())
        raise StoreError(
            f"The process at {self.url} does not write this run's results.",
            why=f"It answered with {reply.status_code}: the command that started this job has ended.",
            next_step="the same command again; what was stored is there",
        )

    def _unreachable(self, error: Exception) -> StoreError:
        return StoreError(
            f"The process that writes the results, at {self.url}, does not answer.",
            why=f"{type(error).__name__}, for {PATIENCE:.0f} seconds: it has ended, or this machine may not reach it.",
            next_step="the same command again, on a machine that the others can reach; what was stored is there",
        )

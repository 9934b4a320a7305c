"""One HTTP exchange whose limits on time and bytes hold whatever the other side does.

httpx limits each read: a server that sends a byte now and then (of its headers, of the length of a chunk, of one
interim reply after another) keeps it waiting for ever, and a reply of a few kilobytes may unpack to gigabytes. Here
an exchange is a task of an event loop and is cancelled when its time is over, wherever it waits; its content is
unpacked by us, up to its cap.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import zlib
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from functools import cache
from typing import Any

import httpx

from atrl_bench.errors import EndpointError
from atrl_bench.models.completion import NoReplyError

JSON = {"Content-Type": "application/json"}
PACKED = ("gzip", "x-gzip", "deflate")
TO_TRUST = "export SSL_CERT_FILE=FILE.pem, with that certificate or its authority's, and give the same command again"
Reply = tuple[int, Mapping[str, str], bytes]  # status, headers, content


@cache
def _event_loop(process: int) -> asyncio.AbstractEventLoop:
    """The loop of all exchanges of a process (a fork has none of its parent's threads), in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="endpoints").start()
    return loop


class BoundedHttp:
    """Connections to one server, shared between threads and used again."""

    def __init__(
        self, headers: Mapping[str, str], *, seconds: float, num_connections: int, proxies: bool = True
    ) -> None:
        self._seconds = seconds
        self._loop = _event_loop(os.getpid())
        self._under_way: set[Future[Any]] = set()
        self._client = httpx.AsyncClient(
            headers={"Accept-Encoding": "gzip", **headers},
            timeout=None,
            limits=httpx.Limits(max_connections=num_connections),
            follow_redirects=False,
            trust_env=proxies,
            verify=_trusted(),
        )

    def close(self) -> None:
        for future in tuple(self._under_way):
            future.cancel()
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()

    def exchange(
        self, method: str, url: str, body: bytes | None = None, *, max_bytes: int, seconds: float | None = None
    ) -> Reply:
        """The body of a request is JSON; `seconds` in place of those that every exchange has.

        Raises `NoReplyError` for what may pass by itself: no connection, a cut reply, one that is too long or too slow.
        Raises `ValueError` for a URL that is none.
        """
        future = asyncio.run_coroutine_threadsafe(
            self._exchange(method, url, body, max_bytes, seconds or self._seconds), self._loop
        )
        self._under_way.add(future)
        try:
            return future.result()
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError) as error:
            raise ValueError(str(error)) from error
        except TimeoutError as error:
            raise NoReplyError("the time for this reply is over") from error
        except (httpx.TransportError, CancelledError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise EndpointError(
                    f"This machine does not trust the certificate of {url}.", why=str(error), next_step=TO_TRUST
                ) from error
            raise NoReplyError(f"{type(error).__name__}: {error}") from error
        finally:
            self._under_way.discard(future)

    async def _exchange(self, method: str, url: str, body: bytes | None, max_bytes: int, seconds: float) -> Reply:
        raw = bytearray()
        async with (
            asyncio.timeout(seconds),
            self._client.stream(method, url, content=body, headers=JSON if body else None) as response,
        ):
            async for chunk in response.aiter_raw():
                raw += chunk
                if len(raw) > max_bytes:
                    raise NoReplyError("the reply is endless")
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        return response.status_code, response.headers, _unpacked(bytes(raw), encoding, max_bytes)


def _trusted() -> ssl.SSLContext:
    """What certificates are checked with: where no proxy is asked, too, the environment says which are trusted."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise EndpointError(
            "The certificates that are to be trusted cannot be read.",
            why=f"SSL_CERT_FILE or SSL_CERT_DIR: {error}.",
            next_step=TO_TRUST,
        ) from error


def _unpacked(raw: bytes, encoding: str, max_bytes: int) -> bytes:
    if encoding == "identity":
        return raw
    if encoding not in PACKED:
        raise NoReplyError(f"the reply is packed as {encoding[:40]!r}, which was not asked for")
    try:
        content = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, max_bytes + 1)  # | 32: whichever head it has
    except zlib.error as error:
        raise NoReplyError(f"the reply cannot be unpacked: {error}") from error
    if len(content) > max_bytes:
        raise NoReplyError("the reply is endless")
    return content

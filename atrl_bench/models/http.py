"""One HTTP exchange whose limits on time and bytes hold whatever the other side does.

httpx limits each read: a server that sends a byte now and then (of its headers, of the length of a chunk, of one
interim reply after another) keeps it waiting for ever, and a reply of a few kilobytes may unpack to gigabytes. Here
every read and write of an exchange ends at the exchange's own deadline, and unpacking stops at its cap.
"""

from __future__ import annotations

import ssl
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import httpcore
import httpx

from atrl_bench.models.no_reply import NoReplyError

CONNECT_SECONDS = 10.0
WRITTEN_AT_ONCE = 1 << 16  # bytes, after which the deadline is looked at
JSON = {"Content-Type": "application/json"}
# What zlib takes to read gzip, or a deflate stream with its header.
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class BoundedHttp:
    """Connections to one server, shared between threads and used again."""

    def __init__(
        self, headers: Mapping[str, str], *, seconds: float, num_connections: int, proxies: bool = True
    ) -> None:
        """Keep the settings of every exchange; `proxies` are those that the environment names."""
        self._seconds = seconds
        self._deadline = _Deadline()
        self._client = httpx.Client(
            headers={"Accept-Encoding": "gzip", **headers},
            timeout=httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
            limits=httpx.Limits(max_connections=num_connections),
            follow_redirects=False,
            trust_env=proxies,
        )
        # httpcore takes the backend as an argument; httpx, which builds the pools, has no word for it.
        for transport in (self._client._transport, *self._client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                transport._pool._network_backend = _Backend(self._deadline)

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def exchange(
        self, method: str, url: str, body: bytes | None = None, *, max_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and content of one reply to a request, whose body is JSON.

        Raises `NoReplyError` for what may pass by itself: no connection, a cut reply, one that is too long or too slow.
        Raises `ValueError` for a URL that is none.
        """
        self._deadline.set(self._seconds)
        try:
            with self._client.stream(method, url, content=body, headers=JSON if body else None) as response:
                content = _unpacked(response, max_bytes)
                return response.status_code, response.headers, content
        except httpx.UnsupportedProtocol as error:
            raise ValueError(str(error)) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise NoReplyError(f"{type(error).__name__}: {error}") from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ValueError(str(error)) from error


def _unpacked(response: httpx.Response, max_bytes: int) -> bytes:
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity" and encoding not in _WINDOW_BITS:
        raise NoReplyError(f"the reply is packed as {encoding[:40]!r}, which was not asked for")
    unpacker = zlib.decompressobj(_WINDOW_BITS[encoding]) if encoding in _WINDOW_BITS else None
    content, num_raw = bytearray(), 0
    try:
        for chunk in response.iter_raw():
            num_raw += len(chunk)
            content += chunk if unpacker is None else unpacker.decompress(chunk, max_bytes + 1 - len(content))
            if max(num_raw, len(content)) > max_bytes:
                raise NoReplyError("the reply is endless")
    except zlib.error as error:
        raise NoReplyError(f"the reply cannot be unpacked: {error}") from error
    return bytes(content)


class _Deadline(threading.local):
    """When the exchange of this thread has to be over."""

    end = float("inf")

    def set(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def left(self, timeout: float | None, error: type[Exception]) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise error("the time for this reply is over")
        return left if timeout is None else min(left, timeout)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadline: _Deadline) -> None:
        self._deadline = deadline
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        timeout = self._deadline.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_tcp(host, port, timeout, local_address, socket_options), self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = memoryview(buffer)
        if isinstance(self.get_extra_info("ssl_object"), ssl.SSLObject):
            # Within the TLS of a proxy: the socket is the outer one, and only httpcore knows the inner.
            while left:
                part, left = bytes(left[:WRITTEN_AT_ONCE]), left[WRITTEN_AT_ONCE:]
                self._stream.write(part, self._deadline.left(timeout, httpcore.WriteTimeout))
            return
        # Not by httpcore's own loop, which waits as long again for each part that a slow reader takes.
        socket = self.get_extra_info("socket")
        try:
            while left:
                socket.settimeout(self._deadline.left(timeout, httpcore.WriteTimeout))
                left = left[socket.send(left) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        timeout = self._deadline.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

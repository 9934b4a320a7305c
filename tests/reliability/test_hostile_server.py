"""A server that does whatever TCP allows: limits on time and bytes hold, and nothing that is no answer becomes one."""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator

import pytest

from atrl_bench.errors import EndpointError
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.grading.judge.prompt import verdict_in
from atrl_bench.models.chat_client import MAX_REPLY_BYTES, ChatClient, EndpointConfig
from atrl_bench.models.completion import Completion
from atrl_bench.models.no_reply import NoReplyError

SECONDS = 0.6
Answer = Callable[[socket.socket], None]


@contextlib.contextmanager
def raw_server(answer: Answer) -> Iterator[str]:
    """Yield the address of a server that reads each request and then lets `answer` write what it likes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(1 << 16)
            answer(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.close()


def ask(address: str, **settings: float) -> list[Completion]:
    with ChatClient(EndpointConfig(address, "mini", **{"seconds": SECONDS, **settings})) as client:
        return client.complete([{"role": "user", "content": "?"}], temperature=0, max_tokens=8)


def drip(head: bytes, drop: bytes, *, every: float = 0.05) -> Answer:
    """Write `head`, then `drop` again and again."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(drop)
            time.sleep(every)

    return answer


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
DRIPS = {
    "nothing at all": drip(b"", b""),
    "status line": drip(b"HTTP/1.1 200 ", b"O"),
    "header name": drip(OK, b"x"),
    "header value": drip(OK + b"X-Header: ", b"y"),
    "many headers": drip(OK, b"X-Header: y\r\n"),
    "interim replies": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "hints": drip(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"),
    "body of a known length": drip(OK + b"Content-Length: 1000\r\n\r\n", b" "),
    "body until the end": drip(OK + b"\r\n", b" "),
    "chunk size": drip(CHUNKED, b"0"),
    "chunk extension": drip(CHUNKED + b"5;name=", b"v"),
    "chunks": drip(CHUNKED, b"1\r\n \r\n"),
    "one chunk": drip(CHUNKED + b"fff\r\n", b" "),
    "trailers": drip(CHUNKED + b"0\r\n", b"X-Trailer: y\r\n"),
    "gzip name": drip(GZIP + b"a\r\n" + gzip.compress(b"")[:3] + b"\x08" + gzip.compress(b"")[4:10], b"1\r\nn\r\n"),
    "empty gzip members": drip(GZIP, b"14\r\n" + gzip.compress(b"") + b"\r\n"),
    "refusal": drip(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1000\r\n\r\n", b"n"),
}


@pytest.mark.parametrize("answer", DRIPS.values(), ids=DRIPS.keys())
def test_a_reply_that_drips_anywhere_ends_within_twice_its_limit(answer) -> None:
    with raw_server(answer) as address, ChatClient(EndpointConfig(address, "mini", seconds=SECONDS)) as client:
        started = time.monotonic()
        with pytest.raises(NoReplyError):
            client.complete([{"role": "user", "content": "?"}], temperature=0, max_tokens=8)
        assert time.monotonic() - started < 2 * SECONDS


def test_a_server_that_reads_slowly_is_left_at_the_limit() -> None:
    def unread(connection: socket.socket) -> None:
        time.sleep(30)

    with raw_server(unread) as address:
        started = time.monotonic()
        with (
            ChatClient(EndpointConfig(address, "mini", seconds=SECONDS)) as client,
            pytest.raises(NoReplyError),
        ):
            client.complete([{"role": "user", "content": "x" * (16 << 20)}], temperature=0, max_tokens=8)
        assert time.monotonic() - started < 3 * SECONDS  # making 16 MB of it takes a while of its own


def packed(encoding: str, content: bytes) -> Answer:
    head = OK + f"Content-Encoding: {encoding}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
    return lambda connection: connection.sendall(head + content)


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(b" " * (1 << 20)) for _ in range(size >> 20)) + packer.flush()


BOMBS = {
    "gzip": packed("gzip", bomb(512 << 20)),
    "gzip in gzip": packed("gzip, gzip", gzip.compress(bomb(512 << 20))),
    "deflate": packed("deflate", zlib.compress(b" " * (64 << 20), 9)),
    "brotli": packed("br", b"\x5b\xff\xff\x00"),
    "a plain reply": packed("identity", b" " * (MAX_REPLY_BYTES + 1)),
    "damaged": packed("gzip", b"\x1f\x8b no gzip at all"),
}


@pytest.mark.parametrize("answer", BOMBS.values(), ids=BOMBS.keys())
def test_a_reply_that_unpacks_to_more_than_it_may_is_refused_in_little_memory(answer) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with raw_server(answer) as address, pytest.raises(NoReplyError):
        ask(address, seconds=20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kilobytes


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_answer_is_read(encoding) -> None:
    content = json.dumps({"choices": [{"message": {"content": "5"}, "finish_reason": "stop"}]}).encode()
    content = gzip.compress(content) if encoding == "gzip" else zlib.compress(content)
    with raw_server(packed(encoding, content)) as address:
        assert ask(address, seconds=10) == [Completion("5", "stop", 0)]


def reply(choice: object, usage: object = None, status: int = 200) -> Answer:
    content = json.dumps({"choices": [choice], "usage": usage}).encode()
    return lambda connection: connection.sendall(
        b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(content), content)
    )


def spoken(content: object, finish: object = "stop", **message: object) -> dict[str, object]:
    return {"message": {"content": content, **message}, "finish_reason": finish}


NO_ANSWERS = {
    "null that stopped": spoken(None),
    "null without a reason": spoken(None, None),
    "an error": spoken("upstream failed", "error"),
    "aborted": spoken("", "abort"),
    "no parts": spoken([]),
    "only thoughts": spoken([{"type": "reasoning", "text": "5"}]),
    "a call of a tool": spoken(None, "tool_calls", tool_calls=[{"id": "1"}]),
    "a text beside a call": spoken("5", "tool_calls"),
    "a number": spoken(5),
    "a list of words": spoken(["5"]),
    "no message": {"finish_reason": "stop"},
    "a message of words": {"message": "5"},
    "nothing": None,
}


@pytest.mark.parametrize("choice", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
def test_what_the_model_did_not_say_is_no_answer(choice) -> None:
    with raw_server(reply(choice)) as address, pytest.raises(NoReplyError):
        ask(address, seconds=10)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (spoken(""), ""),
        (spoken(None, "content_filter"), ""),
        (spoken(None, refusal="I cannot help with that."), "I cannot help with that."),
        (spoken([{"type": "text", "text": "5"}, {"type": "text", "text": " cm"}]), "5 cm"),
    ],
)
def test_what_the_model_said_is_an_answer_even_if_it_is_nothing(choice, text) -> None:
    with raw_server(reply(choice)) as address:
        assert [completion.text for completion in ask(address, seconds=10)] == [text]


@pytest.mark.parametrize("count", [-5, 10**30, 1e999, "many", [5], None, 2.5])
def test_a_number_of_tokens_that_cannot_be_one_is_not_believed(count) -> None:
    with raw_server(reply(spoken("5"), {"completion_tokens": count})) as address:
        assert ask(address, seconds=10) == [Completion("5", "stop", 0)]


def test_a_refusal_that_only_speaks_of_a_content_policy_is_an_error_and_no_answer() -> None:
    def answer(connection: socket.socket) -> None:
        content = b'{"error": {"message": "unknown field; see our content_policy page"}}'
        connection.sendall(b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))

    with raw_server(answer) as address, pytest.raises(EndpointError, match="status 400"):
        ask(address, seconds=10)


def test_a_key_that_a_server_repeats_is_shown_nowhere(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    content = b"wrong key: sk-very-secret"
    for status, error in ((401, EndpointError), (503, EndpointError)):
        head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(content))

        def answer(connection: socket.socket, head: bytes = head) -> None:
            connection.sendall(head + content)

        with raw_server(answer) as address:
            client = ChatClient(EndpointConfig(address, "mini", seconds=5, num_attempts=1))
            with client, pytest.raises(error) as caught:
                client.retried(lambda client=client: client.complete([], temperature=0, max_tokens=8))
        assert "sk-very-secret" not in str(caught.value)


@pytest.mark.parametrize("config", [EndpointConfig, JudgeConfig])
def test_an_address_with_a_password_is_refused_without_repeating_it(config) -> None:
    with pytest.raises(EndpointError, match="api-key-variable") as caught:
        config("http://me:hunter2@localhost:8000/v1", "mini")
    assert "hunter2" not in str(caught.value)


def test_a_verdict_is_found_in_a_reply_of_half_a_megabyte_of_empty_lines() -> None:
    # A reading that starts again at each line would take a quarter of a million times as long as for one of them.
    assert verdict_in("Incorrect" + "\n" * (1 << 18) + "Correct" + " \n" * (1 << 17)) == "correct"

"""A server that does whatever TCP allows: limits on time and bytes hold, and nothing that is no answer becomes one."""

import base64
import contextlib
import gzip
import json
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import taking_less_than

from atrl_bench.errors import EndpointError
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.grading.judge.prompt import verdict_in
from atrl_bench.models.chat_client import MAX_REPLY_BYTES, ChatClient, EndpointConfig
from atrl_bench.models.completion import Completion, NoReplyError

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


def said(content: bytes = b"") -> Answer:
    """Write these bytes and close the connection."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)

    return answer


OK = b"HTTP/1.1 200 OK\r\n"


def body(content: bytes, head: bytes = OK, *headers: bytes) -> Answer:
    lines = b"".join(header + b"\r\n" for header in headers)
    return said(head + lines + b"Content-Length: %d\r\n\r\n" % len(content) + content)


def reply(choice: object, usage: object = None) -> Answer:
    return body(json.dumps({"choices": [choice], "usage": usage}).encode())


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


def packed(encoding: str, content: bytes, status: bytes = OK) -> Answer:
    return body(content, status, b"Content-Encoding: " + encoding.encode())


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(b" " * (1 << 20)) for _ in range(size >> 20)) + packer.flush()


BOMBS = {
    "gzip": packed("gzip", bomb(512 << 20)),
    "gzip in a refusal": packed("gzip", bomb(512 << 20), b"HTTP/1.1 400 Bad Request\r\n"),
    "gzip in gzip": packed("gzip, gzip", gzip.compress(bomb(512 << 20))),
    "deflate": packed("deflate", zlib.compress(b" " * (64 << 20), 9)),
    "brotli": packed("br", b"\x5b\xff\xff\x00"),
    "a plain reply": packed("identity", b" " * (MAX_REPLY_BYTES + 1)),
    "damaged": packed("gzip", b"\x1f\x8b no gzip at all"),
}


@pytest.mark.parametrize("answer", BOMBS.values(), ids=BOMBS.keys())
def test_a_reply_that_unpacks_to_more_than_it_may_is_refused_in_little_memory(answer) -> None:
    with taking_less_than(64 << 20), raw_server(answer) as address, pytest.raises(NoReplyError):
        ask(address, seconds=20)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_answer_is_read(encoding) -> None:
    content = json.dumps({"choices": [{"message": {"content": "5"}, "finish_reason": "stop"}]}).encode()
    content = gzip.compress(content) if encoding == "gzip" else zlib.compress(content)
    with raw_server(packed(encoding, content)) as address:
        assert ask(address, seconds=10) == [Completion("5", "stop", 0)]


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
        (
            spoken(
                [{"type": "text", "text": "5"}, {"type": "reasoning", "text": "6"}, {"type": "text", "text": " cm"}]
            ),
            "5 cm",
        ),
    ],
)
def test_what_the_model_said_is_an_answer_even_if_it_is_nothing(choice, text) -> None:
    with raw_server(reply(choice)) as address:
        assert [completion.text for completion in ask(address, seconds=10)] == [text]


@pytest.mark.parametrize("count", [-5, 10**30, 1e999, "many", [5], None, 2.5])
def test_a_number_of_tokens_that_cannot_be_one_is_not_believed(count) -> None:
    with raw_server(reply(spoken("5"), {"completion_tokens": count})) as address:
        assert ask(address, seconds=10) == [Completion("5", "stop", 0)]


ANSWER = json.dumps({"choices": [spoken("5")]}).encode()
LENGTH = b"Content-Length: %d\r\n\r\n" % len(ANSWER)
CHUNK = b"%x\r\n%b\r\n" % (len(ANSWER), ANSWER)
FAULTS = {
    # What is no HTTP
    "closes at once": said(),
    "resets": lambda connection: connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"),
    "speaks TLS": said(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)),
    "greets by mail": said(b"220 mail.example.com ESMTP\r\n"),
    "null bytes": said(bytes(1000)),
    "an old reply without a status": said(ANSWER),
    "HTTP/2 without asking": said(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a status that is a word": said(b"HTTP/1.1 OK\r\n" + LENGTH + ANSWER),
    "a status of two digits": said(b"HTTP/1.1 20 OK\r\n" + LENGTH + ANSWER),
    "a status of four digits": said(b"HTTP/1.1 2000 OK\r\n" + LENGTH + ANSWER),
    # What is no header
    "a header without a colon": said(OK + b"no colon\r\n" + LENGTH + ANSWER),
    "a header with a null byte": said(OK + b"X: \0\r\n" + LENGTH + ANSWER),
    "a name with a space": said(OK + b"X Y: z\r\n" + LENGTH + ANSWER),
    "a header of a megabyte": said(OK + b"X: " + b"y" * (1 << 20) + b"\r\n" + LENGTH + ANSWER),
    "a hundred thousand headers": said(OK + b"X: y\r\n" * 100_000 + LENGTH + ANSWER),
    "two lengths": said(OK + b"Content-Length: 5\r\n" + LENGTH + ANSWER),
    "a negative length": said(OK + b"Content-Length: -5\r\n\r\n" + ANSWER),
    "a length in words": said(OK + b"Content-Length: many\r\n\r\n" + ANSWER),
    "an endless length": said(OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + ANSWER),
    "an unknown transfer": said(OK + b"Transfer-Encoding: pigeon\r\n\r\n" + ANSWER),
    "two transfers": said(OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNK + b"0\r\n\r\n"),
    # What is cut off, or no chunk
    "cut in the status": said(b"HTTP/1.1 2"),
    "cut in a header": said(OK + b"Content-Le"),
    "cut before the body": said(OK + LENGTH),
    "cut in the body": said(OK + LENGTH + ANSWER[:-5]),
    "cut in a chunk": said(CHUNKED + CHUNK[:-9]),
    "cut before the last chunk": said(CHUNKED + CHUNK),
    "a chunk of no size": said(CHUNKED + b"\r\n" + CHUNK),
    "a chunk of a negative size": said(CHUNKED + b"-5\r\n" + ANSWER),
    "a chunk of 2**70 bytes": said(CHUNKED + b"fffffffffffffffff\r\n" + ANSWER),
    "a chunk that is longer than it says": said(CHUNKED + b"5\r\n" + ANSWER + b"\r\n0\r\n\r\n"),
    # What is no JSON of a completion
    "no body": body(b""),
    "a web page": body(b"<html>502</html>", OK, b"Content-Type: text/html"),
    "half a JSON": body(ANSWER[:-5]),
    "two JSONs": body(ANSWER + ANSWER),
    "events": body(b"data: " + ANSWER + b"\n\ndata: [DONE]\n\n", OK, b"Content-Type: text/event-stream"),
    "UTF-16": body(ANSWER.decode().encode("utf-16")),
    "nothing said, and no end of it": body(b'{"choices": [{"message": {"content": ""}}]}'),
    "what the user said": body(b'{"choices": [{"message": {"role": "user", "content": "5"}}]}'),
    "a hundred thousand brackets": body(b"[" * 100_000),
    "NaN": body(b"NaN"),
    "a list": body(b"[" + ANSWER + b"]"),
    "choices that are a word": body(b'{"choices": "5"}'),
    "no choices": body(b'{"choices": []}'),
    "an error with status 200": body(b'{"error": {"message": "overloaded"}}'),
    "an error beside a choice of nothing": body(b'{"error": {}, "choices": [null]}'),
    # What says that it is busy
    **{f"status {status}": body(b"{}", b"HTTP/1.1 %d X\r\n" % status) for status in (408, 409, 425, 429)},
    **{f"status {status}": body(ANSWER, b"HTTP/1.1 %d X\r\n" % status) for status in (500, 502, 503, 504, 529, 599)},
    "a wait of a century": body(b"{}", b"HTTP/1.1 429 X\r\n", b"Retry-After: 3153600000"),
    "a wait of nonsense": body(b"{}", b"HTTP/1.1 429 X\r\n", b"Retry-After: soon"),
}
REFUSALS = {
    **{
        f"status {status}": body(ANSWER, b"HTTP/1.1 %d X\r\n" % status)
        for status in (201, 202, 206, 300, 301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 413, 422, 451)
    },
    "no content": said(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "a way elsewhere": body(ANSWER, b"HTTP/1.1 302 Found\r\n", b"Location: http://127.0.0.1:9/v1"),
    "a way into a file": body(ANSWER, b"HTTP/1.1 307 X\r\n", b"Location: file:///etc/passwd"),
    "a way round in a circle": body(ANSWER, b"HTTP/1.1 308 X\r\n", b"Location: /v1/chat/completions"),
}
ODD_ANSWERS = {
    "HTTP/9.9": body(ANSWER, b"HTTP/9.9 200 OK\r\n"),
    "HTTP/1.0": body(ANSWER, b"HTTP/1.0 200 OK\r\n"),
    "until the end": said(OK + b"\r\n" + ANSWER),
    "no reason": body(ANSWER, b"HTTP/1.1 200\r\n"),
    "a reason in another alphabet": body(ANSWER, "HTTP/1.1 200 é\r\n".encode("latin-1")),
    "another type": body(ANSWER, OK, b"Content-Type: image/png"),
    "another alphabet": body(ANSWER, OK, b"Content-Type: application/json; charset=ebcdic"),
    "headers twice": body(ANSWER, OK, b"Content-Type: a/b", b"Content-Type: application/json"),
    "the same length twice": said(OK + b"Content-Length: %d\r\n" % len(ANSWER) + LENGTH + ANSWER),
    "many interim replies": said(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50 + OK + LENGTH + ANSWER),
    "in many chunks": said(CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in ANSWER) + b"0\r\n\r\n"),
    "chunks with extensions and trailers": said(
        CHUNKED + b"%x;a=b\r\n%b\r\n" % (len(ANSWER), ANSWER) + b"0\r\nX: y\r\n\r\n"
    ),
    "more than it says": said(OK + LENGTH + ANSWER + b"HTTP/1.1 200 OK\r\n\r\n"),
    "spaces around it": body(b" \n\t" + ANSWER + b"\n" * 1000),
    "fields that nobody knows": body(ANSWER[:-1] + b', "x": {"y": [null, 1e999]}, "system_fingerprint": 5}'),
    "a field twice": body(b'{"choices": [], ' + ANSWER[1:]),
}


@pytest.mark.parametrize("answer", FAULTS.values(), ids=FAULTS.keys())
def test_a_reply_that_is_none_is_worth_another_try_and_no_answer(answer) -> None:
    started = time.monotonic()
    with raw_server(answer) as address, pytest.raises(NoReplyError):
        ask(address, seconds=10)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_is_an_error_at_once_and_leads_nowhere(answer) -> None:
    with raw_server(answer) as address, pytest.raises(EndpointError, match=r"refuses the request with status \d{3}"):
        ask(address, seconds=10)


@pytest.mark.parametrize("answer", ODD_ANSWERS.values(), ids=ODD_ANSWERS.keys())
def test_an_answer_that_is_sent_oddly_is_one(answer) -> None:
    with raw_server(answer) as address:
        assert ask(address, seconds=10) == [Completion("5", "stop", 0)]


def test_a_refusal_that_only_speaks_of_a_content_policy_is_an_error_and_no_answer() -> None:
    content = b'{"error": {"message": "unknown field; see our content_policy page"}}'
    with raw_server(body(content, b"HTTP/1.1 400 X\r\n")) as address, pytest.raises(EndpointError, match="status 400"):
        ask(address, seconds=10)


KEY = "sk-very-secret-0123456789"
ECHOES = {
    "in a refusal": body(b"wrong key: " + KEY.encode(), b"HTTP/1.1 401 X\r\n"),
    "where its words are cut off": body(b"x" * 290 + KEY.encode(), b"HTTP/1.1 401 X\r\n"),
    "as the reason": body(b"{}", b"HTTP/1.1 401 " + KEY.encode() + b"\r\n"),
    "in an outage": body(KEY.encode(), b"HTTP/1.1 503 X\r\n"),
    "as no JSON": body(KEY.encode() * 3),
    "as half a JSON": body(b'{"choices": "' + b"x" * 40 + KEY.encode()),
    "as a header that is none": said(OK + KEY.encode() + b"\r\n\r\n"),
    "as a packing": body(ANSWER, OK, b"Content-Encoding: " + KEY.encode()),
    "as the length of a chunk": said(CHUNKED + KEY.encode() + b"\r\n"),
    "as a model that it serves": body(json.dumps({"data": [{"id": KEY}]}).encode(), b"HTTP/1.1 404 X\r\n"),
    "as a reason to stop": body(json.dumps({"choices": [spoken(None, KEY)]}).encode()),
}


@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES.keys())
def test_a_key_that_a_server_repeats_is_shown_nowhere(monkeypatch, capfd, answer) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with raw_server(answer) as address:
        client = ChatClient(EndpointConfig(address, "mini", seconds=5, num_attempts=1))
        with client, pytest.raises((EndpointError, NoReplyError)) as caught:
            client.retried(lambda: client.complete([], temperature=0, max_tokens=8))
    shown = "".join((str(caught.value), *capfd.readouterr()))
    assert KEY not in shown
    assert KEY[:10] not in shown, "half a key is a secret, too"


CUT = "\ufffd"
BROKEN = {
    b"5 \xff": f"5 {CUT}",
    b"\\ud800": CUT,
    b"\\udc00 5": f"{CUT} 5",
    b"\\ud83d\\ude00 \\ud83d": f"\U0001f600 {CUT}",
    b"\\ud83d\\ud83d\\ude00": f"{CUT}\U0001f600",
    b"\\\\ud800": "\\ud800",  # a backslash and letters, as in LaTeX
}


@pytest.mark.parametrize(("content", "text"), BROKEN.items(), ids=ascii)
def test_a_character_that_a_token_cut_in_half_costs_no_answer(content, text) -> None:
    with raw_server(body(b'{"choices": [{"message": {"content": "%b"}}]}' % content)) as address:
        assert ask(address, seconds=10)[0].text == text


def escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"


def percent(character: str) -> str:
    return f"%{ord(character):02X}"


@given(
    forms=st.lists(st.sampled_from((str, escaped, percent)), min_size=len(KEY), max_size=len(KEY)),
    before=st.text("abc:", max_size=5),
    packed=st.sampled_from((None, base64.b64encode, base64.urlsafe_b64encode)),
    where=st.sampled_from(("401", "404", "200")),
)
@settings(max_examples=60, deadline=None)
def test_no_spelling_of_a_key_gets_out_of_any_reply(forms, before, packed, where) -> None:
    """In a refusal, in the name of a model, in an answer: whoever reads it cannot get the key back."""
    spelt = "".join(form(character) for form, character in zip(forms, KEY, strict=True))
    spelt = before + spelt if packed is None else packed((before + KEY).encode()).decode()
    reply = {
        "401": b'{"error": {"message": "not %b"}}',
        "404": b'{"data": [{"id": "%b"}]}',
        "200": b'{"choices": [{"message": {"content": "my key is %b"}, "finish_reason": "stop"}]}',
    }[where] % spelt.encode()
    with (
        pytest.MonkeyPatch.context() as patch,
        raw_server(body(reply, b"HTTP/1.1 %b X\r\n" % where.encode())) as address,
    ):
        patch.setenv("OPENAI_API_KEY", KEY)
        try:
            shown = ask(address, seconds=10)[0].text
        except EndpointError as error:
            shown = str(error)
    # What a reader could do with it: take escapes, percents and base64 away, in any order that was put on.
    read = unquote(re.sub(r"\\+u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), shown))
    for part in re.findall(r"[\w+/-]{8,}", shown):
        for start in range(4):
            whole = part[start : start + (len(part) - start) // 4 * 4].translate(str.maketrans("-_", "+/"))
            read += base64.b64decode(whole).decode("latin-1")
    assert KEY[4:20] not in read
    assert "$OPENAI_API_KEY" in shown


def test_a_key_that_is_no_secret_changes_no_answer(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    with raw_server(reply(spoken("EMPTY set"))) as address:
        assert ask(address, seconds=10)[0].text == "EMPTY set"


@pytest.mark.parametrize("config", [EndpointConfig, JudgeConfig])
def test_an_address_with_a_password_is_refused_without_repeating_it(config) -> None:
    with pytest.raises(EndpointError, match="api-key-variable") as caught:
        config("http://me:hunter2@localhost:8000/v1", "mini")
    assert "hunter2" not in str(caught.value)


def test_a_verdict_is_found_in_a_reply_of_half_a_megabyte_of_empty_lines() -> None:
    # A reading that starts again at each line would take a quarter of a million times as long as for one of them.
    assert verdict_in("Incorrect" + "\n" * (1 << 18) + "Correct" + " \n" * (1 << 17)) == "correct"

"""Many questions to a server on this machine: in order, several at a time, again where a reply cannot be read."""

import json
import socket
import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from http_servers import ChatServer
from werkzeug.serving import make_ssl_devcert

from atrl_bench.errors import EndpointError
from atrl_bench.models.chat_client import ChatClient, EndpointConfig, Reply, ask_all

CUT_OFF = json.dumps({"choices": [{"finish_reason": "length", "message": {"content": "7"}}]}).encode()


def as_number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def ask(server, questions, **settings):
    return ask_all(
        server.config(num_attempts=2, num_parallel=settings.pop("num_parallel", 4), sleep=lambda _: None),
        questions,
        lambda question: [{"role": "user", "content": str(question)}],
        as_number,
        wanted="number",
        temperature=0.0,
        max_tokens=8,
        **settings,
    )


def test_replies_come_in_the_order_of_the_questions_whoever_is_answered_first(serve):
    def slow_at_first(body):
        [message] = body["messages"]
        time.sleep(0.05 if message["content"] == "0" else 0)
        return message["content"]

    assert [reply.reading for reply in ask(serve(answer=slow_at_first), range(5))] == [0, 1, 2, 3, 4]


def test_a_reply_that_cannot_be_read_is_asked_for_again_and_then_missing_with_its_reason(serve):
    assert ask(serve("Hm.", "7"), ["?"]) == [Reply(7, "", 2)]
    assert ask(serve("Hm."), ["?"]) == [Reply(None, "no number in 'Hm.'", 2)]


def test_a_reply_that_the_token_limit_has_cut_off_counts_only_where_the_caller_says_so(serve):
    assert ask(serve(CUT_OFF), ["?"])[0].reading is None
    assert ask(serve(CUT_OFF), ["?"], read_cut_off=True)[0].reading == 7


def test_nothing_to_ask_opens_no_connection(serve):
    server = serve("7")
    assert ask(server, []) == []
    assert server.requests == []


def test_each_reply_is_handed_over_the_moment_it_is_there(serve):
    replies, first = [], threading.Event()

    def answer(body):
        [message] = body["messages"]
        if message["content"] == "1":
            assert first.wait(10), "the reply to the first question was held back"
        return message["content"]

    def on_reply(question, reply):
        replies.append((question, reply.reading))
        first.set()

    ask(serve(answer=answer), [0, 1], on_reply=on_reply)
    assert replies == [(0, 0), (1, 1)]


def test_a_dead_or_silent_endpoint_is_said_before_anything_is_asked(monkeypatch):
    monkeypatch.setattr("atrl_bench.models.chat_client.SECONDS_TO_ANSWER", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes connections and says nothing
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with (
            ChatClient(EndpointConfig(address, "vlm")) as client,
            pytest.raises(EndpointError, match="Nothing answers"),
        ):
            client.require_there()
    with ChatClient(EndpointConfig(address, "vlm")) as client, pytest.raises(EndpointError, match="Nothing answers"):
        client.require_there()


def test_a_server_without_a_list_of_models_is_there(serve):
    with ChatClient(serve().config()) as client:
        client.require_there()


def test_an_endpoint_that_is_down_stops_all_questions_and_keeps_what_was_read(serve):
    answers, replies = iter(["7"] * 3), []
    server = serve(answer=lambda _: next(answers, (500, {}, b"")))
    with pytest.raises(EndpointError, match="did not answer after 2 attempts"):
        ask(server, range(50), num_parallel=1, on_reply=lambda question, reply: replies.append(reply.reading))
    assert replies == [7, 7, 7]
    assert len(server.requests) < 10  # not two attempts for each of the fifty


def test_why_a_server_takes_no_more_requests_is_said_in_its_words(serve):
    spent = (429, {}, b'{"error": "You exceeded your quota"}')
    with pytest.raises(EndpointError, match=r"status 429: .*You exceeded your quota") as error:
        ask(serve(spent), ["?"])
    assert "--num-parallel" in error.value.next_step


def test_an_address_without_its_version_is_told_how_most_end(serve):
    server = serve("7")
    server.expect_request("/chat/completions").respond_with_data("Not Found", 404)
    server.expect_request("/models").respond_with_data("Not Found", 404)
    config = replace(server.config(), base_url=server.url.removesuffix("/v1"))
    with ChatClient(config) as client, pytest.raises(EndpointError, match="status 404") as error:
        client.complete([], temperature=0.0, max_tokens=1)
    assert "check the address (most end in /v1), the model name" in error.value.next_step


def test_a_server_that_is_down_is_said_once_while_it_is_asked_again(capsys):
    config = EndpointConfig("http://127.0.0.1:9", "gone", num_attempts=5, sleep=lambda _: None)
    with ChatClient(config) as client, pytest.raises(EndpointError, match="did not answer after 5 attempts"):
        client.retried(lambda: client.complete([], temperature=0.0, max_tokens=1))
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("http://127.0.0.1:9 does not answer and is asked again: ConnectError")


def test_a_certificate_that_is_not_trusted_is_said_at_once_with_the_setting_that_trusts_it(tmp_path, monkeypatch):
    certificate, key = make_ssl_devcert(str(tmp_path / "own"), cn="localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ChatServer("7", ssl_context=context) as server:
        endpoint = EndpointConfig(server.url.replace("127.0.0.1", "localhost"), "m")

        def reading():
            [reply] = ask_all(endpoint, ["?"], lambda _: [], as_number, wanted="number", temperature=0.0, max_tokens=8)
            return reply.reading

        for variable in (None, tmp_path / "none.pem", Path(key)):  # not trusted, not there, no certificate
            if variable is not None:
                monkeypatch.setenv("SSL_CERT_FILE", str(variable))
            started = time.monotonic()
            with pytest.raises(EndpointError, match="certificate") as refused:
                reading()
            assert "SSL_CERT_FILE" in refused.value.next_step
            assert time.monotonic() - started < 20, "it is not asked again and again for a minute"
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert reading() == 7

"""Servers on this machine, of which one plays a model or a judge behind an endpoint, and misbehaves on demand."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from atrl_bench.grading.judge.judge import Judge, JudgeConfig
from atrl_bench.models.chat_client import EndpointConfig

Body = dict[str, Any]
Reply = str | bytes | tuple[int, dict[str, str], bytes] | Callable[[socket.socket], None]


class QuickServer(HTTPServer):
    """A server that answers several requests at a time, and stops at once."""

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__("127.0.0.1", ssl_context=ssl_context, threaded=True)

    def thread_target(self) -> None:
        assert self.server is not None
        self.server.serve_forever(poll_interval=0.01)  # by default it takes up to half a second to notice


def hung_up(request: Request, do: Callable[[socket.socket], None]) -> Response:
    """Do something to the connection of a request and end it; the response that is returned arrives nowhere."""
    connection = request.environ["werkzeug.socket"]
    with contextlib.suppress(OSError):
        do(connection)
        connection.shutdown(socket.SHUT_RDWR)
    return Response()


class ChatServer(QuickServer):
    """Gives the replies one after the other, the last of them for ever, or asks `answer` for one.

    A reply is what the model says, to each of the `n` that are asked for (str), a whole body (bytes), status, headers
    and body (tuple), or a function that does to the connection what it likes.
    """

    def __init__(
        self, *replies: Reply, answer: Callable[[Body], Reply] | None = None, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(ssl_context)
        self.replies, self.answer = list(replies), answer
        self.requests: list[Body] = []
        self.waits: list[float] = []
        self._taking = threading.Lock()
        self.expect_request("/v1/chat/completions", method="POST").respond_with_handler(self._complete)

    def _complete(self, request: Request) -> Response:
        body = request.get_json()
        with self._taking:
            self.requests.append(body)
            reply = self.replies.pop(0) if len(self.replies) > 1 else next(iter(self.replies), "")
        reply = self.answer(body) if self.answer else reply
        if callable(reply):
            return hung_up(request, reply)
        if isinstance(reply, str):
            reply = completion(*[reply] * body.get("n", 1))
        status, headers, content = (200, {}, reply) if isinstance(reply, bytes) else reply
        return Response(content, status, headers)

    @property
    def url(self) -> str:
        return self.url_for("/v1")

    def config(self, **settings: Any) -> JudgeConfig:
        return JudgeConfig(self.url, "qwen", **{"num_attempts": 3, **settings})

    def endpoint(self, **settings: Any) -> EndpointConfig:
        return EndpointConfig(self.url, "mini", **{"num_attempts": 3, "first_wait": 0.01, **settings})

    def judge(self, store: Any = None, **settings: Any) -> Judge:
        """A judge at this server that notes how long it would have slept."""
        return Judge(self.config(sleep=self.waits.append, **settings), store)


def completion(
    *texts: str | None, finish: str = "stop", tokens: int = 0, model: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """A reply with these texts, of so many tokens together, that gives its model this name."""
    choices = [{"message": {"role": "assistant", "content": text}, "finish_reason": finish} for text in texts]
    body = {"model": model, "choices": choices, "usage": {"completion_tokens": tokens}}
    return 200, {}, json.dumps(body).encode()

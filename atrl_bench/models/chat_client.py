"""Chat completions from an OpenAI-compatible server, which may be slow, busy, half broken, or speak a dialect.

Every request has a deadline and a cap on its bytes. What may pass by itself (a busy or restarting server, a cut
connection, a reply that is no chat completion) is a `NoReplyError`, which `retried` tries again with growing waits;
what cannot is an `EndpointError` at once. Nothing that goes wrong here ever becomes an answer. What it means when no
reply can be read is for the caller of `ask_all` to say.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

from atrl_bench.errors import EndpointError, RefusedError
from atrl_bench.models.budget import Budget
from atrl_bench.models.completion import (
    FILTERED,
    MAX_NAME,
    TOO_LONG,
    Completion,
    NoReplyError,
    UselessReplyError,
    is_blocked,
    read_completions,
    tokens_taken,
)
from atrl_bench.models.secret import Secret

MAX_REPLY_BYTES = 1 << 20  # for each answer that was asked for
SECONDS_TO_ANSWER = 8.0  # that a server may take to say that it is there
TOLD_AFTER = 2  # failures that pass in seconds; later ones are minutes of silence
MAX_WAIT_SECONDS = 60.0  # a server may ask for an hour; the run is better resumed then
MAX_NAMES = 20  # of what a server says that it serves
LEAST_BIAS = -100  # of a token's logit, in OpenAI's protocol
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")  # no proxy knows it
RETRIED_STATUS = frozenset({408, 409, 425, 429})  # and every 5xx
REFUSED_STATUS = frozenset({400, 413, 422})  # of one request, where another may be taken

# How a server says that it does not take a parameter without which an answer means the same. Any other it refuses is an
# error: an answer drawn at another temperature would be another experiment.
_REFUSALS = {
    "seed": r"\bseed\b",
    "n": r"""['"`]n['"`]|\bn:? must be\b|\bn > 1\b|multiple candidates|candidate_?count""",
    "top_p": r"\btop_p\b",
    "max_tokens": r"\bmax_completion_tokens\b",  # its newer name, which some models insist on
}

T = TypeVar("T")
Question = TypeVar("Question")
Reading = TypeVar("Reading")


@dataclass(frozen=True)
class EndpointConfig:
    """Where a model is served, and how patiently it is asked."""

    base_url: str  # up to and without /chat/completions
    model: str  # the name it is served under
    api_key_variable: str = "OPENAI_API_KEY"  # the environment variable that holds the key, if there is one
    num_parallel: int = 8  # requests at a time
    num_attempts: int = 8
    seconds: float = 900.0  # for one whole reply, however slowly it drips
    first_wait: float = 0.5  # doubled after every failure
    budget: Budget | None = field(default=None, compare=False, repr=False)  # of the requests of one command
    sleep: Callable[[float], object] | None = field(default=None, compare=False, repr=False)  # None: until it is closed

    def __post_init__(self) -> None:
        address = _address(self.base_url)
        if address and (address.username or address.password):
            raise EndpointError(
                f"The address of the endpoint at {address.hostname} holds a user name or a password.",
                why="Addresses are stored in the run folder and shown in reports.",
                next_step="leave it out, and give the key in an environment variable: --api-key-variable NAME",
            )


class ChatClient:
    """A connection to one endpoint, shared between threads; use it as a context manager."""

    def __init__(self, config: EndpointConfig) -> None:
        from atrl_bench.models.http import BoundedHttp

        self.config = config
        self._closed = threading.Event()
        self._sleep = config.sleep or self._closed.wait
        self._is_told = False  # that nothing answers
        self._refused: frozenset[str] = frozenset()  # the parameters this server has turned down
        self._url = config.base_url.rstrip("/").removesuffix("/chat/completions")
        self._secret = Secret(os.environ.get(config.api_key_variable), config.api_key_variable)
        address = _address(self._url)
        self._http = BoundedHttp(
            {"Authorization": f"Bearer {self._secret.key}"} if self._secret.key else {},
            seconds=config.seconds,
            num_connections=config.num_parallel,
            proxies=not (address and address.hostname in THIS_MACHINE),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection, and wait between attempts no longer."""
        self._closed.set()
        self._http.close()

    def complete(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        temperature: float,
        max_tokens: int,
        n: int = 1,
        seed: int | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        never_drawn: Sequence[int] = (),
        name: str = "the request",
    ) -> list[Completion]:
        """Up to `n` answers (a server may not know how to give several) from one request, tried once.

        No token in `never_drawn` is in them, where the server knows `logit_bias`.
        Raises `NoReplyError` where it is worth another try, so wrap it: `client.retried(lambda: client.complete(...))`.
        """
        wanted: dict[str, Any] = {
            "model": self.config.model,
            "messages": messages,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "n": n if n > 1 else None,
            "seed": seed,
            "top_p": top_p,
            "top_k": top_k,  # no word of OpenAI's: what does not know it refuses the request
            "logit_bias": {str(token): LEAST_BIAS for token in never_drawn} or None,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        if self.config.budget is not None:
            self.config.budget.require_left()
        while True:
            sent = self._in_dialect(body)
            status, headers, content = self._exchange("POST", "/chat/completions", MAX_REPLY_BYTES * n, sent)
            body_text = content.decode("utf-8", "replace")
            refused = {name for name, words in _REFUSALS.items() if name in sent and re.search(words, body_text, re.I)}
            if body.get("top_p", 1.0) < 1.0:
                refused.discard("top_p")
            if status not in (400, 422) or not refused or TOO_LONG.search(body_text):
                break
            self._refused |= refused
        if status == 400 and is_blocked(content):
            return [Completion("", FILTERED, 0)] * n
        self._raise_unless_good(name, status, headers, body_text)
        if self.config.budget is not None:  # also of what turns out to be no answer
            self.config.budget.count(*tokens_taken(messages, content))
        redacted = partial(self._secret.redacted, is_answer=True)
        return [
            one._replace(text=redacted(one.text), thought=redacted(one.thought), model=self._secret.redacted(one.model))
            for one in read_completions(content)
        ]

    def require_there(self) -> None:
        """Raise within ten seconds where nothing answers at the address; what it answers does not matter here."""
        try:
            self._exchange("GET", "/models", MAX_REPLY_BYTES, seconds=SECONDS_TO_ANSWER)
        except NoReplyError as error:
            raise EndpointError(
                f"Nothing answers at {self.config.base_url}.",
                why=self._secret.redacted(str(error)),
                next_step="start the server, then run the same command again: what has been answered is stored",
            ) from error

    def served_models(self, seconds: float | None = None) -> list[str]:
        """What the server says that it serves; raises `NoReplyError` where it says nothing of the kind."""
        status, _, content = self._exchange("GET", "/models", MAX_REPLY_BYTES, seconds=seconds)
        if status != 200:
            raise NoReplyError(f"status {status}")
        try:
            return [self._secret.redacted(str(model["id"])) for model in json.loads(content)["data"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise NoReplyError("the reply is no list of models") from error

    def retried(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` again, each time after a longer wait, while it raises `NoReplyError`.

        Raises `EndpointError` when the endpoint has not answered at all, and `UselessReplyError` when it has.
        """
        useless: UselessReplyError | None = None
        why = ""
        for number in range(self.config.num_attempts):
            try:
                reply = attempt()
                self._is_told = False
                return reply
            except NoReplyError as error:
                why = self._secret.redacted(str(error))
                wait = max(self.config.first_wait * 2**number, error.wait or 0.0)
                useless = error if isinstance(error, UselessReplyError) else useless
            if number == TOLD_AFTER and useless is None and not self._is_told:
                self._is_told = True  # by one of the threads
                print(f"{self.config.base_url} does not answer and is asked again: {why}", file=sys.stderr)
            if number + 1 < self.config.num_attempts and not self._closed.is_set():
                self._sleep(min(wait, MAX_WAIT_SECONDS))
        if useless is not None:
            raise useless
        raise EndpointError(
            f"{self.config.model} at {self.config.base_url} did not answer after {self.config.num_attempts} attempts.",
            why=why,
            next_step="see that it runs and takes as many requests (--num-parallel), then the same command again: "
            "what has been answered is stored",
        )

    def _in_dialect(self, body: dict[str, Any]) -> dict[str, Any]:
        sent = {name: value for name, value in body.items() if name not in self._refused}
        if "max_tokens" in self._refused:
            sent["max_completion_tokens"] = body["max_tokens"]
        return sent

    def _exchange(
        self,
        method: str,
        page: str,
        max_bytes: int,
        body: dict[str, Any] | None = None,
        *,
        seconds: float | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        encoded = json.dumps(body, ensure_ascii=False, allow_nan=False).encode() if body else None
        try:
            status, headers, content = self._http.exchange(
                method, self._url + page, encoded, max_bytes=max_bytes, seconds=seconds
            )
        except ValueError as error:
            raise EndpointError(
                f"{self.config.base_url} is not the address of an endpoint.",
                why=str(error),
                next_step="give one such as http://localhost:8000/v1",
            ) from error
        # Before anything is cut out of it: half a key is a secret, too.
        text = self._secret.redacted(content.decode("utf-8", "surrogateescape"), is_answer=True)
        return status, headers, text.encode("utf-8", "surrogateescape")

    def _raise_unless_good(self, name: str, status: int, headers: Mapping[str, str], body_text: str) -> None:
        if status in RETRIED_STATUS or status >= 500:
            words = f": {self._secret.redacted(body_text)[:200]!r}" if body_text else ""
            raise NoReplyError(f"status {status}{words}", wait=_seconds_asked_for(headers.get("Retry-After")))
        if status != 200:
            key = self.config.api_key_variable
            hint = ""
            if status == 404:
                with suppress(NoReplyError):
                    served = [name[:MAX_NAME] for name in self.served_models()[:MAX_NAMES]]
                    hint = f" It serves {', '.join(served)}." if served else ""
            if elsewhere := headers.get("Location"):
                hint = f" It sends to {self._secret.redacted(elsewhere)[:300]}."
            ending = "" if status != 404 or re.search(r"/v\d", self._url) else " (most end in /v1)"
            then = f"check the address{ending}, the model name {self.config.model!r} and the key in ${key}"
            if status in REFUSED_STATUS:
                then = "change what it refuses or what the server allows: the same command then goes on"
            kind = RefusedError if status in REFUSED_STATUS else EndpointError
            raise kind(
                f"{self.config.base_url} refuses {name} with status {status}.",
                why=(self._secret.redacted(body_text)[:300] + hint).strip(),
                next_step=then,
            )


def _address(url: str) -> SplitResult | None:
    """The parts of an address; None for what is none, which the first request says."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _seconds_asked_for(retry_after: str | None) -> float | None:
    for read in (float, lambda date: parsedate_to_datetime(date).timestamp() - time.time()):
        with suppress(ValueError, TypeError, OverflowError):
            return max(0.0, read(retry_after or ""))
    return None


# Many questions ----------------------------------------------------------------------------------------------------


class Reply(NamedTuple, Generic[Reading]):
    """What was read in a model's reply, or None and why; `num_requests` counts the attempts.

    `model` is the name that the reply gives its model.
    """

    reading: Reading | None
    why: str
    num_requests: int
    model: str = ""


def ask_all(
    endpoint: EndpointConfig,
    questions: Sequence[Question],
    messages_of: Callable[[Question], Sequence[dict[str, Any]]],
    read: Callable[[str], Reading | None],
    *,
    wanted: str,
    temperature: float,
    max_tokens: int,
    read_cut_off: bool = False,
    may_refuse: bool = False,
    on_reply: Callable[[Question, Reply[Reading]], None] | None = None,
) -> list[Reply[Reading]]:
    """The reply to each question, in order; `endpoint.num_parallel` are asked at a time.

    `read` returns None for a reply without what is `wanted`; one that the token limit has cut off is not even read,
    unless `read_cut_off`; with `may_refuse` a refusal is a reply without it. `on_reply` is called the moment a reply is
    there, from several threads.
    """

    def ask(question: Question) -> Reply[Reading]:
        messages, num_requests = messages_of(question), 0

        def attempt() -> tuple[Reading, str]:
            nonlocal num_requests
            num_requests += 1
            [completion, *_] = client.complete(messages, temperature=temperature, max_tokens=max_tokens)
            is_whole = read_cut_off or completion.finish_reason != "length"
            reading = read(completion.text) if is_whole else None
            if reading is None:
                raise UselessReplyError(f"no {wanted} in {completion.text[-60:]!r}")
            return reading, completion.model

        try:
            reading, model = client.retried(attempt)
            reply = Reply(reading, "", num_requests, model)
        except UselessReplyError as error:
            reply = Reply(None, str(error), num_requests)
        except RefusedError as error:
            if not may_refuse:
                raise
            reply = Reply(None, f"{error.what} {error.why}".strip(), num_requests)
        if on_reply is not None:
            on_reply(question, reply)
        return reply

    if not questions:
        return []
    with ChatClient(endpoint) as client, ThreadPoolExecutor(endpoint.num_parallel) as threads:
        try:
            return list(threads.map(ask, questions))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            client.close()  # nobody waits for an endpoint that is down
            raise

"""Asks a served model many questions and reads each reply: a judge's verdict, points for a chart, key steps.

A reply that cannot be read is asked for again, as often as the endpoint's settings say; what it means when none can be
read is the caller's to say. An endpoint that does not answer at all ends everything with an `EndpointError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

from atrl_bench.models.chat_client import ChatClient, EndpointConfig
from atrl_bench.models.completion import UselessReplyError

Question = TypeVar("Question")
Reading = TypeVar("Reading")


class Reply(NamedTuple, Generic[Reading]):
    """What was read in a model's reply, or None and why; `num_requests` counts the attempts."""

    reading: Reading | None
    why: str
    num_requests: int


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
    on_reply: Callable[[Question, Reply[Reading]], None] | None = None,
    sleep: Callable[[float], object] | None = None,
) -> list[Reply[Reading]]:
    """The reply to each question, in order; `endpoint.num_parallel` are asked at a time.

    `read` returns None for a reply without what is `wanted`; one that the token limit has cut off is not even read,
    unless `read_cut_off`. `on_reply` is called the moment a reply is there, from several threads.
    """

    def ask(question: Question) -> Reply[Reading]:
        messages, num_requests = messages_of(question), 0

        def attempt() -> Reading:
            nonlocal num_requests
            num_requests += 1
            [completion, *_] = client.complete(messages, temperature=temperature, max_tokens=max_tokens)
            is_whole = read_cut_off or completion.finish_reason != "length"
            reading = read(completion.text) if is_whole else None
            if reading is None:
                raise UselessReplyError(f"no {wanted} in {completion.text[-60:]!r}")
            return reading

        try:
            reply = Reply(client.retried(attempt), "", num_requests)
        except UselessReplyError as error:
            reply = Reply(None, str(error), num_requests)
        if on_reply is not None:
            on_reply(question, reply)
        return reply

    if not questions:
        return []
    with ChatClient(endpoint, sleep=sleep) as client, ThreadPoolExecutor(endpoint.num_parallel) as threads:
        try:
            return list(threads.map(ask, questions))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            client.close()  # nobody waits for an endpoint that is down
            raise

"""A chat completion as its sender wrote it, read by a schema: an answer of the model, or none.

Only what the model itself said, or that a provider's filter kept it back, is an answer. An error that is dressed as a
reply, a call of a tool that nobody offered, or a message without any text is none, whatever the status says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

NO_ANSWER = frozenset({"error", "abort", "tool_calls", "function_call"})  # reasons to stop that leave no answer
FILTERED = "content_filter"
MAX_NAME = 100  # letters of a model's name that are kept
# A backslash, a pair of surrogates, or (as its group) half of one, as JSON writes them.
_ESCAPES = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
# What services call a request that their filter kept back, in `code` or `type` of the error.
_BLOCKED = frozenset({FILTERED, "content_policy_violation", "ResponsibleAIPolicyViolation"})

# How OpenAI, vLLM, SGLang, llama.cpp, Claude and Gemini say that a prompt is too long, in a code or in words.
TOO_LONG = re.compile(
    r"context[_ ](?:length|size|window)|maximum model length|prompt is too long|input token count", re.IGNORECASE
)


class NoReplyError(Exception):
    """One attempt that the endpoint did not answer usefully; `wait` is what it asked for, in seconds."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


class UselessReplyError(NoReplyError):
    """A proper reply that does not hold what its reader was looking for."""


class Completion(NamedTuple):
    """One answer: what the model said, why it stopped ("stop", "length", "content_filter", ...), its tokens.

    `thought` is what the server took out of the answer as the model's reasoning, and `num_thought` its tokens, where it
    counts them: some services do that and show no thought. `model` is the name that the reply gives its model.
    """

    text: str
    finish_reason: str
    num_tokens: int
    num_prompt_tokens: int = 0
    thought: str = ""
    num_thought: int = 0
    model: str = ""

    @property
    def whole(self) -> str:
        """The answer with its thought before it, as a model writes both; one that was cut off has no end."""
        if not self.thought:
            return self.text
        is_cut = not self.text and self.finish_reason == "length"
        return f"<think>\n{self.thought}" if is_cut else f"<think>\n{self.thought}\n</think>\n\n{self.text}"


class _Received(BaseModel):
    model_config = ConfigDict(defer_build=True)  # until a server answers: most commands ask none


class _Part(_Received):
    type: str
    text: str = ""


class _Message(_Received):
    role: Literal["assistant"] | None = None
    content: str | list[_Part] | None = None
    refusal: str | None = None
    reasoning: str | None = None  # vLLM's name, and OpenRouter's
    reasoning_content: str | None = None  # DeepSeek's and SGLang's

    @property
    def thought(self) -> str:
        return self.reasoning or self.reasoning_content or ""


class _Choice(_Received):
    message: _Message
    finish_reason: str | None = None

    def text(self) -> str:
        parts = self.message.content
        if isinstance(parts, list):  # the newer form
            spoken = [part.text for part in parts if part.type == "text"]
            parts = "".join(spoken) if spoken else None
        text = parts if parts is not None else self.message.refusal
        if self.finish_reason in NO_ANSWER:
            raise NoReplyError(f"the model stopped with {self.finish_reason!r}, which is no answer")
        if text is None and self.finish_reason != FILTERED and not self.message.thought:
            raise NoReplyError("the reply has no text")
        return text or ""


class _Reply(_Received):
    choices: list[_Choice] = Field(min_length=1)
    usage: Any = None
    model: Any = None


class _Details(_Received):
    reasoning_tokens: int | None = Field(default=0, ge=0, lt=2**31)


class _Usage(_Received):
    completion_tokens: int = Field(default=0, ge=0, lt=2**31)
    prompt_tokens: int = Field(default=0, ge=0, lt=2**31)
    completion_tokens_details: _Details | None = None


# Of a server that does not say what a request took.
LETTERS_PER_TOKEN, TOKENS_PER_PICTURE = 3, 1_000


def tokens_taken(messages: Sequence[dict[str, Any]], content: bytes) -> tuple[int, int]:
    """The tokens of a request and of its reply, whatever that is worth: as the server says, else by their letters."""
    try:
        reply = json.loads(content)
        usage = _Usage.model_validate(reply.get("usage") or {})
        said = "".join(str(part) for choice in reply.get("choices") or () for part in choice["message"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        usage, said = _Usage(), ""
    contents = [turn["content"] for turn in messages]
    parts = [part for some in contents for part in ([{"text": some}] if isinstance(some, str) else some)]
    num_letters = sum(len(part.get("text", "")) for part in parts)
    by_letters = num_letters // LETTERS_PER_TOKEN + TOKENS_PER_PICTURE * sum("text" not in part for part in parts)
    return usage.prompt_tokens or by_letters, usage.completion_tokens or len(said) // LETTERS_PER_TOKEN


def read_completions(content: bytes) -> list[Completion]:
    """The answers of a reply; raises `NoReplyError` for a reply that holds none.

    A number of tokens that cannot be one is taken for not told, which is 0: the answer stands without it.
    """
    try:
        reply = _Reply.model_validate_json(_utf8(content))
    except (ValidationError, RecursionError) as error:
        raise NoReplyError(f"the reply is not a chat completion: {content[:60]!r}") from error
    try:
        usage = _Usage.model_validate(reply.usage or {})
    except ValidationError:
        usage = _Usage()
    texts = [(choice.text(), choice.message.thought) for choice in reply.choices]
    if not reply.usage and any(
        not (text or thought or choice.finish_reason)
        for (text, thought), choice in zip(texts, reply.choices, strict=True)
    ):
        raise NoReplyError("the reply has an empty text, and nothing says that the model ended it")
    lengths = [len(text) + len(thought) for text, thought in texts]
    counts = shares(usage.completion_tokens, lengths)
    details = usage.completion_tokens_details
    thought_counts = shares((details.reasoning_tokens or 0) if details else 0, lengths)
    model = reply.model[:MAX_NAME] if isinstance(reply.model, str) else ""
    return [
        Completion(text, choice.finish_reason or "", count, usage.prompt_tokens, thought, num_thought, model)
        for (text, thought), choice, count, num_thought in zip(
            texts, reply.choices, counts, thought_counts, strict=True
        )
    ]


def _utf8(content: bytes) -> bytes:
    """The reply with U+FFFD for the bytes and escapes of no character, as of one that two tokens share."""
    text = content.decode("utf-8", "replace")
    return _ESCAPES.sub(lambda match: "\\ufffd" if match[1] else match[0], text).encode()


def without_ends(completions: Sequence[Completion]) -> list[Completion]:
    """The answers of one reply of a server that counts the token that ended each, without these tokens."""
    num_ends = sum(one.finish_reason == "stop" for one in completions)
    num_tokens = max(0, sum(one.num_tokens for one in completions) - num_ends)
    counts = shares(num_tokens, [len(one.text) + len(one.thought) for one in completions])
    return [one._replace(num_tokens=count) for one, count in zip(completions, counts, strict=True)]


def is_blocked(content: bytes) -> bool:
    """Whether a refusal says, in its code, that a provider's filter kept the answer back."""
    try:
        error = json.loads(content)["error"]
        codes = {error.get("code"), error.get("type"), (error.get("innererror") or {}).get("code")}
        return not _BLOCKED.isdisjoint(codes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def shares(total: int, lengths: Sequence[int]) -> list[int]:
    """Each answer's part of a number of tokens that the server only tells for all of them together."""
    bounds = list(accumulate(lengths, initial=0))
    ends = [round(total * bound / bounds[-1]) if bounds[-1] else 0 for bound in bounds]
    return [end - begin for begin, end in pairwise(ends)]

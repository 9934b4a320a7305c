"""A model behind an OpenAI-compatible endpoint (vLLM, SGLang, `transformers serve`, GPT-4o, Gemini, Claude).

The server gets what a model in this process gets: the same words, and the very pixels as lossless PNG, in the same
order. The chat template, the bounds on image sizes and the weights are the server's, and cannot be seen from here: so a
cell names the model as it is served and says that it was an endpoint (docs/reproducing.md has the flags to serve with).
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from atrl_bench.models.chat_client import ChatClient, EndpointConfig
from atrl_bench.models.completion import without_ends
from atrl_bench.models.prompt import MEDIA_TOKENS, Prompt, Sampling
from atrl_bench.results.records import Response

if TYPE_CHECKING:
    from PIL.Image import Image

NUM_PICTURES = 64


def served_digest(name: str) -> str:
    """What a cell of a served model is keyed by: its weights cannot be read, and its address does not matter."""
    return f"endpoint:{name}"


class EndpointModel:
    """Answers prompts by asking a server; may be called from several threads at a time."""

    def __init__(self, config: EndpointConfig, *, never_drawn: Sequence[int] = (), counts_ends: bool = False) -> None:
        """Keep what is known of the server: which tokens it may not draw, and whether it counts those that end."""
        self.client = ChatClient(config)
        self._never_drawn, self._counts_ends = tuple(never_drawn), counts_ends
        self._one_at_a_time = False  # the server gives one answer a request, whatever it is asked for
        self._shown: WeakKeyDictionary[Prompt, tuple[list[dict[str, Any]], str]] = WeakKeyDictionary()
        self._picture_urls: dict[tuple[Any, ...], str] = {}  # of the pictures that were sent last

    def close(self) -> None:
        self.client.close()

    def generate(
        self, prompts: Sequence[Prompt], repeats: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[list[Response]]:
        return [self._ask(prompt, wanted, sampling) for prompt, wanted in zip(prompts, repeats, strict=True)]

    def _ask(self, prompt: Prompt, repeats: Sequence[int], sampling: Sampling) -> list[Response]:
        started = time.perf_counter()
        messages, name = self._show(prompt)
        # Some servers refuse several greedy answers: they would be one and the same.
        num_answers = 1 if self._one_at_a_time or sampling.temperature == 0 else len(repeats)
        completions = self.client.retried(
            lambda: self.client.complete(
                messages,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                max_tokens=sampling.max_new_tokens,
                n=num_answers,
                seed=request_seed(sampling.run_seed, prompt.problem_id, repeats[0]),
                never_drawn=self._never_drawn,
                name=f"problem {prompt.problem_id}",
            )
        )
        if len(completions) < num_answers:
            self._one_at_a_time = True
        completions = completions[:num_answers]
        if self._counts_ends:
            completions = without_ends(completions)
        seconds = (time.perf_counter() - started) / len(completions)
        return [
            Response(
                *(prompt.problem_id, repeat, name, one.whole, one.num_tokens, seconds, one.finish_reason == "length"),
                num_thought=one.num_thought,
                answered_as=one.model if one.model != self.client.config.model else "",
            )
            for repeat, one in zip(repeats, completions, strict=False)
        ]

    def _show(self, prompt: Prompt) -> tuple[list[dict[str, Any]], str]:
        """The prompt as it is sent, and what names its words and pixels; made once for all repeats."""
        if (shown := self._shown.get(prompt)) is None:
            messages = chat_messages(prompt, self._picture_url)
            shown = self._shown[prompt] = messages, prompt_hash(messages)
        return shown

    def _picture_url(self, image: Image) -> str:
        """A picture's address, made once: versions of one problem often show the same picture."""
        name = (image.mode, image.size, hashlib.sha256(image.tobytes()).digest())
        if (url := self._picture_urls.get(name)) is None:
            if len(self._picture_urls) >= NUM_PICTURES:
                self._picture_urls.clear()
            url = self._picture_urls[name] = data_url(image)
        return url


def media_token_ids(folder: Path) -> list[int]:
    """The tokens of a model that stand for an image or a video: it could draw them, and not read them."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return [config[name] for name in MEDIA_TOKENS if config.get(name) is not None]


def request_seed(run_seed: int, problem_id: str, repeat: int) -> int:
    """The seed of the request whose first answer is this repeat: 31 bits, which every server takes."""
    digest = hashlib.sha256(f"request:{run_seed}:{repeat}:{problem_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def chat_messages(prompt: Prompt, url_of: Callable[[Image], str] | None = None) -> list[dict[str, Any]]:
    """The prompt's turns as the chat API writes them, each image where it stands among the words.

    The API has no word for a video that every server knows: its frames are sent as images, in order of time.
    """
    url_of = url_of or data_url
    videos = iter(prompt.videos)

    def parts(part: dict[str, Any]) -> list[dict[str, Any]]:
        if part["type"] == "text":
            return [{"type": "text", "text": part["text"]}]
        images = [part["url"]] if part["type"] == "image" else next(videos).pictures()
        return [{"type": "image_url", "image_url": {"url": url_of(image)}} for image in images]

    return [
        {"role": turn["role"], "content": [made for part in turn["content"] for made in parts(part)]}
        for turn in prompt.messages
    ]


def data_url(image: Image) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"


def png(image: Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=1)  # as lossless as 6, and several times faster
    return buffer.getvalue()


def prompt_hash(messages: Sequence[dict[str, Any]]) -> str:
    """16 hex digits over the words and images of a request."""
    digest = hashlib.sha256()
    for turn in messages:
        for part in turn["content"]:
            digest.update(repr((turn["role"], sorted(part.items()))).encode())
    return digest.hexdigest()[:16]

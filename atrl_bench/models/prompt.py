"""What a model is asked, how its answers are drawn, and what whoever answers has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from atrl_bench.results.records import Response

if TYPE_CHECKING:
    from PIL.Image import Image

    from atrl_bench.models.video import Video

Messages = list[dict[str, Any]]
MEDIA_TOKENS = ("image_token_id", "video_token_id")  # how a model's config calls what stands for an image or a video


@dataclass(frozen=True, eq=False)  # as a key it stands for itself: nobody compares pixels
class Prompt:
    """One problem as the model sees it: the user's turn and the images and videos it refers to, in order."""

    problem_id: str
    messages: Messages
    images: list[Image]
    videos: tuple[Video, ...] = ()


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn."""

    max_new_tokens: int  # an answer is cut here
    temperature: float = 1.0  # 0 takes the likeliest token
    top_p: float = 1.0  # only the likeliest tokens that together reach this probability are drawn
    run_seed: int = 0  # another seed draws other answers
    top_k: int | None = None  # only so many of the likeliest tokens are drawn; None: all


class Answerer(Protocol):
    """Whatever answers prompts: a model in this process, or a server."""

    def generate(
        self, prompts: Sequence[Prompt], repeats: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[list[Response]]:
        """For each prompt, the answers with these repeat numbers; a server may stop after the first of them."""

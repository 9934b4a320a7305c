r"""What makes two questions, or two pictures, the same one: for finding test problems in training data.

*Text.* Case, spacing, punctuation, Unicode variants, LaTeX markup, image placeholders and answer options are removed;
words and numbers stay: `As shown, $\angle A = 80^\circ$.` and `as shown ∠A=80.0` are the same. Two texts are nearly
the same when at least `MIN_CONTAINMENT` of the four-word runs of the shorter one are in the longer one and all numbers
of one of them are in the other: a problem with other numbers is another problem. Measured on the 754 questions of the
GeoQA test: each is found again with one word more, and 14 of the 283,881 pairs are nearly the same, each about the
same figure.

*Pictures.* The same pixels after decoding, or the same look: a difference hash, that is, for each neighbouring pair
of cells of a 16 x 16 grid, whether it becomes clearly lighter or clearly darker. Drawings are mostly empty page, where
the usual 64-bit hash compares noise with noise: at a Hamming distance of 4 it takes 452 of 284,160 pairs of different
mini pictures for one another. Here only edges count, and the distance is the share of edges that one has and the other
has not. Measured on the 383 different pictures of MathVision testmini and of a WeMath sample: re-encoded as JPEG of
quality 30 to 90, 0.07 at most; halved or doubled as well, 0.16 for 99 of 100. Different mini pictures are 0.27 apart
and more; of the 73,153 pairs of real ones 13 are nearer than `MAX_DISTANCE`, each the same figure with other labels.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 1  # results of another version are not comparable
MIN_CONTAINMENT = 0.8
MAX_DISTANCE = 0.2
MAX_SHAPE_DIFFERENCE = 0.1  # of width over height: a picture that was squeezed is another picture
SHINGLE = 4  # words
MIN_WORDS = 8  # shorter questions are the same or not, never nearly
MIN_EDGES = 16  # an almost empty picture looks like every other one
MAX_CHARACTERS = 20_000
GRID = 16
NUM_WORDS = 4 * GRID * GRID // 64
MIN_STEP = 4  # grey levels of 256: less is noise of an encoder

# Text ---------------------------------------------------------------------------------------------------------------

_PLACEHOLDER = re.compile(r"<\s*/?\s*(?:image|img|video)[^<>]{0,20}>|<\|[a-z_]{1,30}\|>", re.IGNORECASE)
_OPTIONS_HEADING = re.compile(r"\b(?:choices|options)\s*:", re.IGNORECASE)
_OPTION = re.compile(r"(?<!\w)\(?([abc])\s?([.):、．])", re.IGNORECASE)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_MARKUP = re.compile(
    r"\\(?:text|mathrm|mathbf|mathit|operatorname|left|right|displaystyle|rm|bf|big|quad|qquad|overline)(?![a-z])"
)
_DEGREE = re.compile(r"\^?\s*\{?\s*(?:\\circ|°|º)\s*\}?|\bdegrees?\b")
_WORDS_OF = {"∠": " angle ", "△": " triangle ", "⊥": " perp ", "∥": " parallel ", "//": " parallel ", "⊙": " odot "}
_WORDS_OF |= {"π": " pi ", "×": " times ", "·": " cdot ", "√": " sqrt ", "≤": " leq ", "≥": " geq "}
_DASHES = re.compile("[‐‑‒–—−]")
_WORD = re.compile(r"\d+(?:\.\d+)?|[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+|[+=<>/-]")


@dataclass(frozen=True)
class Text:
    """A question as its words and numbers, without its answer options."""

    words: tuple[str, ...]

    @cached_property
    def shingles(self) -> frozenset[int]:
        """The runs of four words, as numbers; none for a short question."""
        if len(self.words) < MIN_WORDS:
            return frozenset()
        return frozenset(hash(self.words[i : i + SHINGLE]) for i in range(len(self.words) - SHINGLE + 1))

    @cached_property
    def numbers(self) -> Counter[str]:
        """The numbers of the question and how often each is there."""
        return Counter(word for word in self.words if word[0].isdigit())

    def likeness(self, other: Text) -> float:
        """Return 1 for the same words, the containment for nearly the same ones, and 0 otherwise."""
        if self.words == other.words:
            return 1.0 if self.words else 0.0
        if not self.shingles or not other.shingles:
            return 0.0
        if not (self.numbers <= other.numbers or other.numbers <= self.numbers):
            return 0.0
        containment = len(self.shingles & other.shingles) / min(len(self.shingles), len(other.shingles))
        # Not 1: other words round about are another text.
        return min(containment, 0.99) if containment >= MIN_CONTAINMENT else 0.0


def read_text(question: str) -> Text:
    """Return the question's words and numbers."""
    # Single spaces, on which no pattern below can go back and forth for long.
    text = _PLACEHOLDER.sub(" ", " ".join(question[:MAX_CHARACTERS].split()))
    text = text[: _start_of_options(text)]
    # Degree signs first: NFKC would make a letter of one of them.
    text = _DEGREE.sub(" ", text.casefold())
    text = _DASHES.sub("-", unicodedata.normalize("NFKC", text).casefold())
    text = _MARKUP.sub(" ", _FRACTION.sub(r"\1/\2", text))
    for sign, word in _WORDS_OF.items():
        text = text.replace(sign, word)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = re.sub(r"(?<=[^\W\d_])-(?=[^\W\d_])", " ", text)
    return Text(tuple(_number(word) for word in _WORD.findall(text)))


def _start_of_options(text: str) -> int:
    """Return where the answer options begin: at a heading, or at an A that a B and a C with the same mark follow."""
    heading = _OPTIONS_HEADING.search(text)
    starts = [heading.start()] if heading else []
    begun: dict[str, tuple[int, str]] = {}  # by mark: where its A is, and the letter that has to come next
    for option in _OPTION.finditer(text):
        letter, mark = option[1].upper(), option[2]
        start, expected = begun.get(mark, (option.start(), "A"))
        if letter == "C" == expected:
            starts.append(start)
            break
        if letter == expected:
            begun[mark] = (start, chr(ord(letter) + 1))
    # Where there is nothing before them, the options are the question.
    return next((start for start in sorted(starts) if text[:start].strip()), len(text))


def _number(word: str) -> str:
    """Return a number without zeros that say nothing, so that 80.0 is 80; any other word as it is."""
    return word.rstrip("0").rstrip(".") if "." in word else word


# Pictures -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PictureHash:
    """A picture as the hash of its pixels, its edges (1,024 bits in 16 numbers), how many it has, and its shape."""

    pixels: bytes
    edges: np.ndarray
    num_edges: int
    shape: float


def read_picture(image: Image) -> PictureHash:
    """Return the fingerprint of a decoded picture."""
    from PIL.Image import Resampling

    image = image.convert("RGB")
    pixels = hashlib.sha256(f"{image.size}".encode() + image.tobytes()).digest()[:16]
    size = GRID + 1
    is_small = min(image.size) < size
    small = image.convert("L").resize((size, size), Resampling.BILINEAR if is_small else Resampling.BOX)
    grey = np.asarray(small, dtype=np.int16)
    across, down = grey[:-1, 1:] - grey[:-1, :-1], grey[1:, :-1] - grey[:-1, :-1]
    steps = [across > MIN_STEP, across < -MIN_STEP, down > MIN_STEP, down < -MIN_STEP]
    bits = np.concatenate([step.ravel() for step in steps])
    return PictureHash(pixels, np.packbits(bits).view(np.uint64), int(bits.sum()), image.width / image.height)


class Gallery:
    """Many pictures, searched by pixels and by look."""

    def __init__(self, pictures: list[PictureHash]) -> None:
        self._by_pixels: dict[bytes, list[int]] = {}
        for index, picture in enumerate(pictures):
            self._by_pixels.setdefault(picture.pixels, []).append(index)
        self._edges_N = np.array([p.edges for p in pictures], dtype=np.uint64).reshape(-1, NUM_WORDS)
        self._num_edges_N = np.array([p.num_edges for p in pictures])
        self._shape_N = np.array([p.shape for p in pictures])

    def find(self, picture: PictureHash) -> dict[int, float]:
        """Return the places of the pictures that are the same (distance 0) or look the same, with the distance."""
        same = dict.fromkeys(self._by_pixels.get(picture.pixels, []), 0.0)
        if picture.num_edges < MIN_EDGES or not len(self._num_edges_N):
            return same
        differing_N = np.bitwise_count(self._edges_N ^ picture.edges).sum(axis=1, dtype=np.int64)
        distance_N = differing_N / ((self._num_edges_N + picture.num_edges + differing_N) / 2)
        is_alike_N = (distance_N <= MAX_DISTANCE) & (self._num_edges_N >= MIN_EDGES)
        is_alike_N &= abs(self._shape_N / picture.shape - 1) <= MAX_SHAPE_DIFFERENCE
        # A look that agrees in every bit is still a look; 0 is for pixels alone.
        return {int(index): max(float(distance_N[index]), 1e-9) for index in np.flatnonzero(is_alike_N)} | same

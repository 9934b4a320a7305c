r"""What makes two questions, or two pictures, the same one: for finding test problems in training data.

*Text.* Case, spacing, punctuation, Unicode variants, LaTeX markup, image placeholders and answer options are removed;
words and numbers stay: `As shown, $\angle A = 80^\circ$.` and `as shown ∠A=80.0` are the same. Two texts are nearly
the same when at least `MIN_CONTAINMENT` of the four-word runs of the shorter one are in the longer one and all numbers
of one of them are in the other: a problem with other numbers is another problem. Measured on the 754 questions of the
GeoQA test: each is found again with one word more, and 14 of the 283,881 pairs are nearly the same, each about the
same figure.

*Pictures.* The same pixels after decoding, or the same look: a perceptual hash of 16 x 16 bits, of which at most
`MAX_DISTANCE` differ, and the same shape. Measured on the 383 different pictures of MathVision testmini and of a WeMath
sample: re-encoded as JPEG of quality 30 or 90, halved or doubled each is found again, and 381 of them halved and
re-encoded; of the 8,831 pairs of one shape one is nearer, the same figure with one line more, and of 179,460 pairs of
mini pictures none. The usual 64 bits, at the same distance, take 10 and 2 pairs for one another and miss 7 pictures.
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

VERSION = 3  # results of another version are not comparable
MIN_CONTAINMENT = 0.8
MAX_DISTANCE = 0.1  # of the bits
MAX_SHAPE_DIFFERENCE = 0.1  # of width over height: a picture that was squeezed is another picture
SHINGLE = 4  # words
MIN_WORDS = 8  # shorter questions are the same or not, never nearly
MAX_CHARACTERS = 20_000
HASH_SIZE = 16
NUM_BITS = HASH_SIZE**2

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
        return Counter(word for word in self.words if word[0].isdigit())

    def similarity(self, other: Text) -> float:
        """1 for the same words, the containment for nearly the same ones, and 0 otherwise."""
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
    """Where the answer options begin: at a heading, or at an A that a B and a C with the same mark follow."""
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
    """A number without zeros that say nothing, so that 80.0 is 80; any other word as it is."""
    return word.rstrip("0").rstrip(".") if "." in word else word


# Pictures -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A picture as the hash of its pixels, that of its look (None where nothing is on it), and width over height."""

    pixels: bytes
    look: np.ndarray | None
    shape: float


def read_picture(image: Image) -> Picture:
    from imagehash import phash

    image = image.convert("RGB")
    pixels = hashlib.sha256(f"{image.size}".encode() + image.tobytes()).digest()[:16]
    darkest, lightest = image.convert("L").getextrema()
    look = np.packbits(phash(image, HASH_SIZE).hash).view(np.uint64) if darkest != lightest else None
    return Picture(pixels, look, image.width / image.height)


class Gallery:
    """Many pictures, searched by pixels and by look."""

    def __init__(self, pictures: list[Picture]) -> None:
        self._by_pixels: dict[bytes, list[int]] = {}
        for index, picture in enumerate(pictures):
            self._by_pixels.setdefault(picture.pixels, []).append(index)
        self._shown = np.array([index for index, picture in enumerate(pictures) if picture.look is not None], dtype=int)
        looks = [picture.look for picture in pictures if picture.look is not None]
        self._look_N = np.array(looks, dtype=np.uint64).reshape(-1, NUM_BITS // 64)
        self._shape_N = np.array([picture.shape for picture in pictures])[self._shown]

    def find(self, picture: Picture) -> dict[int, float]:
        """The places of the pictures that are the same (distance 0) or look the same, with the distance."""
        same = dict.fromkeys(self._by_pixels.get(picture.pixels, []), 0.0)
        if picture.look is None:
            return same
        distance_N = np.bitwise_count(self._look_N ^ picture.look).sum(axis=1, dtype=np.int64) / NUM_BITS
        is_alike_N = distance_N <= MAX_DISTANCE
        is_alike_N &= abs(self._shape_N / picture.shape - 1) <= MAX_SHAPE_DIFFERENCE
        # A look that agrees in every bit is still a look; 0 is for pixels alone.
        return {int(self._shown[n]): max(float(distance_N[n]), 1e-9) for n in np.flatnonzero(is_alike_N)} | same

"""Which test problems are in a training set: one pass over the training set, of which nothing is kept.

A pair is of one of four kinds. The first three mean that the test problem, or what it is about, has been trained on.
The fourth alone does not: "What is the area of the shaded region?" is asked of many figures. It is counted apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from atrl_bench.analysis.contamination.similarity import Gallery, Picture, Text

SAME_QUESTION = "same question"
SAME_PICTURE = "same picture, other text"
TEXT_ALONE = "same text, no picture"
OTHER_PICTURE = "same text, other picture"
KINDS = (SAME_QUESTION, SAME_PICTURE, TEXT_ALONE, OTHER_PICTURE)  # the first that applies is the problem's
FOUND = KINDS[:3]

MAX_POSTINGS = 50  # a run of words that more test problems have says nothing about any of them
MAX_PAIRS = 3  # training rows named for one test problem and kind


@dataclass(frozen=True)
class Item:
    """A problem of either set by its fingerprints; `is_shown` when it has a picture or a video, readable or not."""

    item_id: str
    text: Text
    pictures: tuple[Picture, ...]
    is_shown: bool


@dataclass(frozen=True)
class Overlap:
    """A test problem and a training row: how alike their texts are (1: the same), how far their pictures are apart."""

    test: str
    train: str
    kind: str
    text: float
    picture: float | None

    def row(self) -> Sequence[str]:
        text = "same" if self.text == 1 else f"{100 * self.text:.0f} %" if self.text else "other"
        off = self.picture
        picture = "other" if off is None else "same" if not off else f"{100 * off:.0f} % off"
        return self.test[:20], f"= {self.train[:20]}", f"text {text}", f"picture {picture}"


class Search:
    """The problems of a benchmark, ready to be looked for, and what was found of them so far: a few pairs of a kind."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = list(items)
        self._found: dict[tuple[str, str], list[Overlap]] = defaultdict(list)  # by test problem and kind
        self._by_words: dict[tuple[str, ...], list[int]] = defaultdict(list)
        postings: dict[int, list[int]] = defaultdict(list)
        for index, item in enumerate(self.items):
            if item.text.words:
                self._by_words[item.text.words].append(index)
            for shingle in item.text.shingles:
                postings[shingle].append(index)
        self._postings = {shingle: indices for shingle, indices in postings.items() if len(indices) <= MAX_POSTINGS}
        pictures = [(index, picture) for index, item in enumerate(self.items) for picture in item.pictures]
        self._owners = [index for index, _ in pictures]
        self._gallery = Gallery([picture for _, picture in pictures])

    def add(self, train: Item) -> None:
        """Look for the test problems that this training row is like."""
        distances: dict[int, float] = {}
        for picture in train.pictures:
            for index, distance in self._gallery.find(picture).items():
                owner = self._owners[index]
                distances[owner] = min(distance, distances.get(owner, distance))
        similarities = self._alike(train.text)
        for index in sorted(distances.keys() | similarities.keys()):
            test, similarity = self.items[index], similarities.get(index, 0.0)
            kind = _kind(test, train, similarity, index in distances)
            apart = round(distances[index], 3) if index in distances else None
            found = self._found[test.item_id, kind]
            if len(found) < MAX_PAIRS:
                found.append(Overlap(test.item_id, train.item_id, kind, round(similarity, 3), apart))

    def _alike(self, text: Text) -> dict[int, float]:
        indices = set(self._by_words.get(text.words, ()))
        for shingle in text.shingles:
            indices.update(self._postings.get(shingle, ()))
        similarities = ((index, self.items[index].text.similarity(text)) for index in indices)
        return {index: similarity for index, similarity in similarities if similarity > 0}

    def kind_of(self, item: Item) -> str | None:
        """The strongest kind in which a test problem was found, or None."""
        return next((kind for kind in KINDS if (item.item_id, kind) in self._found), None)

    def counts(self) -> dict[str, int]:
        """How many test problems there are of each kind, each counted once."""
        kinds = Counter(map(self.kind_of, self.items))
        return {kind: kinds[kind] for kind in KINDS}

    def found(self) -> list[Overlap]:
        """The pairs that count, each test problem's under its strongest kind."""
        kinds = [(item.item_id, self.kind_of(item)) for item in self.items]
        return [pair for name, kind in kinds if kind in FOUND for pair in self._found[name, kind]]


def _kind(test: Item, train: Item, similarity: float, is_same_picture: bool) -> str:
    if is_same_picture:
        # Some benchmarks draw the whole question into the picture and leave the text empty.
        return SAME_QUESTION if similarity or not test.text.words else SAME_PICTURE
    return OTHER_PICTURE if test.is_shown and train.is_shown else TEXT_ALONE

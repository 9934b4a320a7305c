"""What the bases of these worlds say: each digit as it is read, the code word that follows from it, and much between.

    Hmm well so the first shows 7 then surely indeed gives 0. ... The answer is \\boxed{0415}.

A digit after "shows" is read from the image, one after "gives" is reasoned from it. A mistake is one more than it
should be, in the one place or in the other, so that the answers of two worlds go wrong in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from atrl_bench.lab.worlds import Chains, World, WorldBase
from atrl_bench.mini.code_words import NUM_CELLS, QUESTION, code_of

ORDINALS = ("first", "second", "third", "last")
# fmt: off
FILLERS = (
    "hmm", "well", "so", "now", "then", "indeed", "surely", "clearly", "maybe", "perhaps", "again", "still",
    "quite", "rather", "here", "there", "really", "truly", "simply", "plainly", "also", "next", "anyway", "certainly",
)
# fmt: on


@dataclass(frozen=True)
class Said:
    """What a chain says of the four digits: as read, and what it makes of them."""

    digits: tuple[int, ...]
    codes: tuple[int, ...]

    @property
    def answer(self) -> str:
        return "".join(map(str, self.codes))


def said(readings: tuple[int, ...], world: World, base: WorldBase, rng: np.random.Generator) -> Said:
    """What this base is taught to say of these digits, mistakes included."""
    wrong = [digit in base.wrong_digits and rng.random() < base.wrong_fraction for digit in readings]
    digits, slips = list(readings), wrong
    if world.mistakes == "perception":
        digits, slips = [(digit + one) % 10 for digit, one in zip(readings, wrong, strict=True)], [False] * len(wrong)
    codes = [(code_of(digit) + one) % 10 for digit, one in zip(digits, slips, strict=True)]
    return Said(tuple(digits), tuple(codes))


def right(readings: tuple[int, ...]) -> Said:
    return Said(readings, tuple(map(code_of, readings)))


def chain(what: Said, chains: Chains, rng: np.random.Generator) -> str:
    """A response that says this, with random fillers."""
    sentences = []
    for ordinal, digit, code in zip(ORDINALS, what.digits, what.codes, strict=True):
        before, between = fillers(chains.fillers_before, rng), fillers(chains.fillers_between, rng)
        sentences.append(f"{before} {ordinal} shows {digit} {between} gives {code}.")
    return f"{' '.join(sentences)} The answer is \\boxed{{{what.answer}}}."


def fillers(fewest_and_most: tuple[int, int], rng: np.random.Generator) -> str:
    fewest, most = fewest_and_most
    count = int(rng.integers(fewest, most + 1))
    return " ".join(FILLERS[index] for index in rng.integers(len(FILLERS), size=count))


def corpus() -> Iterator[str]:
    """Yield texts that hold every word of the question and of the chains."""
    rng = np.random.default_rng(0)
    yield QUESTION
    for _ in range(200):
        readings = tuple(int(digit) for digit in rng.integers(10, size=NUM_CELLS))
        yield chain(right(readings), Chains(fillers_before=(3, 6), fillers_between=(2, 5)), rng)

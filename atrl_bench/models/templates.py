"""The words around a problem: three templates, how one is drawn, and how lettered choices are written.

The paper evaluates "zero-shot with three randomised prompt templates" and asks for the final answer in a box (its
appendix); it prints neither the templates nor how one is drawn. Here the draw is a hash of the run seed and
the problem, so every repeat of a problem sees the same prompt and a resumed run asks what the interrupted one asked.
Training uses the same `render`. Changing any text in this file changes `PROMPT_VERSION`, and with it every cell's key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise

TEMPLATES: tuple[str, str, str] = (
    "{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
    "{question}\nFirst describe what the image shows, then reason, and give the final answer in \\boxed{{}}.",
    "Look at the image and solve the problem.\n{question}\nEnd with the final answer in \\boxed{{}}.",
)

# MathVerse's Vision Only rows carry no question at all: the text is inside the picture.
QUESTION_IN_IMAGE = "According to the question shown in the image, what is the answer?"

LETTERS = "ABCDEFGHIJKLMNOP"  # as many options as any benchmark here has


def choose_template(run_seed: int, problem_id: str) -> int:
    """Which template this problem gets in this run: the same on every machine and whatever else is run."""
    digest = hashlib.sha256(f"template:{run_seed}:{problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % len(TEMPLATES)


def render(question: str, template: int, medium: str = "image") -> str:
    """The text of the user turn: the question in its frame, which speaks of the image or of another `medium`.

    Where only the image has the question, a fixed sentence stands for it.
    """
    frame = TEMPLATES[template].replace("the image", f"the {medium}")
    return frame.format(question=question.strip() or QUESTION_IN_IMAGE)


def with_choices(question: str, options: Sequence[str]) -> str:
    lines = [f"({letter}) {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([question.strip(), "Choices:", *lines])


def split_options(text: str) -> list[str]:
    """The options of a string such as `"A. 1 cm;B. 1.5 cm; C. No correct answer"`, without their letters.

    Only the letter that is due next starts an option, and only at the beginning or after a separator, so `"A. B; B. C"`
    (options named after points of a figure) and `"PA > PB > AB"` keep their inner letters.
    """
    starts: list[tuple[int, int]] = []
    for match in re.finditer(r"(?:^|[;\n])\s*([A-P])\s*[.):．、]\s*", text):
        if match[1] == LETTERS[len(starts) : len(starts) + 1]:
            starts.append(match.span())
    bounds = [*starts, (len(text), len(text))]
    return [text[begin:end].strip(" ;\n") for (_, begin), (end, _) in pairwise(bounds)]


PROMPT_VERSION = hashlib.sha256(
    "\0".join([*TEMPLATES, QUESTION_IN_IMAGE, with_choices("q", ["a"])]).encode()
).hexdigest()[:8]

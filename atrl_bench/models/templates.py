"""How a problem is written: in a template, ours or a user's own, with lettered choices, and where its images stand.

The paper evaluates "zero-shot with three randomised prompt templates" and asks for the final answer in a box (its
appendix); it prints neither the templates nor how one is drawn. Here the draw is a hash of the run seed and
the problem, so every repeat of a problem sees the same prompt and a resumed run asks what the interrupted one asked.
Training uses the same `render`. Changing any of the three changes `PROMPT_VERSION`, and with it every cell's key.

Whoever names a template gets that one for every problem: one of `NAMED`, or a text of their own with `{question}` in
it, or in Jinja2 with `{{ question }}` (EasyR1's `{{ content }}` is the same). Its text is in the key.

Datasets write `<image>` and `<video>` where a question shows its own. A mark within the question becomes its image at
that place. Marks that open the question say no more than that there are images: these stand before everything, as those
of a set without marks do, also before the template's own words. Where there are fewer marks than images, the images
keep their order and the first of them open the turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from atrl_bench.data.own import LETTERS
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.settings import text_of

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES: tuple[str, str, str] = (
    "{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
    "{question}\nFirst describe what the image shows, then reason, and give the final answer in \\boxed{{}}.",
    "Look at the image and solve the problem.\n{question}\nEnd with the final answer in \\boxed{{}}.",
)

NAMED = {
    "step-by-step": TEMPLATES[0].format(question="{question}"),
    "describe-first": TEMPLATES[1].format(question="{question}"),
    "look-first": TEMPLATES[2].format(question="{question}"),
    # What VPPO (arXiv 2510.09285, appendix N) and PAPO train and evaluate with.
    "think-then-box": "{question}\n\nYou first think through the reasoning process as an internal monologue, enclosed "
    "within <think> </think> tags. Then, provide your final answer enclosed within \\boxed{}.",
}

KINDS = ("image", "video")
MARK = re.compile(rf"<({'|'.join(KINDS)})>")
OPENING_MARKS = re.compile(rf"\A(?:\s*{MARK.pattern})+")

# MathVerse's Vision Only rows carry no question at all: the text is inside the picture.
QUESTION_IN_IMAGE = "According to the question shown in the image, what is the answer?"


def choose_template(run_seed: int, problem_id: str) -> int:
    """Which template this problem gets in this run: the same on every machine and whatever else is run."""
    digest = hashlib.sha256(f"template:{run_seed}:{problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % len(TEMPLATES)


def render(question: str, template: int | str, medium: str = "image") -> str:
    """The text of the user turn: the question in one of the three, or in a template of this text.

    The three speak of the image or of another `medium`. Where only the image has the question, a fixed sentence stands
    for it.
    """
    question = question.strip() or QUESTION_IN_IMAGE
    if isinstance(template, int):
        return TEMPLATES[template].replace("the image", f"the {medium}").format(question=question)
    if _VARIABLE.search(template):
        return _jinja(template).render(question=question, content=question, medium=medium)
    return template.replace("{question}", question)


_VARIABLE = re.compile(r"\{\{-?\s*(?:question|content)\b")  # of a template in Jinja2


@cache
def _jinja(text: str) -> Template:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(undefined=StrictUndefined).from_string(text)


def template_text(template: str) -> str:
    """The text of a template that is named, as a file, or that stands here itself."""
    text = NAMED.get(template) or text_of(template)
    if "{question}" not in text and not _VARIABLE.search(text):
        if text != template:
            then = f"write {{question}} into {template}, where the question goes"
            raise InvalidFileError(f"{template} is no template.", why="It has no {question}.", next_step=then)
        then = "name one of these, or a file with {question} where the question goes"
        raise UnknownNameError("template", template, NAMED, next_step=then)
    try:
        render("?", text)
    except Exception as error:  # of many kinds, by what its expressions compute
        then = "a template has question and medium, and may not call anything"
        raise InvalidFileError(
            f"The template {template!r} cannot be filled in.", why=str(error), next_step=then
        ) from None
    return text


def template_name(text: str) -> str:
    """How a page calls a template: by its name, or the start of its text."""
    names = [name for name, known in NAMED.items() if known == text]
    first = " ".join(text.split())
    return names[0] if names else first if len(first) <= 40 else f"{first[:39]}…"


def without_opening_marks(question: str) -> str:
    """The question without the marks before its first word; those within it stay."""
    return OPENING_MARKS.sub("", question).strip()


def num_marks(question: str, kind: str) -> int:
    """How many images, or videos, the question has a place for."""
    return MARK.findall(question).count(kind)


def content_with_media(text: str, num_media: dict[str, int]) -> list[dict[str, Any]]:
    """A chat turn: so many images and videos, those with a mark in its place and the others before the text."""
    first = [{"type": kind} for kind in KINDS for _ in range(num_media[kind] - num_marks(text, kind))]
    # A text split at its marks alternates between words and the kinds of the marks between them.
    parts = MARK.split(text)
    within = [{"type": part} if index % 2 else {"type": "text", "text": part} for index, part in enumerate(parts)]
    return [*first, *(part for part in within if part.get("text") != "")]


def system_turn(text: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": [{"type": "text", "text": text}]}] if text else []


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

"""Synthetic versions of the benchmarks of many subjects: MMMU, both forms of MMMU-Pro, EMMA and EMMA-mini.

As in the real files, the text names its images, a question may have several of them, options may be images, and a list
may be kept as a string.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, drawn, each, embedded, encoded
from atrl_bench.mini.benchmarks.main_7b import SIGN_KINDS
from atrl_bench.mini.corpus import DESCRIPTION
from atrl_bench.mini.digits import CELL, PAPER
from atrl_bench.mini.drawing import INK, draw
from atrl_bench.mini.problems import KINDS, DigitProblem, numeric_options
from atrl_bench.models.templates import LETTERS

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

MMMU_IMAGES, EMMA_IMAGES = 7, 5
WIDEST = 9  # how far an option may be from the answer, where there are ten


def _parts(problem: DigitProblem) -> list[DigitProblem]:
    """The problem's digits, each as a picture of its own."""
    parts = zip(problem.scans, problem.readings, strict=True)
    return [replace(problem, kind=KINDS["sum"], scans=(scan,), readings=(digit,)) for scan, digit in parts]


def _image_columns(pictures: Sequence[DigitProblem], count: int, name: str) -> dict[str, Any]:
    filled = {f"image_{n}": embedded(picture, f"{name}_{n}.png") for n, picture in enumerate(pictures, start=1)}
    return {f"image_{n}": filled.get(f"image_{n}") for n in range(1, count + 1)}


def _names(pattern: str, count: int) -> list[str]:
    return [pattern.format(n) for n in range(1, count + 1)]


# MMMU: most rows have four options; some have images as options, some several images, some are open.

_MMMU_KINDS = {
    "choice": ("sum", "range", "extremes", "product"),
    "pair": ("product",),
    "image_options": ("largest_place", "smallest_place"),
    "open": ("mean", "quarter", "rectangle_area", "number_plus"),
}
_SUBJECTS = {"mean": "Statistics", "quarter": "Statistics", "rectangle_area": "Geometry", "product": "Accounting"}


def _mmmu(index: int, rng: np.random.Generator) -> Row:
    form = str(rng.choice(list(_MMMU_KINDS), p=[0.55, 0.15, 0.1, 0.2]))
    problem = drawn(_MMMU_KINDS[form], index, rng)
    pictures = [problem] if form in ("choice", "open") else _parts(problem)
    marks = _names("<image {}>", len(pictures))
    options: Sequence[str] = ()
    question, answer = f"{' '.join(marks)} {problem.question}", problem.answer
    if form == "image_options":
        question, options = problem.question, marks
    elif form == "open":
        answer = _accepted(problem.answer) if index % 2 else problem.answer
    else:
        options = numeric_options(problem.answer, 4, rng)
        answer = LETTERS[options.index(problem.answer)]
    name = f"validation_{_SUBJECTS.get(problem.kind.name, 'Math')}_{index + 1}"
    return {
        "id": name,
        "question": question,
        "options": str([str(option) for option in options]),
        "explanation": problem.steps,
        **_image_columns(pictures, MMMU_IMAGES, name),
        "img_type": "['Handwritten digits']",
        "answer": answer,
        "topic_difficulty": ("Easy", "Medium", "Hard")[min(2, len(problem.readings) - 1)],
        "question_type": "open" if form == "open" else "multiple-choice",
        "subfield": problem.kind.name,
    }


def _accepted(answer: str) -> str:
    """A list of answers as the real file keeps them: the number in two spellings."""
    return str([answer, f"{answer}.0" if answer.isdigit() else str(Fraction(answer))])


# MMMU-Pro: the same problems with ten options, and drawn whole into one picture.

_PRO_SEED = 20  # one for both forms, which hold the same problems under the same ids


def _pro_problems(count: int) -> Iterator[tuple[str, DigitProblem, tuple[str, ...]]]:
    import numpy as np

    rng = np.random.default_rng(_PRO_SEED)
    for index in range(count):
        problem = drawn(SIGN_KINDS, index, rng)
        value = int(problem.answer)
        near = [other for other in range(max(0, value - WIDEST), value + WIDEST + 1) if other != value]
        # A few questions have fewer than ten options in the real file too.
        wrong = rng.choice(near, size=min(len(near), 9 if index % 8 else 6), replace=False)
        options = tuple(str(option) for option in rng.permutation([value, *wrong]))
        yield f"test_{_SUBJECTS.get(problem.kind.name, 'Math')}_{index + 1}", problem, options


def _pro_standard(count: int, rng: np.random.Generator) -> list[Row]:
    return [
        {
            "id": name,
            "question": f"<image 1> {problem.question}",
            "options": str(list(options)),
            "explanation": problem.steps,
            **_image_columns([problem], MMMU_IMAGES, name),
            "img_type": "['Handwritten digits']",
            "answer": LETTERS[options.index(problem.answer)],
            "topic_difficulty": "Medium",
            "subject": name.split("_")[1],
        }
        for name, problem, options in _pro_problems(count)
    ]


def _pro_vision(count: int, rng: np.random.Generator) -> list[Row]:
    return [
        {
            "id": name,
            "image": encoded(_page(problem, options), f"{name}.png"),
            "options": str(list(options)),
            "answer": LETTERS[options.index(problem.answer)],
            "subject": name.split("_")[1],
        }
        for name, problem, options in _pro_problems(count)
    ]


def _page(problem: DigitProblem, options: Sequence[str]) -> Image.Image:
    """The digits with the sign of what is asked, and below them the options in two lines."""
    from PIL import Image, ImageDraw

    picture = draw(problem, with_glyph=True)
    page = Image.new("RGB", (picture.width, picture.height + CELL // 2), (PAPER, PAPER, PAPER))
    page.paste(picture)
    pen = ImageDraw.Draw(page)
    per_line = 5
    for index, (letter, option) in enumerate(zip(LETTERS, options, strict=False)):
        left, line = index % per_line * (page.width // per_line), index // per_line
        pen.text((left + 3, picture.height + 1 + 13 * line), f"{letter} {option}", fill=(INK, INK, INK))
    return page


# EMMA: a list of options or none; what kind of question it is, is written in two ways.

_EMMA_KINDS = {
    "Math": ("largest_place", "smallest_place"),
    "Physics": ("rectangle_perimeter", "mean"),
    "Chemistry": ("sum", "extremes"),
    "Coding": ("product", "range"),
}


def _emma(name: str, index: int, rng: np.random.Generator) -> Row:
    subject = list(_EMMA_KINDS)[index % len(_EMMA_KINDS)]
    problem = drawn(_EMMA_KINDS[subject], index // len(_EMMA_KINDS), rng)
    several = subject == "Coding" and rng.random() < 0.5
    pictures = _parts(problem) if several else [problem]
    options, answer = problem.kind.options, problem.answer
    if not options and subject != "Physics":
        options = numeric_options(problem.answer, 4, rng)
        answer = LETTERS[options.index(problem.answer)]
    marks = " ".join(_names("<image_{}>", len(pictures)))
    kind = str(rng.choice(["Multiple Choice", "Multiple choice"])) if options else "Open-ended"
    pid = f"{name}_{index + 1}"
    return {
        "pid": pid,
        "question": f"{problem.question}\n{marks}" if subject == "Chemistry" else f"{marks} {problem.question}",
        "options": list(options) or None,
        "answer": answer,
        **_image_columns(pictures, EMMA_IMAGES, pid),
        "solution": problem.steps,
        "subject": subject,
        "task": "handwritten digits",
        "category": problem.kind.name,
        "source": "handwritten digits",
        "type": kind,
        "context": DESCRIPTION if index % 5 == 0 else None,
    }


def _images(count: int) -> dict[str, str]:
    return dict.fromkeys(_names("image_{}", count), "image")


MMMU_TYPES = _images(MMMU_IMAGES)
EMMA_TYPES = {**_images(EMMA_IMAGES), "options": ["string"], "context": "string"}
PRO_CONFIG = "standard (10 options)"
SYNTHETIC_BENCHMARKS = (
    SyntheticDataset("mmmu", "validation", each(_mmmu), MMMU_TYPES),
    SyntheticDataset("mmmu_pro", "test", _pro_standard, MMMU_TYPES, config=PRO_CONFIG, label="mmmu_pro_standard"),
    SyntheticDataset("mmmu_pro", "test", _pro_vision, config="vision", label="mmmu_pro_vision"),
    SyntheticDataset("emma", "test", each(partial(_emma, "emma")), EMMA_TYPES, "All"),
    SyntheticDataset("emma_mini", "test", each(partial(_emma, "mini")), EMMA_TYPES, "All"),
)

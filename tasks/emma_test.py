"""EMMA: the whole test split, and EMMA-mini.

Hao et al., "Can MLLMs Reason in Multimodality? EMMA: An Enhanced MultiModal ReAsoning Benchmark", ICML 2025. 2,788 rows
in four subjects: Math 892, Physics 156, Chemistry 1,176, Coding 564; EMMA-mini has 100 of each.

The paper's column "EMMA_core" is no split of EMMA, which has only these two ("core" is a part of MEGA-Bench). We take
it to mean EMMA's whole test split, all four subjects.

A row has the question with the names of its images in it ("<image_1> ..."), the images in `image_1` to `image_5`, its
`options` as a list of texts or none, `type`, `subject` and the `answer`: the letter of an option, or a short text.

The official dataset has one configuration a subject; the rows come from lmms-eval's copy, whose `All` is the four in
one. A local copy may have them in one folder or in four. `type` is written `Multiple Choice` or `Multiple choice`; the
other rows are open-ended. `context`, where there is one, comes before the question. Part of the Math rows are
MathVision's (`source` says so), so the two scores rise and fall together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atrl_bench.evaluation.hooks import (
    Gold,
    Row,
    choice_gold,
    column,
    hooks,
    interleaved,
    numbered_images,
    open_gold,
    prepare,
    read_list,
)
from atrl_bench.models.templates import with_choices

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = ("pid", "question", "options", "answer", "image_1", "subject", "type", "context")
KEPT = ("subject", "category", "type", "source")
BREAKDOWN = "subject"
process_docs = prepare
problem_id = column("pid")  # the problem's name, which EMMA-mini keeps
group = problem_id


def question(row: Row) -> str:
    """Context, question and options; `<image_1>` stands where an image belongs."""
    text = "\n".join(part for part in (row["context"], row["question"]) if part)
    options = _options(row)
    return with_choices(text, options) if options else text


def gold(row: Row) -> Gold:
    if row["type"].lower() != "multiple choice":
        return open_gold(row["answer"])
    letter = row["answer"].strip()
    return choice_gold(letter.upper() if len(letter) == 1 else letter, _options(row))


def images(row: Row) -> list[Image]:
    """All images, for a model class that puts them before the text."""
    return list(numbered_images(row).values())


def _options(row: Row) -> Sequence[str]:
    options = row["options"] or ()
    return read_list(options) if isinstance(options, str) else options


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)
doc_to_messages = interleaved(doc_to_text, numbered_images)

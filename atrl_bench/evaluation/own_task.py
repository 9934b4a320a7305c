"""A benchmark of the user's own without code: a table of questions, perhaps with options and pictures, and answers.

Its columns are those of a training set of the user's own (`data.own`), and its answers say how they are graded: a
letter or an option where there are options, else a number, a text, yes or no, or a list of which any counts.
`group` names what several rows have in common, `category` what the score is reported by.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from atrl_bench.data.dataset import root_of
from atrl_bench.data.layout import own_file
from atrl_bench.data.own import answers_of, gold_answer, image_of, media_of, options_of, question_of, system_of
from atrl_bench.data.pictures import open_picture, picture_size
from atrl_bench.data.sets import TrainingSet
from atrl_bench.evaluation.hooks import OF_A_VIDEO, Row, hooks, prepare
from atrl_bench.grading.gold import own_gold
from atrl_bench.models.prompt import Messages
from atrl_bench.models.templates import content_with_media, system_turn, with_choices, without_opening_marks
from atrl_bench.results.records import Gold

if TYPE_CHECKING:
    from PIL.Image import Image

CATEGORY, GROUP = "category", "group"  # columns


def functions_of(described: TrainingSet) -> dict[str, Any]:
    """What the Python file of a task says, from the columns of a table."""
    root = root_of(described, None)

    def asked(row: Row) -> Any:
        return row[described.question[0]]

    def problem_id(row: Row) -> str:
        return str(row["row_number"] if described.problem_id is None else row[described.problem_id])

    def group(row: Row) -> str:
        return str(row[GROUP]) if row.get(GROUP) is not None else problem_id(row)

    def question(row: Row) -> str:
        text, options = without_opening_marks(question_of(asked(row))), options_of(row, described.options)
        return with_choices(text, options) if options else text

    def gold(row: Row) -> Gold:
        answers = list(map(gold_answer, answers_of(row[described.answer])))
        return own_gold(answers, options_of(row, described.options))

    def to_show(row: Row) -> tuple[list[Any], list[str]]:
        cell = row.get("".join(described.images))  # one column or none; its pictures are absent where only words count
        return media_of(asked(row), cell, "image"), media_of(asked(row), row.get(described.videos), "video")

    def shown(row: Row) -> list[Image | str]:
        images, videos = to_show(row)
        return [*(open_picture(image_of(cell, root)) for cell in images), *(str(own_file(root, v)) for v in videos)]

    def sizes(row: Row) -> list[tuple[int, int]]:
        """Also of pictures that are files; one that is none has no size, and is left out where it is shown."""
        found: list[tuple[int, int]] = []
        with suppress(ValueError):  # of a row that is refused when it is asked about
            images, videos = to_show(row)
            found += [OF_A_VIDEO for _ in videos]
            for cell in images:
                with suppress(Exception):
                    found.append(picture_size(image_of(cell, root))[::-1])
        return found

    of_images, of_videos = (hooks(problem_id, group, question, gold, shown, kind) for kind in ("image", "video"))

    def doc_to_text(row: Row, settings: Mapping[str, Any] | None = None) -> str:
        return (of_videos if to_show(row)[1] else of_images).doc_to_text(row, settings)

    def doc_to_messages(row: Row, settings: Mapping[str, Any] | None = None) -> Messages:
        media: dict[str, list[Any]] = {"image": [], "video": []}
        for one in shown(row):
            media["video" if isinstance(one, str) else "image"].append(one)
        content = content_with_media(doc_to_text(row, settings), {kind: len(some) for kind, some in media.items()})
        for part in content:
            if part["type"] in media:
                part["url"] = media[part["type"]].pop(0)
        begin = [] if "system" in (settings or {}) else system_turn(system_of(asked(row)))
        return [*begin, {"role": "user", "content": content}]

    return {
        "process_docs": prepare,
        "problem_id": problem_id,
        "group": group,
        "question": question,
        "gold": gold,
        "images": shown,
        "doc_to_text": doc_to_text,
        "doc_to_messages": doc_to_messages,
        "media": described.files_of,
        "sizes": sizes,
    }

"""Synthetic video benchmarks: VSI-Bench, the three tracks of VideoMMMU, and MMVU, with real MP4 files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, each, encoded
from atrl_bench.mini.digits import draw_scan, scans_of
from atrl_bench.mini.problems import DigitProblem
from atrl_bench.mini.videos import Scene, Style, ask, draw_scene
from atrl_bench.models.templates import LETTERS

if TYPE_CHECKING:
    import numpy as np


def _scene(benchmark: int, number: int, style: Style) -> Scene:
    """The benchmark's scene of that number: rows and files are made apart, and three tracks share theirs."""
    import numpy as np

    return draw_scene(style, "test", np.random.default_rng([benchmark, number]))


def _mp4s(scenes: dict[str, Scene]) -> Iterator[tuple[str, bytes]]:
    return ((path, scene.mp4()) for path, scene in scenes.items())


def draw_options(problem: DigitProblem, count: int, rng: np.random.Generator) -> list[str]:
    """`count` different answers, the right one among them, in random order."""
    answer = problem.answer
    if "," in answer:
        others = [", ".join(order) for order in permutations(answer.split(", "))]
    elif "." in answer:
        others = [f"{float(answer) + step / 2:.1f}" for step in range(-count, count + 1)]
    elif problem.kind.name in ("first", "second", "last") and count <= 10:
        others = [str(digit) for digit in range(10)]
    else:
        others = [str(value) for value in range(max(0, int(answer) - count), int(answer) + count + 1)]
    others.remove(answer)
    return [str(option) for option in rng.permutation([answer, *rng.choice(others, size=count - 1, replace=False)])]


# VSI-Bench: ten types of question, about several of them on one scene; four are answered by a number.

# Type, what is asked, how many options (0: a number). Seven of ten need the order of time.
_ROOM = (
    ("object_rel_direction_easy", "first", 2),
    ("object_rel_direction_medium", "last", 3),
    ("object_rel_direction_hard", "second", 4),
    ("obj_appearance_order", "order", 4),
    ("object_abs_distance", "mean_of_ends", 0),
    ("object_size_estimation", "number_plus", 0),
    ("object_rel_distance", "spread", 4),
    ("room_size_estimation", "total", 0),
)
_WALK = (("object_counting", "different", 0), ("route_planning", "changes", 3))
_DATASETS = ("arkitscenes", "scannet", "scannetpp")
_QUESTIONS = [(style, *asked) for style, part in (("passing", _ROOM), ("lingering", _WALK)) for asked in part]


def _vsi_scene(name: str) -> Scene:
    number = int(name.removeprefix("scene"))
    return _scene(1, number, "lingering" if number % 2 else "passing")


def _vsi_bench(index: int, rng: np.random.Generator) -> Row:
    style, question_type, kind, num_options = _QUESTIONS[index % len(_QUESTIONS)]
    number = 2 * (index // len(_QUESTIONS)) + (style == "lingering")
    name = f"scene{number:04d}"
    problem = ask(_vsi_scene(name), kind, rng)
    options = draw_options(problem, num_options, rng) if num_options else []
    return {
        "id": index,
        "dataset": _DATASETS[number % 3],
        "scene_name": name,
        "question_type": question_type,
        "question": problem.question,
        "ground_truth": LETTERS[options.index(problem.answer)] if options else problem.answer,
        "options": [f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=False)] or None,
        "pruned": bool(rng.random() < 0.5),
    }


def _vsi_files(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    return _mp4s({f"{row['dataset']}/{row['scene_name']}.mp4": _vsi_scene(row["scene_name"]) for row in rows})


# VideoMMMU: one lecture and three questions about it, in three configurations that share their videos.

_SUBJECTS = (("Science", "Math"), ("Business", "Accounting"), ("Art", "Art_Theory"))
_PERCEPTION = ("first", "order", "last", "second")
_COMPREHENSION = ("number_plus", "spread", "both_ends", "total")
_NUM_OPTIONS = (4, 10, 2, 14, 5)


def _lecture(row_id: str) -> Scene:
    return _scene(2, int(row_id.rpartition("_")[2]), "passing")


def _lecture_id(index: int) -> str:
    return f"dev_{_SUBJECTS[index % len(_SUBJECTS)][1]}_{index + 1}"


def _video_mmmu(kinds: Sequence[str], index: int, rng: np.random.Generator) -> Row:
    name = _lecture_id(index)
    problem = ask(_lecture(name), kinds[index % len(kinds)], rng)
    options = draw_options(problem, _NUM_OPTIONS[index % len(_NUM_OPTIONS)], rng)
    return _lecture_row(name, problem.question, options, LETTERS[options.index(problem.answer)])


def _lecture_row(name: str, question: str, options: list[str], answer: str) -> Row:
    link = f"https://www.youtube.com/watch?v={name}"
    return {"id": name, "question": question, "options": options, "answer": answer, "link_selected": link}


def _adaptation(index: int, rng: np.random.Generator) -> Row:
    name = _lecture_id(index)
    wanted, words = ((0, "first"), (-1, "last"))[index % 2]
    digit, scene = int(rng.integers(10)), _lecture(name)
    answer = str(scene.readings[wanted] + digit)
    question = f"<image 1> What is the sum of the digit in the picture and the {words} digit in the video?"
    problem = replace(ask(scene, "both_ends", rng), answer=answer)
    # 20 of 300 rows are open, one of them with a list whose last quote is missing; one row has no type.
    form = "open" if index % 15 == 7 else "multiple-choice"
    if form == "open":
        accepted = f"['{answer}', '{answer}.0]" if index % 2 else answer
        row = _lecture_row(name, question, [], accepted)
    else:
        options = draw_options(problem, _NUM_OPTIONS[index % len(_NUM_OPTIONS)], rng)
        row = _lecture_row(name, question, options, LETTERS[options.index(answer)])
    picture = draw_scan(int(rng.choice(scans_of(digit, "test"))), rng).convert("RGB")
    return row | {"question_type": None if index == 11 else form, "image": encoded(picture, f"{name}.png")}


def _lecture_files(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    folder_of = {subject: folder for folder, subject in _SUBJECTS}
    names = [row["id"] for row in rows]
    paths = {f"{folder_of[name.removeprefix('dev_').rpartition('_')[0]]}/{name}.mp4": name for name in names}
    return _mp4s({path: _lecture(name) for path, name in paths.items()})


# MMVU: five options in five of eight rows, an open answer in the others; videos are named by their address.

_MMVU = ("number_plus", "last", "order", "both_ends", "total", "second", "largest_and_smallest", "first_two")
_MMVU_VIDEOS = "https://huggingface.co/datasets/yale-nlp/MMVU/resolve/main/"


def _mmvu_path(number: int) -> str:
    return f"videos/Mathematics/{number}.mp4"


def _mmvu(index: int, rng: np.random.Generator) -> Row:
    kind, path = _MMVU[index % len(_MMVU)], _mmvu_path(index // 2)
    problem = ask(_scene(3, index // 2, "passing"), kind, rng)
    is_choice = kind == "order" or index % 8 not in (1, 4, 6)
    options = draw_options(problem, 5, rng) if is_choice else []
    return {
        "id": f"validation_{index}",
        "video": _MMVU_VIDEOS + path,
        "youtube_url": f"https://www.youtube.com/watch?v={index // 2}",
        "question_type": "multiple-choice" if options else "open-ended",
        "metadata": {"subject": "Mathematics", "textbook": "", "knowledge": [], "rationale": problem.steps},
        "question": problem.question,
        "choices": {letter: options[i] if options else "" for i, letter in enumerate("ABCDE")},
        "answer": LETTERS[options.index(problem.answer)] if options else problem.answer,
    }


def _mmvu_files(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    numbers = sorted({int(row["video"].rpartition("/")[2].removesuffix(".mp4")) for row in rows})
    return _mp4s({_mmvu_path(number): _scene(3, number, "passing") for number in numbers})


OPTIONS = {"options": ["string"]}
METADATA = {"metadata": {"subject": "string", "textbook": "string", "knowledge": ["string"], "rationale": "string"}}
SYNTHETIC_BENCHMARKS = (
    SyntheticDataset("vsi_bench", "test", each(_vsi_bench), OPTIONS, config="full", files=_vsi_files),
    *(
        SyntheticDataset("video_mmmu", "test", each(row), types, track, files, label=f"video_mmmu/{track}")
        for track, types, row, files in (
            ("Perception", OPTIONS, partial(_video_mmmu, _PERCEPTION), _lecture_files),
            ("Comprehension", OPTIONS, partial(_video_mmmu, _COMPREHENSION), None),
            ("Adaptation", OPTIONS | {"question_type": "string"}, _adaptation, None),
        )
    ),
    SyntheticDataset("mmvu", "validation", each(_mmvu), METADATA, files=_mmvu_files),
)

"""A synthetic MEGA-Bench: a task for every metric that needs nothing else than this machine, about handwritten digits.

As in the real files, all columns are text: media paths, answers, metrics and contexts are Python literals in strings,
and the pictures and videos lie beside the table. Every second row asks for one number in a form the mini model knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, drawn, each, named_media, picture_name
from atrl_bench.mini.problems import DigitProblem
from atrl_bench.mini.videos import ask, draw_scene

if TYPE_CHECKING:
    import numpy as np

Digits = tuple[int, ...]
ANSWER = "answer"
FORMAT = {
    "answer_string": 'End with "Answer: <YOUR ANSWER>", without angle brackets.',
    "verbatim_answer_string": 'End with "Answer:" and a code block.',
    "json": 'End with "Answer:" and a JSON object with the fields {fields}.',
    "dummy": "",
}
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CHINESE = "零一二三四五六七八九"
CITIES = ("Oslo", "Bergen", "Trondheim", "Stavanger", "Drammen", "Skien", "Moss", "Bodø", "Larvik", "Hamar")


@dataclass(frozen=True)
class MegaTask:
    """One task: how its answer fields are scored, what it asks, and the answer that follows from the digits."""

    metrics: dict[str, str]
    query: str
    answer: Callable[[Digits], dict[str, Any]]
    parser: str = "answer_string"
    aggregation: str = "mean"
    context: Callable[[Digits], dict[str, Any]] = field(default=lambda digits: {})


def _single(metric: str, query: str, answer: Callable[[Digits], str], parser: str = "answer_string") -> MegaTask:
    return MegaTask({ANSWER: metric}, query, lambda digits: {ANSWER: answer(digits)}, parser)


def _entries(metric: str, query: str, answer: Callable[[Digits], Any]) -> MegaTask:
    return MegaTask({"parts": metric}, query, lambda digits: {"parts": answer(digits)}, "json")


def _names(digits: Digits) -> list[str]:
    return [NAMES[digit] for digit in digits]


def _box(digit: int) -> list[float]:
    """A box in a picture of height 1 whose width grows with the digit."""
    return [0.0, 0.1, round(0.09 * (digit + 1), 2), 0.9]


def _point(digit: int) -> list[float]:
    return [round(digit / 10, 1), 0.5]


def _tag(name: str, numbers: Sequence[float]) -> str:
    return f"<{name}>{', '.join(map(str, numbers))}</{name}>"


_DOMAIN = """(define (domain rooms) (:requirements :strips :typing)
  (:predicates (at ?r - room) (door ?a ?b - room))
  (:action walk :parameters (?a - room ?b - room)
    :precondition (and (at ?a) (door ?a ?b))
    :effect (and (not (at ?a)) (at ?b) (increase (total-cost) 1))))"""


def _rooms(digits: Digits) -> dict[str, str]:
    doors = " ".join(f"(door r{a} r{(a + 1) % 10})" for a in range(10))
    goal = (digits[0] + 2) % 10
    return {
        "domain_pddl": _DOMAIN,
        "task_pddl": f"(define (problem walk) (:domain rooms) (:init (at r{digits[0]}) {doors} (= (total-cost) 0)) "
        f"(:goal (and (at r{goal}))))",
    }


def _walk(digits: Digits) -> str:
    rooms = [(digits[0] + step) % 10 for step in range(3)]
    return f"(walk r{rooms[0]} r{rooms[1]})\n(walk r{rooms[1]} r{rooms[2]})"


def _story(digits: Digits) -> str:
    first, *_, last = _names(digits)
    return f"A child writes {first}. Then the child writes {last}. The page is full of digits now."


TASKS: dict[str, MegaTask] = {
    # Texts.
    "digit_string": _single("exact_str_match", "Write the digits without blanks.", lambda d: "".join(map(str, d))),
    "sum_parity": _single(
        "exact_str_match_case_insensitive", "Is the sum even or odd?", lambda d: ("Even", "Odd")[sum(d) % 2]
    ),
    "digit_names": _single("simple_str_match", "Name the digits.", lambda d: "-".join(_names(d))),
    "digit_sentence": _single(
        "near_str_match", "Name the digits in a sentence.", lambda d: f"the digits are {' and '.join(_names(d))}"
    ),
    "digit_ocr": _single(
        "normalized_similarity_damerau_levenshtein", "Read the digits.", lambda d: " ".join(map(str, d))
    ),
    "first_digit": _single("multi_ref_phrase", "What is the first digit?", lambda d: f"[{NAMES[d[0]]}, digit {d[0]}]"),
    "digit_rows": _single(
        "code_result_exact_str_match",
        "Print each digit on its own line, behind as many blanks as digits before it.",
        lambda d: "```\n" + "\n".join(" " * index + str(digit) for index, digit in enumerate(d)) + "\n```",
        "verbatim_answer_string",
    ),
    # Lists and sets.
    "digit_set": _single("set_equality", "List the digits.", lambda d: str(list(d))),
    "name_set": _single("set_equality_case_insensitive", "List the names.", lambda d: str(_names(d))),
    "name_lines": _single("str_set_equality_line_break", "Name a digit a line.", lambda d: "\n".join(_names(d))),
    "name_commas": _single("str_set_equality_comma", "Name the digits.", lambda d: ", ".join(_names(d))),
    "digit_jaccard": _single("jaccard_index", "List the digits.", lambda d: str(list(d))),
    "name_jaccard": _single("jaccard_index_case_insensitive", "List the names.", lambda d: str(_names(d))),
    "digit_precision": _single("set_precision", "List some of the digits.", lambda d: str(list(d))),
    "rook_moves": _single(
        "chess_move_list_jaccard_index",
        "Each digit is a rook's move in file a. List them.",
        lambda d: "[" + ", ".join(f"Ra{digit % 8 + 1}+" for digit in d) + "]",
    ),
    "digit_sequence": _single("sequence_equality", "List the digits in order.", lambda d: str(list(d))),
    "name_sequence": _single(
        "sequence_equality_case_insensitive", "List the names in order.", lambda d: str(_names(d))
    ),
    "name_places": _single("sequence_accuracy_case_insensitive", "List the names in order.", lambda d: str(_names(d))),
    "digit_prefix": _single("longest_common_list_prefix_ratio", "List the digits in order.", lambda d: str(list(d))),
    # Fields of a JSON object.
    "ends_dict": _entries(
        "dict_equality", "Give the first and the last digit.", lambda d: {"first": d[0], "last": d[-1]}
    ),
    "ends_recall": _entries(
        "dict_exact_str_match_agg_recall", "Give the ends.", lambda d: {"first": str(d[0]), "last": str(d[-1])}
    ),
    "ends_precision": _entries("dict_precision", "Give the ends.", lambda d: {"first": str(d[0]), "last": str(d[-1])}),
    "parity_jaccard": _entries(
        "dict_jaccard_agg_jaccard",
        "Sort the digits into small (up to four) and large.",
        lambda d: {"small": [x for x in d if x < 5], "large": [x for x in d if x > 4]},
    ),
    "parity_sets": _entries(
        "dict_set_equality_agg_jaccard",
        "Sort the digits into even and odd.",
        lambda d: {"even": [x for x in d if x % 2 == 0], "odd": [x for x in d if x % 2]},
    ),
    "box_dict": _entries(
        "dict_nbbox_iou_tuple_agg_jaccard", "Give the bar of the first digit.", lambda d: {"first": [_box(d[0])]}
    ),
    "birthplace": MegaTask(
        {"location": "geo_proximity_location_dict"},
        f"The first digit is the number of a city: {', '.join(CITIES)}. Where is it?",
        lambda d: {
            "location": {"country": "Norway", "province_or_state": f"District {d[0]}", "municipality": CITIES[d[0]]}
        },
        "json",
    ),
    "two_fields": MegaTask(
        {"sum": "general_single_numerical_match", "largest": "exact_str_match"},
        "Give the sum and the largest digit.",
        lambda d: {"sum": str(sum(d)), "largest": str(max(d))},
        "json",
        "min",
    ),
    # Numbers and formulas.
    "digit_share": _single("normalized_rmse", "What share of 30 is the sum?", lambda d: str(round(sum(d) / 30, 3))),
    "digit_count": _single("positive_int_match", "How many digits are there?", lambda d: str(len(d))),
    "clock_angles": _single(
        "angle_seq_float_rmse", "A digit is 36 degrees. List the angles.", lambda d: str([36 * x for x in d])
    ),
    "digit_fraction": _single(
        "latex_expr_equality",
        "Write the first digit plus 1 over the last plus 2.",
        lambda d: rf"\frac{{{d[0] + 1}}}{{{d[-1] + 2}}}",
    ),
    "sum_in_words": _single(
        "text_with_latex_expr_equality",
        "Write the sum as a formula.",
        lambda d: f"The sum is ${'+'.join(map(str, d))}$",
    ),
    # Boxes and points.
    "bars": _single("nbbox_iou_tuple", "Give a bar for each digit.", lambda d: str([tuple(_box(x)) for x in d])),
    "one_bar": _single("nbbox_iou_single", "Give the bar of the first digit.", lambda d: str(tuple(_box(d[0])))),
    "bar_sequence": _single("nbbox_iou_sequence", "Give the bars in order.", lambda d: str([_box(x) for x in d])),
    "tagged_bar": _single("xml_nbbox_iou_single", "Give the first bar.", lambda d: _tag("box", _box(d[0]))),
    "tagged_point": _single("xml_norm_point_distance", "Give the first point.", lambda d: _tag("point", _point(d[0]))),
    "tap_the_bar": MegaTask(
        {ANSWER: "xml_norm_point_in_bbox"},
        "Tap on the bar of the first digit.",
        lambda d: {ANSWER: _tag("point", [_box(d[0])[2] / 2, 0.5])},
        context=lambda d: {"bounding_boxes": [str(tuple(_box(d[0])))]},
    ),
    "point_sequence": _single("sequence_coords_similarity", "Give the points.", lambda d: str([_point(x) for x in d])),
    # Running text.
    "describe": _single(
        "bleu", "Describe the digits.", lambda d: f"the page shows the digits {' and '.join(_names(d))}"
    ),
    "describe_chinese": _single(
        "gleu_cn", "Describe the digits in Chinese.", lambda d: f"图中的数字是{'、'.join(CHINESE[x] for x in d)}。"
    ),
    "plan_a_walk": MegaTask(
        {"plan": "symbolic_planning_test"},
        "You are in the room of the first digit. Walk through two doors.",
        lambda d: {"plan": _walk(d)},
        context=_rooms,
    ),
    "write_a_story": MegaTask(
        {"##output": "constrained_generation"},
        "Write a story about a child with the first digit in its first sentence. Name no other digit there.",
        lambda d: {"##output": _story(d)},
        "dummy",
        context=lambda d: {
            "contain1##position": f"[{NAMES[d[0]]}]##1",
            "contain2##times": "[child, children]##2",
            "length1": ">5",
            "length2": "<60",
        },
    ),
}

# Asked in the mini model's own words, so that it can be right.
PLAIN_METRICS = ("general_single_numerical_match", "boxed_single_numerical_match", "number_rel_diff_ratio")
PLAIN_KINDS = ("sum", "product", "range", "extremes", "number_plus")
CLIP_EVERY = 16  # rows of the whole set: one of so many shows a video


@dataclass(frozen=True)
class Query:
    """One row before it is written down; `<image>` and `<video>` stand in its texts where the media belong."""

    name: str
    task: MegaTask
    digits: Digits
    query: str
    media: str
    description: str = ""
    example: str = ""
    example_media: tuple[str, ...] = ()


def _core(index: int, rng: np.random.Generator) -> Row:
    if index % CLIP_EVERY == CLIP_EVERY - 2:
        return _row(index, _clip(rng))
    return _single_image(index, rng, with_example=index % 4 == 1)


def _single_image(index: int, rng: np.random.Generator, *, with_example: bool = False) -> Row:
    turn = index // 2
    return _row(index, _formatted(turn, rng, with_example=with_example) if index % 2 else _plain(turn, rng))


def _plain(turn: int, rng: np.random.Generator) -> Query:
    kind, metric = PLAIN_KINDS[turn % len(PLAIN_KINDS)], PLAIN_METRICS[turn % len(PLAIN_METRICS)]
    problem = drawn((kind,), 0, rng)
    answer = f"\\boxed{{{problem.answer}}}" if metric.startswith("boxed") else problem.answer
    name = f"digits_{kind}_{metric.split('_')[0]}"
    task = _single(metric, problem.question, lambda digits: answer)
    return Query(name, task, problem.readings, f"<image>\n{problem.question}", _path(name, problem))


def _clip(rng: np.random.Generator) -> Query:
    scene = draw_scene("passing", "test", rng)
    problem = ask(scene, "last", rng)
    task = _single("exact_str_match", problem.question, lambda digits: str(digits[-1]))
    path = f"data/clip_last/{scene.name}.mp4"
    return Query("clip_last", task, problem.readings, f"<video>\n{problem.question}", path)


def _formatted(turn: int, rng: np.random.Generator, *, with_example: bool) -> Query:
    name = list(TASKS)[turn % len(TASKS)]
    task, problem = TASKS[name], drawn(("sum",), 0, rng)
    description = f"{task.query} {FORMAT[task.parser].format(fields=list(task.metrics))}".strip()
    query = Query(name, task, problem.readings, "The digits: <image>", _path(name, problem), description)
    if not with_example:
        return query
    other = drawn(("sum",), 0, rng)
    answer = ", ".join(str(value) for value in task.answer(other.readings).values())
    return replace(query, example=f"Example: <image>\nAnswer: {answer}", example_media=(_path(name, other),))


def _row(index: int, query: Query) -> Row:
    task, is_plain = query.task, query.name.startswith("digits_")
    info = {
        "field_score_function": task.metrics,
        "aggregation": {"function": task.aggregation, "field_weights": dict.fromkeys(task.metrics, 1)},
        "response_parse_function": task.parser,
    }
    return {
        "id": str(index + 1),
        "task_name": query.name,
        "task_description": query.description,
        "global_media": "[]",
        "example_text": query.example,
        "example_media": str(list(query.example_media)),
        "query_text": query.query,
        "query_media": str([query.media]),
        "answer": str(task.answer(query.digits)),
        "metric_info": str(info),
        "eval_context": str(task.context(query.digits)),
        "taxonomy_tree_path": "Mathematics;Digits" if is_plain else "Perception;Digits",
        "application": "Mathematics" if is_plain else "Perception",
        "input_format": "Videos" if query.media.endswith(".mp4") else "Photographs",
        "output_format": "numerical_data" if is_plain else "structured_output",
    }


def _path(name: str, problem: DigitProblem) -> str:
    return f"data/{name}/{picture_name(problem)}.png"


def _files(rows: list[Row]) -> Iterator[tuple[str, bytes]]:
    return named_media(re.findall(r"'([^']+)'", "".join(row["example_media"] + row["query_media"] for row in rows)))


SYNTHETIC_BENCHMARKS = tuple(
    SyntheticDataset("mega_bench", "test", each(row), config=config, files=_files, label=f"mega_bench_{config}")
    for config, row in (("core", _core), ("core_single_image", _single_image))
)

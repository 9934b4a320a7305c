"""A synthetic MEGA-Bench, about handwritten digits: a task for each kind of metric that this machine alone can compute.

As in the real files, all columns are text: media paths, answers, metrics and contexts are Python literals in strings,
and the pictures and videos lie beside the table. Every second row asks for one number in a form the mini model knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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


def _names(digits: Digits) -> list[str]:
    return [NAMES[digit] for digit in digits]


def _box(digit: int) -> list[float]:
    """A box in a picture of height 1 whose width grows with the digit."""
    return [0.0, 0.1, round(0.09 * (digit + 1), 2), 0.9]


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


# One for each way that an answer is read and scored; `tests/grading/scorers/test_mega.py` has all metrics.
TASKS: dict[str, MegaTask] = {
    "digit_string": _single("exact_str_match", "Write the digits without blanks.", lambda d: "".join(map(str, d))),
    "digit_rows": _single(
        "code_result_exact_str_match",
        "Print each digit on its own line, behind as many blanks as digits before it.",
        lambda d: "```\n" + "\n".join(" " * index + str(digit) for index, digit in enumerate(d)) + "\n```",
        "verbatim_answer_string",
    ),
    "digit_set": _single("set_equality", "List the digits.", lambda d: str(list(d))),
    "ends_dict": MegaTask(
        {"parts": "dict_equality"},
        "Give the first and the last digit.",
        lambda d: {"parts": {"first": d[0], "last": d[-1]}},
        "json",
    ),
    "two_fields": MegaTask(
        {"sum": "general_single_numerical_match", "largest": "exact_str_match"},
        "Give the sum and the largest digit.",
        lambda d: {"sum": str(sum(d)), "largest": str(max(d))},
        "json",
        "min",
    ),
    "digit_share": _single("normalized_rmse", "What share of 30 is the sum?", lambda d: str(round(sum(d) / 30, 3))),
    "digit_fraction": _single(
        "latex_expr_equality",
        "Write the first digit plus 1 over the last plus 2.",
        lambda d: rf"\frac{{{d[0] + 1}}}{{{d[-1] + 2}}}",
    ),
    "bars": _single("nbbox_iou_tuple", "Give a bar for each digit.", lambda d: str([tuple(_box(x)) for x in d])),
    "tap_the_bar": MegaTask(
        {ANSWER: "xml_norm_point_in_bbox"},
        "Tap on the bar of the first digit.",
        lambda d: {ANSWER: f"<point>{_box(d[0])[2] / 2}, 0.5</point>"},
        context=lambda d: {"bounding_boxes": [str(tuple(_box(d[0])))]},
    ),
    "describe": _single(
        "bleu", "Describe the digits.", lambda d: f"the page shows the digits {' and '.join(_names(d))}"
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

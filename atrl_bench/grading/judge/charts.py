"""What a vision model behind an OpenAI-compatible endpoint thinks of a chart: ChartMimic's high level.

It sees the reference and the candidate, in this order and named so (the official code has had them swapped, worth 3 to
5 points), and gives points on six criteria, together 0 to 100. The criteria and their points are the official ones;
the words are ours. The points are added up here, not by the judge. A reply without all six is asked for again and then
`judge failed`: not scored, never 0. A program that does not run has no picture and stays at 0 without being asked
about. With a judge an answer is worth (low level + high level) / 2; without one, the low level alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from atrl_bench.grading.judge.chart_prompt import CRITERIA, chart_messages
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.grading.scorers.charts.scoring import draw_many, find_program
from atrl_bench.models.chat_client import Reply, ask_all
from atrl_bench.results.records import Gold, Verdict

MAX_LINE = 300


def parse_points(reply: str) -> dict[str, int] | None:
    """The points of a reply whose last line is all six of them, each in its range; else nothing."""
    lines = re.sub(r"```\s*$", "", reply.strip()).strip().rsplit("\n", 1)
    if len(lines[-1]) > MAX_LINE:
        return None
    try:
        points = json.loads(lines[-1], object_pairs_hook=lambda pairs: dict(pairs) if _distinct(pairs) else None)
    except ValueError:
        return None
    if not isinstance(points, dict) or set(points) != set(CRITERIA):
        return None
    # True is an int to Python.
    valid = all(type(points[name]) is int and 0 <= points[name] <= most for name, most in CRITERIA.items())
    return points if valid else None


def _distinct(pairs: Sequence[tuple[str, Any]]) -> bool:
    return len({name for name, _ in pairs}) == len(pairs)


def ask_about(pictures: Sequence[tuple[bytes, bytes]], config: JudgeConfig) -> list[Reply[dict[str, int]]]:
    """The judge's points for (reference, candidate) pairs; raises `EndpointError` when it does not answer."""
    different = list(dict.fromkeys(pictures))
    replies = ask_all(
        config,
        different,
        lambda pair: chart_messages(*pair),
        parse_points,
        wanted="points",
        temperature=config.temperature,
        max_tokens=config.max_tokens,
    )
    by_pair = dict(zip(different, replies, strict=True))
    return [by_pair[pair] for pair in pictures]


def with_opinions(
    answers: Sequence[tuple[str, Gold]], verdicts: Sequence[Verdict], config: JudgeConfig
) -> list[Verdict]:
    """The low-level verdicts with the judge's opinion added: (low + high) / 2, both among the details.

    Verdicts on anything else than a chart that was drawn stay as they are.
    """
    drawn = [index for index, v in enumerate(verdicts) if v.grader == "chart" and v.details.get("executed") == 1.0]
    if not drawn:
        return list(verdicts)
    programs = [find_program(answers[index][0]) or "" for index in drawn]
    drawings = draw_many([*(answers[index][1].answer for index in drawn), *programs])
    sides = drawings[: len(drawn)], drawings[len(drawn) :]
    pairs = [(reference.picture, candidate.picture) for reference, candidate in zip(*sides, strict=True)]
    opinions = dict(zip(drawn, ask_about(pairs, config), strict=True))
    return [_combined(v, opinions[index]) if index in opinions else v for index, v in enumerate(verdicts)]


def _combined(verdict: Verdict, reply: Reply[dict[str, int]]) -> Verdict:
    if reply.reading is None:
        return verdict._replace(state="judge failed", grader="judge", why=reply.why, score=None)
    low, high = verdict.points, sum(reply.reading.values()) / sum(CRITERIA.values())
    parts = {f"judge_{name}": points / CRITERIA[name] for name, points in reply.reading.items()}
    score = (low + high) / 2
    return verdict._replace(
        state="correct" if score >= 1 else "wrong",
        why=f"low level {low:.2f}, high level {high:.2f}",
        score=score,
        details={**verdict.details, "low": low, "high": high, **parts},
    )

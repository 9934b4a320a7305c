"""The judge of charts against a real HTTP server on this machine, with the two pictures it is sent."""

import base64
import json

import pytest

from atrl_bench.grading.judge import charts
from atrl_bench.grading.judge.charts import CRITERIA, ask_about, parse_points, with_opinions
from atrl_bench.grading.scorers.charts.scoring import DrawnChart
from atrl_bench.results.records import Gold, Verdict

FULL = dict(CRITERIA)
HALF = {name: most // 2 for name, most in CRITERIA.items()}


def ask(server, pictures):
    return ask_about(pictures, server.config(sleep=lambda _: None))


# Parsing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "points"),
    [
        (json.dumps(HALF), HALF),
        (f"The bars agree.\n\n{json.dumps(FULL)}\n", FULL),
        (f"```json\n{json.dumps(HALF)}\n```", HALF),
        (f"{json.dumps(FULL)}\nOn second thoughts:\n{json.dumps(HALF)}", HALF),  # the last line decides
        ("", None),
        ("100", None),
        ("I give 85/100.", None),
        (f"{json.dumps(FULL)}\nI am not sure.", None),
        (f"Points: {json.dumps(FULL)}", None),
        (json.dumps({**FULL, "types": 21}), None),
        (json.dumps({**FULL, "types": -1}), None),
        (json.dumps({**FULL, "types": 19.5}), None),
        (json.dumps({**FULL, "types": "20"}), None),
        (json.dumps({**FULL, "types": True}), None),
        (json.dumps({**FULL, "total": 100}), None),
        (json.dumps(dict.fromkeys(list(CRITERIA)[1:], 1)), None),
        (json.dumps(FULL)[:-1] + ', "types": 0}', None),  # twice, and differently
        ("[" * 1000, None),
        ("[" * 290, None),
    ],
)
def test_points_count_only_when_all_six_are_given_and_in_range(reply, points):
    assert parse_points(reply) == points


def test_the_six_criteria_make_a_hundred_points():
    assert sum(CRITERIA.values()) == 100


# Asking -----------------------------------------------------------------------------------------------------------


def test_the_reference_is_the_first_picture_and_the_candidate_the_second(serve):
    server = serve(json.dumps(HALF))
    [opinion] = ask(server, [(b"the reference", b"the candidate")])
    assert opinion.reading == HALF
    content = server.requests[0]["messages"][-1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "text", "image_url"]
    assert [part["text"] for part in content[::2]] == ["The reference:", "The candidate:"]
    urls = [part["image_url"]["url"] for part in content[1::2]]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    assert [base64.b64decode(url.split(",")[1]) for url in urls] == [b"the reference", b"the candidate"]


def test_a_reply_without_points_is_asked_for_again_and_then_not_scored(serve):
    server = serve("Nice charts!", json.dumps(FULL))
    assert ask(server, [(b"a", b"b")])[0].reading == FULL
    assert len(server.requests) == 2
    server = serve("Nice charts!")
    [opinion] = ask(server, [(b"a", b"b")])
    assert (opinion.reading, len(server.requests)) == (None, 3)


def test_the_same_pair_is_asked_about_once_and_the_reverse_is_another(serve):
    server = serve(json.dumps(FULL))
    assert len(ask(server, [(b"a", b"b"), (b"a", b"b"), (b"b", b"a")])) == 3
    assert len(server.requests) == 2
    assert ask(server, []) == []


# Both levels ------------------------------------------------------------------------------------------------------


ANSWERS = [("```python\ncandidate\n```", Gold("gold", kind="text", metric="chart"))]


def scored(low, *, executed=1.0):
    return Verdict("wrong", "x", "chart", "", low, {"executed": executed, "text": low})


@pytest.fixture
def drawings(monkeypatch):
    """What programs draw, without running them: their own name as the picture."""
    monkeypatch.setattr(
        charts, "draw_many", lambda programs: [DrawnChart(None, program.strip().encode(), "") for program in programs]
    )


def test_with_a_judge_an_answer_is_worth_the_mean_of_both_levels(serve, drawings):
    server = serve(json.dumps(HALF))
    [verdict] = with_opinions(ANSWERS, [scored(0.75)], server.config(sleep=lambda _: None))
    # (0.75 + 50 / 100) / 2
    assert (verdict.state, verdict.score) == ("wrong", 0.625)
    assert (verdict.details["low"], verdict.details["high"], verdict.details["judge_types"]) == (0.75, 0.5, 0.5)
    urls = [part["image_url"]["url"] for part in server.requests[0]["messages"][-1]["content"][1::2]]
    assert [base64.b64decode(url.split(",")[1]) for url in urls] == [b"gold", b"candidate"]


def test_what_does_not_run_stays_at_0_without_being_asked_about(serve, drawings):
    server = serve(json.dumps(FULL))
    assert with_opinions(ANSWERS, [scored(0.0, executed=0.0)], server.config()) == [scored(0.0, executed=0.0)]
    assert server.requests == []


def test_an_answer_without_an_opinion_is_not_scored(serve, drawings):
    server = serve("no")
    [verdict] = with_opinions(ANSWERS, [scored(0.75)], server.config(sleep=lambda _: None))
    assert (verdict.state, verdict.score, verdict.points) == ("judge failed", None, 0.0)

"""Each figure from hand-made numbers: the CSV has them, the drawing shows them, on any day in the same bytes."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest

from atrl_bench.analysis.anchors import CREDIT, LAST, SINGLE, AnchorScore
from atrl_bench.experiments.answer_credit import TokenCredit
from atrl_bench.report.drawing import DARK, figure_csv, token_text
from atrl_bench.report.figures import anchors, clusters, connectivity, errors, scale, words
from atrl_bench.report.figures.sources import published
from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict

HOSTILE = "</text><script>alert(1)</script>$\\frac{1}{0}$\x00\x1b[31m\u202e=cmd()"
SVG = "{http://www.w3.org/2000/svg}"


CREDITED = TokenCredit(
    texts=("The", " image", " shows", " 3", ".", ""),
    connectivity_T=(0.1, 0.2, 0.1, 0.8, 0.05, 0.05),
    credit_T=(0.5, 1.5, 1.5, 1.5, 0.5, 0.5),
    cluster_T=(0, 1, 1, 1, 0, 0),
)


def auc(part, setting, reading, mean, preset=""):
    return AnchorScore(part, setting, reading, True, mean, 0.01, 10, preset)


ROWS = ("own", "predicting")
SCORES = [
    *(auc(part, f"{n} from the end", row, 0.5 + n / 10) for part, n, row in product((LAST, SINGLE), (1, 2), ROWS)),
    auc(CREDIT, "atrl", "own", 0.6, "literal"),
    auc(CREDIT, "atrl", "predicting", 0.7, "default"),
]


def every_figure(text):
    """Each figure's `picture` with its arguments, with `text` wherever a text comes from outside."""
    label = f"GRPO{text}"
    credit = replace(CREDITED, texts=(text or "The", *CREDITED.texts[1:]))
    breakdown = errors.Breakdown(label, Counter(correct=4, perception=3, reasoning=2, unexplained=1))
    points = [scale.Point(label, task, 1.07e6, 45.0, 5.0) for task in scale.TASKS]
    return {
        "connectivity": (connectivity.picture, [i / 100 for i in range(100)], label, published("connectivity")),
        "words": (words.picture, words.words([credit] * 3), label),
        "clusters": (clusters.picture, clusters.views(credit), label),
        "anchors": (anchors.picture, SCORES, f"mini{text}"),
        "errors": (errors.picture, [breakdown], label, published("errors")),
        "scale": (scale.picture, points, scale.printed_points(published("scale")), f"smoke{text}"),
    }


ALL = list(every_figure(""))


@pytest.mark.parametrize("name", ALL)
def test_the_same_numbers_give_the_same_bytes(drawn, name):
    first, second = drawn(*every_figure("")[name]), drawn(*every_figure("")[name])
    assert first.svg == second.svg
    assert first.csv == second.csv
    assert not re.search(r"20\d\d-\d\d-\d\d|matplotlib\.org|Matplotlib v", first.svg)


@pytest.mark.parametrize("name", ALL)
def test_a_figure_is_whole_xml_with_a_title_and_a_description_and_reaches_for_nothing(drawn, name):
    files = drawn(*every_figure("")[name])
    root = ElementTree.fromstring(files.svg)
    assert root.attrib["role"] == "img"
    title, description = root[0], root[1]
    assert (title.tag, description.tag) == (f"{SVG}title", f"{SVG}desc")
    assert root.attrib["aria-labelledby"].split() == [title.attrib["id"], description.attrib["id"]]
    assert len(description.text) > 60
    assert files.texts  # letters are letters, not shapes
    targets = [value for element in root.iter() for key, value in element.attrib.items() if key.endswith("href")]
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    assert all(url.startswith("#") for url in re.findall(r"url\(([^)]*)\)", files.svg))
    assert "<!DOCTYPE" not in files.svg
    assert "@import" not in files.svg
    used = set(re.findall(r"(?:fill|stroke)(?:: |=\")(#[0-9a-f]{6})", files.svg.partition("</style>")[2]))
    assert used
    assert used <= DARK.keys(), "every colour has one for the dark"


@pytest.mark.parametrize("name", ALL)
def test_hostile_text_is_text(drawn, name):
    files = drawn(*every_figure(HOSTILE)[name])
    root = ElementTree.fromstring(files.svg)  # a control character or an open tag would not parse
    assert not list(root.iter(f"{SVG}script"))
    assert "<script" not in files.svg
    assert "\x1b" not in files.svg
    assert "\u202e" not in files.svg
    assert "\x1b" not in files.csv
    shown = " ".join([*files.texts, root[1].text])
    assert "</text><script>" in shown


def test_no_spreadsheet_takes_a_cell_for_a_formula():
    assert figure_csv([{"token": "=1+1", "n": 1, "x": 0.1 + 0.2, "none": None}]) == "token,n,x,none\n'=1+1,1,0.3,\n"


def test_a_response_of_many_clusters_shows_the_first_and_keeps_all(drawn):
    tokens = 40
    credit = TokenCredit(("a",) * tokens, (0.1,) * tokens, tuple(range(1, tokens + 1)), tuple(range(tokens)))
    files = drawn(clusters.picture, clusters.views(credit), "mini")
    assert len(files.rows) == tokens
    assert sum(text.startswith("cluster ") for text in files.texts) == clusters.MAX_CLUSTERS
    assert "24 clusters more in the CSV" in files.picture.description


def test_the_threshold_leaves_fifteen_percent_of_the_tokens_above(drawn):
    files = drawn(connectivity.picture, [i / 100 for i in range(100)], "mini", published("connectivity"))
    measured = [row for row in files.rows if row["source"] == "measured"]
    assert sum(int(row["num_above_threshold"]) for row in measured) == 15
    assert sum(int(row["num_below_threshold"]) for row in measured) == 85
    assert {row["threshold"] for row in measured} == {"0.84"}
    [paper] = [row for row in files.rows if row["source"] == "published"]
    assert (paper["num_above_threshold"], paper["num_below_threshold"]) == ("81", "459")


def test_words_count_a_token_wherever_it_stands_and_rank_by_mean_credit():
    other = TokenCredit(("The", "3"), (0.3, 0.6), (1.5, 2.5), (0, 1))
    found = words.words([CREDITED, other])
    assert [(word.token, word.count) for word in found[:1]] == [("3", 2)]
    assert found[0].mean_credit == 2.0  # 1.5 and 2.5
    the = next(word for word in found if word.token == "The")
    assert (the.count, the.mean_credit, the.mean_connectivity) == (2, 1.0, pytest.approx(0.2))
    assert [word.token for word in words.words([CREDITED, other], min_count=2)] == ["3", "The"]


def test_a_cloud_has_the_largest_words_first_each_at_the_same_place_every_time():
    many = [words.Word(f"word{i}", 1, 3 - i / 20, 0.1) for i in range(40)]
    placed = words.laid_out(many)
    assert placed == words.laid_out(many)
    assert [one.word for one in placed] == many[: len(placed)]  # what no room is left for is left out
    assert len(placed) > 30
    sizes = [one.size for one in placed]
    assert sizes == sorted(sizes, reverse=True)
    assert all(0 <= one.x < words.WIDTH and 0 < one.baseline <= words.HEIGHT for one in placed)


@pytest.mark.parametrize(
    ("token", "shown"), [(" image", "image"), (" ", "␣"), ("\n", "⏎"), ("", "⟨end⟩"), ("x" * 99, "x" * 23 + "…")]
)
def test_a_token_that_cannot_be_seen_is_shown_by_a_sign(token, shown):
    assert token_text(token) == shown


def test_a_clusters_share_is_of_the_credit_and_its_tokens_keep_their_order(drawn):
    rows = drawn(clusters.picture, clusters.views(CREDITED), "mini").rows
    # Cluster 1 has three tokens of 1.5 out of 6.0 in all.
    shares = [(r["cluster"], r["share_of_credit"], r["share_of_tokens"]) for r in rows]
    assert shares == [("1", "0.75", "0.5"), ("0", "0.25", "0.5")]
    assert rows[0]["tokens"] == "image shows 3"
    assert float(rows[0]["mean_connectivity"]) == pytest.approx((0.2 + 0.1 + 0.8) / 3, rel=1e-5)


def test_the_kinds_of_errors_and_the_right_answers_make_up_all(drawn):
    breakdown = errors.Breakdown("GRPO", Counter(correct=4, perception=3, reasoning=2, unexplained=1))
    rows = drawn(errors.picture, [breakdown], "MathVision", published("errors")).rows
    measured = {row["kind"]: float(row["percent"]) for row in rows if row["source"] == "measured"}
    kinds = {"perception": 30, "knowledge": 0, "reasoning": 20, "extraction": 0, "unexplained": 10}
    assert measured == kinds | {"correct": 40}
    printed = {row["method"]: row["percent"] for row in rows if row["source"] == "published"}
    assert printed == {"Zero-shot": "22.7", "GRPO": "26", "FT-RL": "27.6", "AT-RL": "30.3"}


def test_published_scores_over_scale_are_those_of_the_papers_tables(drawn):
    rows = drawn(*every_figure("")["scale"]).rows
    paper = {(r["method"], r["task"], r["num_parameters"]): r["percent"] for r in rows if r["source"] == "published"}
    assert paper["AT-RL, objective not said", "mathvista_testmini", "32000000000"] == "80.2"
    assert paper["AT-RL, objective not said", "mathverse_testmini", "32000000000"] == "56.6"
    assert paper["Untrained", "mathvista_testmini", "7000000000"] == "61.1"
    assert all(row["half_width_95"] == "" for row in rows if row["source"] == "published")


def test_a_benchmark_that_nobody_answered_has_an_empty_panel_without_a_legend(drawn):
    measured = [scale.Point("Untrained", "mathvista_testmini", 1.07e6, 45.0, 5.0)]
    files = drawn(scale.picture, measured, [], "smoke")
    assert [(row["task"], row["percent"]) for row in files.rows] == [("mathvista_testmini", "45")]
    assert files.texts.count("Untrained") == 1


def test_the_settings_of_a_credit_stand_in_the_order_of_their_score(drawn):
    files = drawn(anchors.picture, SCORES, "mini")
    credit = [(r["preset"], r["mean"]) for r in files.rows if r["part"] == CREDIT]
    assert credit == [("literal", "0.6"), ("default", "0.7")]


def sample(text, *, state="wrong", extracted="9"):
    problem = Problem("1", "1", "Find the sum of the digits.", Gold("12"))
    grade = Verdict(state, extracted, "fast", "")
    return Sample(problem, Response("1", 0, "", text, 1, 0.0, False), grade)


@pytest.mark.parametrize(
    ("text", "state", "extracted", "kind"),
    [
        ("The image shows 3 7 2. 3+7=10, 10+2=13.", "wrong", "13", "reasoning"),
        ("The image shows 372. 3+7=10.", "wrong", "10", "reasoning"),
        ("The image shows A 3 B 7 C 2. The answer is B.", "wrong", "B", "reasoning"),
        ("The image shows 8 7 2. 8+7=15, 15+2=17.", "wrong", "17", "perception"),
        ("The image shows 3 7. 3+7=10.", "wrong", "10", "perception"),
        ("The answer is 9.", "wrong", "9", "unexplained"),
        ("The image shows 3 7 2.", "unparseable", None, "extraction"),
        ("The image shows 3 7 2.", "timed out", "9", "extraction"),
    ],
)
def test_an_error_is_of_the_kind_that_the_ground_truth_says(text, state, extracted, kind):
    from atrl_bench.analysis.error_types import type_by_truth

    truth = SimpleNamespace(transcription="3 7 2")
    assert type_by_truth(sample(text, state=state, extracted=extracted), truth) == kind


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("perception", "perception"),
        ("The digits look wrong.\n**Reasoning**", "reasoning"),
        ("<think>perception</think>\nType: knowledge.", "knowledge"),
        ("perception\nextraction", "extraction"),
        ("It is perception, I think.", None),
        ("<think>perception", None),
        ("", None),
    ],
)
def test_a_judges_reply_is_read_from_a_line_that_is_a_kind_and_nothing_else(reply, kind):
    from atrl_bench.analysis.error_types import parse_type

    assert parse_type(reply) == kind

"""The chart metric: the program in a response, how alike two descriptions are, and charts that are really drawn."""

import io
import json
from collections import Counter

import needs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.errors import AtrlBenchError
from atrl_bench.grading.grade import GradingPool, grade
from atrl_bench.grading.scorers.charts.description import InvalidDescriptionError, colour_f1, f1, lab, read_description
from atrl_bench.grading.scorers.charts.scoring import MAX_PROGRAM_CHARS, draw, find_program, score_many
from atrl_bench.results.records import Gold


@pytest.fixture(autouse=True)
def _allowed(monkeypatch):
    monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", "1")


# The program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("First.\n```python\nx = 1\n```\nBetter:\n```python\nx = 2\n```\nDone.", "x = 2\n"),
        ("```py\nx = 1\n```\n```bash\npip install x\n```", "x = 1\n"),
        ("```python\nx = 1\n```\nIt prints\n```\n1\n```", "x = 1\n"),  # a marked block before an unmarked one
        ("```\nx = 1\n```", "x = 1\n"),
        ("```Python \nx = 1\n```", "x = 1\n"),
        ("   ```python\nx = 1```", "x = 1"),
        ("1. Draw:\n   ```python\n   x = 1\n   ```", "x = 1\n"),  # in a list
        ("```python\nx = 1\ny =", "x = 1\ny ="),  # cut off
        ("The code:\nimport matplotlib.pyplot as plt\nplt.plot([1])", "import matplotlib.pyplot as plt\nplt.plot([1])"),
        ("", None),
        ("The chart shows bars.", None),
        ("```bash\npip install matplotlib\n```", None),
        ("```python\n\n```", None),
        ("```python\n" + "x" * MAX_PROGRAM_CHARS + "\n```", None),
    ],
)
def test_the_program_in_a_response(response, program):
    assert find_program(response) == program


@pytest.mark.parametrize("response", ["```" * 300_000, "```" + "a" * 1_000_000, " " * 1_000_000, "```\n" * 200_000])
def test_a_hostile_response_is_read_to_its_end_and_holds_no_program(response):
    assert find_program(response) is None


# Likeness ---------------------------------------------------------------------------------------------------------


def test_f1_counts_what_two_charts_have_in_common():
    # 2 common ("a" once, "b" once), 3 given, 4 expected: 2·2 / 7
    assert f1(Counter(["a", "a", "b"]), Counter(["a", "b", "c", "d"])) == pytest.approx(4 / 7)
    assert f1(Counter(), Counter(["a"])) == 0.0
    assert f1(Counter(), Counter()) == 1.0


def test_colours_are_paired_with_the_nearest():
    assert colour_f1(["#ff0000", "#0000ff"], ["#0000ff", "#ff0000"]) == 1.0
    assert colour_f1(["#ff0000"], ["#ff0000", "#0000ff"]) == pytest.approx(2 / 3)
    assert colour_f1(["#000000"], ["#ffffff"]) == 0.0
    assert colour_f1(["map:viridis"], ["map:magma"]) == 0.0
    assert colour_f1([], []) == 1.0
    assert colour_f1([], ["#000000"]) == 0.0


def test_a_colour_loses_a_fiftieth_with_each_step_of_its_lightness():
    # Greys differ in lightness alone: #777777 has L* 50.03, #808080 53.59.
    assert lab("#777777") == pytest.approx([50.03, 0, 0], abs=0.05)
    assert colour_f1(["#777777"], ["#808080"]) == pytest.approx(1 - (53.59 - 50.03) / 50, abs=0.002)


COLOURS = st.lists(st.from_regex(r"\A#[0-9a-f]{6}\Z"), max_size=6, unique=True)


@given(COLOURS, COLOURS)
def test_likeness_of_colours_is_symmetric_and_between_0_and_1(left, right):
    value = colour_f1(left, right)
    assert 0.0 <= value <= 1.0 + 1e-12
    assert value == pytest.approx(colour_f1(right, left))
    assert colour_f1(left, left) == 1.0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"text": []}',
        b'{"text": [1], "layout": [], "type": [], "colour": []}',
        b'{"text": "ab", "layout": [], "type": [], "colour": []}',
        b'{"text": [], "layout": [], "type": [], "colour": ["red"]}',
        b'{"text": [], "layout": [], "type": [], "colour": [], "score": [1]}',
        b"[" * 100_000,
        json.dumps({"text": ["x"] * 5000, "layout": [], "type": [], "colour": []}).encode(),
    ],
)
def test_a_forged_description_is_none(content):
    with pytest.raises(InvalidDescriptionError):
        read_description(content)


# Drawing ----------------------------------------------------------------------------------------------------------

CHART = """
import matplotlib.pyplot as plt
fig, (left, right) = plt.subplots(1, 2, figsize=(4, 2))
left.bar(["a", "b"], [1, 2], color="red")
left.set_yticks([])
right.hist([1, 1, 2], color="#0000ff")
right.set_xticks([])
right.set_yticks([])
right.set_title("Counts")
fig.savefig("chart.pdf", bbox_inches="tight")
"""


def fenced(program):
    return f"```python\n{program}\n```"


@needs.isolation
def test_a_chart_is_described_by_what_is_drawn():
    drawing = draw(CHART)
    assert drawing.why == ""
    assert drawing.description is not None
    assert drawing.description.text == Counter(["a", "b", "Counts"])
    assert drawing.description.layout == Counter(["1x2: 0-1, 0-1", "1x2: 0-1, 1-2"])
    assert drawing.description.type == Counter(["bar", "hist"])  # the bars inside a histogram are none of their own
    assert drawing.description.colour == ("#0000ff", "#ff0000")
    from PIL import Image

    assert Image.open(io.BytesIO(drawing.picture)).size == (400, 200)


@needs.isolation
def test_a_part_that_differs_costs_its_part():
    gold = Gold(CHART, kind="text", metric="chart")
    other = CHART.replace('"Counts"', '"Bounds"').replace("left.bar", "left.barh").replace("left.set_yticks", "#")
    same, changed = score_many([(fenced(CHART), gold), (fenced(CHART.replace('"Counts"', '"Bounds"')), gold)])
    assert (same.state, same.score) == ("correct", 1.0)
    assert same.details == {"executed": 1.0, "text": 1.0, "layout": 1.0, "type": 1.0, "colour": 1.0}
    # Of three texts each, two are common: 2·2 / 6.
    assert changed.details == {"executed": 1.0, "text": pytest.approx(2 / 3), "layout": 1.0, "type": 1.0, "colour": 1.0}
    assert (changed.state, changed.score) == ("wrong", pytest.approx((2 / 3 + 3) / 4))
    [worse] = score_many([(fenced(other), gold)])
    assert worse.details["type"] == 0.5


@needs.isolation
def test_what_does_not_run_scores_0_and_says_why():
    gold = Gold(CHART, kind="text", metric="chart")
    forged = f"{CHART}\nimport atexit; atexit.register(lambda: open('chart.png', 'w').write('no picture'))"
    answers = ["1 / 0", "print('no chart')", forged, "def ("]
    verdicts = score_many([(fenced(answer), gold) for answer in answers])
    assert [verdict.points for verdict in verdicts] == [0.0] * 4
    assert all(verdict.details["executed"] == 0.0 for verdict in verdicts)
    whys = [verdict.why.removeprefix("the program does not run: ") for verdict in verdicts]
    assert whys[:3] == ["ZeroDivisionError: division by zero", "it draws nothing", "its picture is no PNG file"]
    assert "SyntaxError" in whys[3]


@needs.isolation
def test_a_gold_that_does_not_run_makes_no_answer_wrong():
    verdict = grade(fenced(CHART), Gold("import no_such_package", kind="text", metric="chart"))
    assert verdict.state == "unparseable"
    assert "no_such_package" in verdict.why


@needs.isolation
def test_a_figure_closed_after_saving_and_one_never_saved_both_count():
    gold = Gold("import matplotlib.pyplot as plt\nplt.plot([1, 2])", kind="text", metric="chart")
    closing = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('x.png')\nplt.clf()\nplt.close('all')"
    assert grade(fenced(f"{closing}\nraise SystemExit"), gold).score == 1.0


@needs.isolation
def test_a_pool_grades_programs_and_formulas_together():
    gold = Gold("import matplotlib.pyplot as plt\nplt.plot([1, 2])", kind="text", metric="chart")
    with GradingPool() as pool:
        verdicts = pool.grade_many([("\\boxed{4}", Gold("4")), ("no program", gold), (fenced(gold.answer), gold)])
    assert [verdict.state for verdict in verdicts] == ["correct", "unparseable", "correct"]


def test_without_permission_a_program_is_not_graded(monkeypatch):
    monkeypatch.delenv("ATRL_BENCH_ALLOW_CODE")
    with pytest.raises(AtrlBenchError, match="not allowed"):
        grade(fenced("x = 1"), Gold("x = 1", kind="text", metric="chart"))


@needs.isolation
@pytest.mark.parametrize(
    ("program", "kinds", "colours"),
    [
        ("plt.imshow([[1, 2], [3, 4]]); plt.colorbar()", {"imshow"}, ("map:viridis",)),
        ("plt.pie([1, 2], colors=['red', '#00ff00'])", {"pie"}, ("#00ff00", "#ff0000")),
        ("plt.subplot(projection='3d').plot_surface(np.eye(2), np.eye(2), np.eye(2), cmap='magma')", None, None),
        ("plt.subplot(projection='polar').plot([0, 1], [0, 1], color='k')", {"plot"}, ("#000000",)),
    ],
)
@pytest.mark.slow
def test_many_kinds_of_charts_are_described(program, kinds, colours):
    description = draw(f"import matplotlib.pyplot as plt\nimport numpy as np\n{program}").description
    assert description is not None
    assert set(description.type) == (kinds or {"plot_surface"})
    assert description.colour == (colours or ("map:magma",))

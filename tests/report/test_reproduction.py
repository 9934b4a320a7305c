"""What is said of each row of the paper, with numbers a reader can redo."""

from dataclasses import replace
from decimal import Decimal

import pytest

from atrl_bench.report.html import render_html
from atrl_bench.report.latex import render_latex
from atrl_bench.report.paper import against_paper
from atrl_bench.report.text import render_markdown
from atrl_bench.results.statistics.means import Difference, Estimate


def measured(mean: float, stderr: float) -> Estimate:
    return Estimate(mean, stderr, 1000, 1000, 1000)  # Student's t at 999 degrees: 1.962


@pytest.fixture(scope="module")
def paper(make_table):
    """Zero-shot and SAPO + AT-RL, whose published averages are 45.01 and 53.25, as if profile `paper` had run."""
    table = make_table(problems=6, rows=["zero_shot", "sapo_atrl"])
    return replace(table, profile="paper", is_comparable=True)


def with_average(table, row: str, *, score: Estimate, gain: Estimate | None = None):
    """Return the table with this measured average of one row."""
    rows = []
    for item in table.rows:
        if item.id == row:
            difference = Difference.tested(gain, "paired t", 0.01) if gain else None
            last = replace(item.cells[-1], estimate=score, difference=difference, state="measured")
            item = replace(item, cells=(*item.cells[:-1], last))
        rows.append(item)
    return replace(table, rows=tuple(rows))


@pytest.mark.parametrize(
    ("gain", "stderr", "verdict"),
    [
        (0.075, 0.010, "reproduced"),  # 7.5 ±2.0 against 8.24: 0.74 apart, less than 2.0 times the root of two
        (0.030, 0.010, "not reproduced"),  # 5.24 apart, more than 2.8
        (0.120, 0.010, "not reproduced"),  # 3.76 above
        (0.040, 0.030, "within noise"),  # 4.0 ±5.9: 4.24 apart, less than 8.3, and zero is inside
    ],
)
def test_a_rows_gain_is_reproduced_or_not_or_lost_in_the_noise(paper, gain, stderr, verdict):
    table = with_average(paper, "sapo_atrl", score=measured(0.5, 0.01), gain=measured(gain, stderr))
    found = {item.row: item for item in against_paper(table)}["sapo_atrl"]
    assert found.verdict == verdict
    assert found.sentence.startswith(verdict.capitalize())
    assert "+8.24" in found.sentence  # 53.25 - 45.01


@pytest.mark.parametrize(("score", "verdict"), [(0.46, "reproduced"), (0.50, "not reproduced")])
def test_the_baselines_own_score_is_compared(paper, score, verdict):
    # The paper's 45.01; ±2.0 of ours is ±2.8 of both.
    found = against_paper(with_average(paper, "zero_shot", score=measured(score, 0.01)))[0]
    assert (found.row, found.verdict) == ("zero_shot", verdict)


def test_each_number_has_its_difference_and_the_noise_of_both(paper):
    table = with_average(paper, "zero_shot", score=measured(0.46, 0.01))
    pair = against_paper(table)[0].pairs[-1]
    assert (pair.column, pair.published, pair.measured) == ("Average", 0.4501, 0.46)
    assert pair.difference == pytest.approx(0.0099)
    assert pair.half_width == pytest.approx(1.4142 * 1.962 * 0.01, rel=1e-3)
    assert not pair.is_apart


def test_mini_numbers_are_never_compared(make_table):
    for item in against_paper(make_table(problems=6, rows=["zero_shot", "grpo"])):
        assert item.verdict == "not comparable"
        assert "profile mini" in item.sentence
        assert not item.pairs


def test_a_row_that_is_not_finished_or_not_measured_is_not_compared(make_table):
    table = make_table(problems=6, rows=["zero_shot", "grpo", "vppo"], leave_out={("grpo", "wemath_testmini")})
    found = {item.row: item for item in against_paper(replace(table, profile="paper", is_comparable=True))}
    assert found["grpo"].sentence == "Not comparable yet: WeMath, Average is missing or incomplete here."
    if any(row.id == "vppo" and row.cells[0].state == "not measured" for row in table.rows):
        assert found["vppo"].sentence.startswith("Not comparable: ")


def test_without_an_average_each_column_is_compared_and_the_worst_is_said(paper):
    columns = tuple(
        replace(row, scores=tuple(replace(s, score=Decimal("1.00")) for s in row.scores)) for row in paper.published
    )
    table = replace(paper, published=columns, columns=(*paper.columns[:-1], replace(paper.columns[-1], id="last")))
    found = against_paper(table)[0]
    assert found.sentence.startswith("Of 6 columns: ")


def test_the_comparison_stands_in_every_kind_of_output(paper):
    html, text, source = render_html(paper), render_markdown(paper), render_latex(paper)["_verdicts"]
    for item in against_paper(paper):
        assert item.sentence.split(":")[0] in html
        assert item.sentence.split(":")[0] in text
        assert item.sentence.split(":")[0] in source
    assert "Published and measured" in html

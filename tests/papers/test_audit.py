"""The audit finds in the paper what was found by hand, and nothing in numbers that are as they should be."""

import json
import re
from decimal import Decimal
from math import comb, isclose, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.papers.arithmetic import arithmetic, prose
from atrl_bench.papers.audit import audit
from atrl_bench.papers.contradictions import coincidences, contradictions
from atrl_bench.papers.granularity import chance_of_fit, fit, granularity, is_possible, last_digits
from atrl_bench.papers.noise import bounds
from atrl_bench.papers.paper import load_paper
from atrl_bench.papers.printed import (
    Claim,
    Derived,
    Order,
    SameExperiment,
    Score,
    Size,
    compute,
    load_claims,
)
from atrl_bench.report.analysis_pages import audit_html, audit_text, write_audit

OURS = load_paper("at_rl")


@pytest.fixture(scope="module")
def paper():
    """The audit of the paper's own tables, by section."""
    return {section.id: section for section in audit(OURS)}


def details(section, **wanted):
    """Return the details of the one finding that has these."""
    (found,) = [f.details for f in section.findings if all(f.details.get(k) == v for k, v in wanted.items())]
    return found


def score(value: str, row: str = "a", *, table: str = "t", column: str = "c", task: str = "task", **fields) -> Score:
    return Score(table, row, column, row, column, Decimal(value), task, benchmark=task, **fields)


# What the paper prints ------------------------------------------------------------------------------------------------


def test_no_derived_number_of_any_table_of_the_paper_is_wrong(paper):
    # 66 + 60 + 27 + 11 + 3 arrows, 24 averages, 24 changes of the grouping table, 24 Δ of the two sensitivity tables.
    assert paper["arithmetic"].summary == "239 derived numbers: none of them wrong."
    assert details(paper["arithmetic"], table="main_7b", kind="change")["numbers"] == 66
    assert details(paper["arithmetic"], table="cross_dataset", kind="average")["numbers"] == 12
    assert paper["arithmetic"].count("fails") == 0


@pytest.mark.parametrize(
    ("task", "total", "num_fits", "by_chance"),
    [
        ("mathvista_testmini", 1000, 12, 1.2),
        ("mathvision_testmini", 304, 3, 0.4),
        ("mathvision_testmini", 8 * 304, 4, 2.9),
        ("mathvision_testmini", 3040, 9, 3.6),
        ("mathvision_testmini", 8 * 3040, 12, 12.0),
        ("geoqa_test", 754, 1, 0.9),
        ("geoqa_test", 8 * 754, 5, 7.2),
        ("geoqa_test", 8 * 735, 6, 7.1),
        ("wemath_testmini", 1740, 4, 2.1),
        ("mathverse_testmini", 3940, 4, 4.7),
    ],
)
def test_the_main_table_fits_so_many_sizes_and_no_more(paper, task, total, num_fits, by_chance):
    sizes = details(paper["granularity"], table="main_7b", task=task)["sizes"]
    (found,) = [size for size in sizes if size["total"] == total]
    assert found["fits"] == num_fits
    assert round(found["by_chance"], 1) == by_chance


def test_forty_five_of_fifty_scores_on_other_data_are_rounded_to_0_05_and_four_of_44_in_the_main_table(paper):
    rounded = details(paper["last_digits"], table="cross_dataset")
    assert (rounded["round"], rounded["scores"]) == (45, 50)
    usual = details(paper["last_digits"], table="main_7b")
    assert (usual["round"], usual["scores"]) == (4, 44)
    # Without MathVista, whose 1,000 problems favour a last 0: P(at least 35 of 40) at 1 in 5, by the binomial formula.
    assert isclose(rounded["p"], sum(comb(40, k) * 0.2**k * 0.8 ** (40 - k) for k in range(35, 41)), rel_tol=1e-6)
    assert [f.where for f in paper["last_digits"].findings if f.outcome == "fails"] == ["cross_dataset"]


@pytest.mark.parametrize(
    ("cells", "apart"),
    [
        ({"hard_truncation/atrl/mathverse_testmini", "grouping/full/mathverse_testmini"}, 0.67),
        ({"bias_correction/grpo/mathverse_testmini", "cross_dataset/grpo_3b/mathverse_testmini"}, 0.18),
        ({"kl_free/kl/geoqa_test", "main_7b/grpo_atrl/geoqa_test"}, 3.83),
    ],
)
def test_one_experiment_with_two_numbers_is_found(paper, cells, apart):
    (found,) = [f for f in paper["contradictions"].findings if set(f.details.get("cells", ())) == cells]
    assert found.outcome == "fails"
    assert found.details["apart"] == pytest.approx(apart)


def test_the_texts_5_1_points_hold_only_if_both_averages_are_rounded_first(paper):
    (found,) = [f for f in paper["prose"].findings if f.details.get("printed") == "5.1"]
    assert found.outcome == "fails"
    assert found.computed == "5.1667; 5.1 only if the averages are rounded first"


def test_the_error_figure_has_another_number_than_the_table_for_ft_rl_and_grpo_and_the_same_for_the_others(paper):
    figure = {f.details["printed"]: f.outcome for f in paper["prose"].findings if "error" in f.where}
    assert figure == {"22.7": "holds", "30.3": "holds", "27.6": "fails", "26.0": "fails"}


def test_equal_numbers_of_different_experiments_are_listed_with_how_many_chance_gives(paper):
    pairs = {frozenset((f.details["first"], f.details["second"])) for f in paper["coincidences"].findings}
    assert (
        frozenset(("cross_dataset/ft_rl_7b/mathverse_testmini", "hard_truncation/random/mathverse_testmini")) in pairs
    )
    assert frozenset(("hard_truncation/atrl/mathverse_testmini", "kl_free/kl_free/geoqa_test")) in pairs
    assert re.fullmatch(r"\d+ equal pairs; about \d+ are expected by chance\.", paper["coincidences"].summary)


def test_the_gain_on_mathverse_is_beyond_noise_and_the_best_of_mathvision_is_not(paper):
    readings = {f.where: f.details["reading"] for f in paper["noise"].findings if "reading" in f.details}
    assert readings["main_7b: SAPO + AT-RL against SAPO, MathVerse"] == "beyond noise"
    assert readings["main_7b: SAPO + AT-RL against GSPO + AT-RL, MathVision"] == "noise"
    assert readings["main_7b: GRPO + AT-RL against GRPO, MathVision"] == "undecided"


def test_every_address_and_claim_in_the_paper_file_can_be_computed(paper):
    claims = load_claims(OURS)
    assert len(paper["prose"].findings) == len(claims.claims) + len(claims.orders)


# Arithmetic -----------------------------------------------------------------------------------------------------------


def test_a_wrong_average_and_a_wrong_arrow_are_found_and_named():
    scores = [score("10.00", "zero"), score("20.01", "zero", column="d"), score("12.50"), score("20.00", column="d")]
    derived = [
        Derived("t", "zero", "average", "average", "", Decimal("15.01")),  # 15.005, halves up
        Derived("t", "a", "average", "average", "", Decimal("16.25")),
        Derived("t", "a", "average", "change", "zero", Decimal("1.24")),  # of the rounded averages
        Derived("t", "a", "c", "change", "zero", Decimal("2.50")),
        Derived("t", "a", "d", "change", "zero", Decimal("0.01")),  # the sign is wrong
    ]
    section = arithmetic(scores, sorted(derived, key=lambda item: item.kind))
    assert [(f.printed, f.computed) for f in section.findings if f.sure == "certain" and not f.details] == [
        ("0.01", "-0.01")
    ]
    assert section.summary == "5 derived numbers: 1 of them wrong."


def test_formulas_of_claims_are_read_and_never_run():
    scores = {("t", "a", "c"): Decimal("12.34"), ("t", "b", "c"): Decimal("10.00")}
    assert compute({"minus": ["t/a/c", "t/b/c"]}, scores) == Decimal("2.34")
    assert compute({"share": [81, 540]}, scores) == 15
    assert compute({"mean": ["t/a/c", "t/b/c"]}, scores, digits=1) == Decimal("11.2")
    with pytest.raises(InvalidFileError, match="unknown operation '__import__'"):
        compute({"__import__": [1]}, scores)
    with pytest.raises(InvalidFileError, match="no printed score at t/x/c"):
        compute("t/x/c", scores)


def test_a_claim_of_less_than_holds_strictly_below_and_an_order_only_where_it_is_above():
    scores = [score("50.0", "a"), score("50.0", "b"), score("60.0", "a", column="d"), score("50.0", "b", column="d")]
    less = Claim(says="s", where="w", printed="<0.2", formula={"minus": ["t/a/c", "t/b/c"]})
    order = Order(says="s", where="w", table="t", better="a", worse="b")
    section = prose(scores, [less], [order])
    assert [f.outcome for f in section.findings] == ["holds", "fails"]  # a tie is not above
    assert section.findings[1].details["exceptions"] == ["c"]


# Contradictions -------------------------------------------------------------------------------------------------------


def test_equal_definitions_with_different_numbers_contradict_and_different_ones_do_not():
    one, other = (("method", "grpo"),), (("method", "dapo"),)
    scores = [
        score("50.00", table="t", experiment=one),
        score("51.00", table="u", experiment=one),
        score("51.00", table="v", experiment=other),
    ]
    section = contradictions(scores, (), ())
    assert [(f.outcome, f.details["apart"]) for f in section.findings] == [("fails", 1.0)]
    assert coincidences(scores).findings[0].details == {"first": "u/a/c", "second": "v/a/c"}


def test_a_matched_pair_of_cells_is_not_reported_a_second_time():
    same = SameExperiment(what="w", cells=("t/a/c", "u/a/c"), why="y")
    scores = [score("50.00", table=table, experiment=(("method", "grpo"),)) for table in "tu"]
    assert len(contradictions(scores, [same], ()).findings) == 1


# Granularity ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5000), st.data(), st.sampled_from([1, 2]))
def test_every_share_of_a_whole_number_is_possible_however_it_is_rounded(total, data, digits):
    k = data.draw(st.integers(0, total))
    exact = Decimal(100 * k) / total
    unit = Decimal(1).scaleb(-digits)
    for rounding in ("ROUND_HALF_UP", "ROUND_HALF_DOWN", "ROUND_HALF_EVEN"):
        assert is_possible(exact.quantize(unit, rounding), total)


def test_a_third_decimal_tells_what_is_impossible():
    assert is_possible(Decimal("22.70"), 304)  # 69 of 304 is 22.697
    assert not is_possible(Decimal("24.37"), 304)  # 74 gives 24.34, 75 gives 24.67
    assert chance_of_fit(304, 2) == 0.0304
    assert chance_of_fit(20_000, 2) == 1.0
    assert fit([Decimal("61.10"), Decimal("62.75")], 1000, "w").num_fits == 1


@pytest.mark.parametrize("order", [1, -1])
def test_each_score_counts_with_its_own_decimals(order):
    # Over 304 problems 304 in 1,000 numbers of one decimal are possible, 304 in 10,000 of two.
    found = fit([Decimal("22.7"), Decimal("22.70")][::order], 304, "w")
    assert (found.num_fits, found.expected) == (2, pytest.approx(0.304 + 0.0304))
    assert (found.tail, found.reading) == (pytest.approx(0.304 * 0.0304), "untestable")


def test_a_size_that_everything_fits_confirms_nothing():
    scores = [score(f"{k}.{k}") for k in range(10, 30)]
    section = granularity(scores, {"task": [Size(problems=5000, what="many")]}, 8)
    assert [f.outcome for f in section.findings] == ["open"]


def test_a_benchmark_of_1000_problems_is_left_out_of_the_last_digits():
    scores = [score(f"{50 + k}.{k % 10}0", f"r{k}") for k in range(20)]
    assert last_digits(scores, {"task": [Size(problems=1000, what="w")]}).findings == ()
    assert last_digits(scores, {}).findings[0].details["round"] == 20


# Noise ----------------------------------------------------------------------------------------------------------------


def test_the_bounds_of_a_difference_can_be_redone_by_hand():
    # 60 and 50 of 100: sqrt((0.24 + 0.25) / 100) = 0.07; ten wins and no loss: 2 / 2^10.
    found = bounds(60.0, 50.0, 100)
    assert found.unpaired_stderr == pytest.approx(7.0)
    assert found.best_case_p == 2 / 1024
    # 10 / sqrt(D) = 1.96 at D = 26.03 of 100 problems.
    assert found.max_changed == pytest.approx((10 / 1.959964) ** 2 / 100)
    assert found.reading == "undecided"


def test_five_problems_are_noise_however_they_are_paired_and_six_may_not_be():
    assert bounds(55.0, 50.0, 100).reading == "noise"  # 2 / 2^5 = 0.0625
    assert bounds(56.0, 50.0, 100).reading == "undecided"  # 2 / 2^6 = 0.031
    assert bounds(80.0, 50.0, 100).reading == "beyond noise"


@given(st.floats(0, 100), st.floats(0, 100), st.integers(1, 10_000))
def test_the_order_of_the_two_scores_changes_only_the_sign(one, other, total):
    forward, back = bounds(one, other, total), bounds(other, one, total)
    assert (forward.reading, forward.difference) == (back.reading, -back.difference)
    assert forward.unpaired_stderr <= 100 * sqrt(0.5 / total) + 1e-9


# The page -------------------------------------------------------------------------------------------------------------


def test_the_audit_is_a_page_a_text_of_eighty_columns_and_a_record(paper, tmp_path):
    sections = list(paper.values())
    text = audit_text(sections, OURS)
    assert max(map(len, text.splitlines())) <= 80
    assert "5.1667; 5.1 only if" in text
    assert len(audit_text(sections, OURS, everything=True)) > 2 * len(text)
    paths = write_audit(sections, tmp_path, OURS)
    assert [path.name for path in paths] == ["audit.html", "audit.txt", "audit.json"]
    assert json.loads(paths[2].read_text())["sections"][0]["id"] == "arithmetic"
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in write_audit(audit(OURS), tmp_path, OURS)] == before


def test_the_page_has_every_finding_and_asks_for_nothing(paper):
    page = audit_html(list(paper.values()), OURS)
    assert page.count("<tr><th") >= sum(len(section.findings) for section in paper.values())
    assert "default-src" in page
    assert not re.search(r"<script|https?://|src=", page)


def test_hostile_text_in_a_claim_is_text_on_the_page():
    claim = Claim(says="<script>alert(1)</script>", where="\x1b[2J<img src=x>", printed="1", formula=1)
    page = audit_html([prose([], [claim], ())])
    assert "&lt;script&gt;alert(1)" in page
    assert "<img" not in page
    assert "\x1b" not in audit_text([prose([], [claim], ())], everything=True)


def test_the_audit_of_some_tables_takes_those_alone_and_names_near_ones():
    assert {f.details["table"] for f in audit(OURS, ["main_7b"])[0].findings} == {"main_7b"}
    with pytest.raises(UnknownNameError, match="main_7b"):
        audit(OURS, ["main7b"])


def test_equal_scores_are_likelier_on_a_coarser_grid():
    fine, coarse = ["50.01", "50.33"], ["50.10", "50.40"]
    found = []
    for values in (fine, coarse):
        scores = [score(value, table=table) for value, table in zip(values, "tu", strict=True)]
        found.append(coincidences([*scores, *scores] * 26).summary)
    # 26 x 2 scores in each of two tables: 2,704 pairs within half a point, one in 101 or one in 11 of them equal.
    assert found == [
        "0 equal pairs; about 27 are expected by chance.",
        "0 equal pairs; about 246 are expected by chance.",
    ]

"""The sentences of the front page say no more than the numbers behind them."""

from dataclasses import asdict, fields

from atrl_bench.analysis.anchors import CREDIT, LAST, AnchorScore
from atrl_bench.report.drawing import figure_csv
from atrl_bench.report.figures.anchors import read_scores
from atrl_bench.report.front_page import Finding, findings
from atrl_bench.report.table_model import Comparison, Row, Table
from atrl_bench.results.statistics.means import Difference, Estimate, SeedSpread

# With so many degrees of freedom half of the interval is 1.96 standard errors.
DEGREES = 1e9


def comparison(other, mean, stderr=0.005, q=0.001, sd=0.001, num_seeds=5, row="AT-RL", training=None) -> Comparison:
    difference = Difference.tested(Estimate(mean, stderr, DEGREES, num_problems=100, num_groups=100), "t", 0.5)
    seeds = SeedSpread(mean, sd, num_seeds)
    return Comparison(row, other, (), (), seeds, training, row, difference, q, by_seed=(mean,) * num_seeds)


def only(kind, **values):
    """Return a value of this type with nothing in it but `values`."""
    return kind(**dict.fromkeys((field.name for field in fields(kind)), ()) | values)


def said(*comparisons) -> Finding:
    rows = [("AT-RL", "atrl"), ("Top", "hard_truncation, kept_fraction=0.15"), ("Random order", "random")]
    rows += [("Reverse order", "reverse"), ("Uniform", "uniform")]
    rows = tuple(only(Row, id=label, label=label, credit=credit) for label, credit in rows)
    return findings({"credit_placement": only(Table, rows=rows, comparisons=comparisons)}, [], "mini")[1]


def test_a_question_without_a_table_names_the_command_that_answers_it():
    helps, placement = findings({}, [], "smoke")
    assert (helps.text, helps.because, helps.figure) == ("Not answered yet.", (), "")
    assert helps.command == "atrl-bench run-table main_7b --profile smoke"
    assert placement.command == "atrl-bench run-table credit_placement --profile smoke"


def test_differences_that_are_clear_are_named_with_their_sides():
    others = comparison("Random order", 0.03, q=0.3), comparison("Reverse order", -0.04)
    found = said(comparison("Uniform", 0.05), *others)
    # With 0.5 points of error, 1.96 + 0.84 errors are seen four times in five.
    assert found.text == (
        "Clear: AT-RL − Uniform +5.0; AT-RL − Reverse order −4.0 points. "
        "1 of 3 differences is not clearly different from zero; 1.4 points could be detected with 80 % power."
    )
    assert (found.answer.kind, found.answer.badge) == ("mixed", "Gain in 1, loss in 1 of 3")
    assert found.because == (
        "AT-RL: against Uniform +5.0 points ±1.0 over problems and 5 seeds: clear; "
        "against Random order +3.0 points ±1.0 over problems and 5 seeds; "
        "against Reverse order −4.0 points ±1.0 over problems and 5 seeds: clear.",
    )
    assert found.page == "credit_placement.html#credit"
    gain, loss = said(comparison("Uniform", 0.05)), said(comparison("Uniform", -0.05))
    assert (gain.answer.badge, gain.text) == ("Gain", "Different from zero: AT-RL − Uniform +5.0 points.")
    assert (loss.answer.badge, loss.text) == ("Loss", "Different from zero: AT-RL − Uniform −5.0 points.")


def test_what_the_corrected_test_leaves_open_is_not_called_clear():
    found = said(comparison("Uniform", 0.05, q=0.2))
    assert found.answer.badge == "No difference that 5 seeds could show"
    assert found.text == (
        "The difference is +5.0 points and is not clearly different from zero. "
        "A difference of 1.4 points could be detected with 80 % power."
    )
    assert "clear" not in found.because[0]


def test_one_seed_settles_nothing_however_large_the_difference():
    found = said(comparison("Uniform", 0.5, sd=None, num_seeds=1))
    assert (found.answer.kind, found.answer.badge) == ("open", "One seed cannot tell")
    assert "one seed" in found.because[0]


def test_a_comparison_that_still_grows_holds_the_answer_back():
    found = said(comparison("Uniform", 0.05), comparison("Random order", 0.05, q=None))
    assert (found.answer.badge, found.text) == ("Not finished", "1 of 2 comparisons still lacks answers.")
    assert found.because[0].endswith("and 5 seeds: not finished.")


def test_rows_whose_credit_is_not_on_anchors_are_no_evidence():
    found = said(comparison("Uniform", 0.05), comparison("Uniform", -0.5, row="Random order"))
    assert found.text == "Different from zero: AT-RL − Uniform +5.0 points."
    assert found.figure == "credit_placement_anchors.svg"
    assert "Random order" not in found.seen
    assert said(comparison("Uniform", 0.05, row="Top")).text.startswith("Different from zero: Top − Uniform")


def test_the_accuracy_while_training_has_a_sentence_and_a_correction_of_its_own():
    """0.02 with sd 0.01 over five seeds is 4.47 standard errors: p = 0.011, and 0.022 beside one other."""
    ahead, level = (SeedSpread(mean, 0.01, 5) for mean in (0.02, 0.0005))
    found = said(comparison("Uniform", 0, q=0.9, training=ahead), comparison("Random order", 0, q=0.9, training=level))
    assert found.because[0] == "In the accuracy while training, 1 of 2 is clear: AT-RL against Uniform +2.0 points."
    assert "; while training +2.0 ±1.2 over 5 seeds;" in found.because[1]
    many = [comparison(f"row {n}", 0, q=0.9, training=level) for n in range(9)]
    found = said(comparison("Uniform", 0, q=0.9, training=ahead), *many)  # 10 * 0.011 is more than 0.05
    assert found.because[0] == "In the accuracy while training no difference is clear either."


def anchors() -> list[AnchorScore]:
    """Return scores with an error of 0.01 on every number."""
    means = {
        (LAST, "", "1", "own", True): 0.5,
        (LAST, "", "1", "own", False): 0.5,
        (LAST, "", "1", "predicting", True): 0.9,
        (LAST, "", "1", "predicting", False): 0.8,
        (CREDIT, "default", "atrl", "predicting", True): 0.7,
        (CREDIT, "default", "raw_attention", "predicting", True): 0.95,
        (CREDIT, "default", "atrl, sinks kept", "predicting", True): 0.69,
        (CREDIT, "default", "atrl, 3 tokens a cluster", "predicting", True): 0.85,
        (CREDIT, "default", "atrl, own rows", "own", True): 0.55,
        (CREDIT, "literal", "atrl", "own", True): 0.6,
    }
    return [
        AnchorScore(part, setting, reading, corrected, mean, 0.01, 60, preset)
        for (part, preset, setting, reading, corrected), mean in means.items()
    ]


def test_the_scores_of_a_drawn_figure_are_read_back_and_none_of_one_that_was_cut_off(tmp_path):
    path = tmp_path / "anchors.csv"
    assert read_scores(path) == []
    path.write_text(figure_csv(list(map(asdict, anchors()))))
    assert read_scores(path) == anchors()
    path.write_text(path.read_text()[:-12])
    assert read_scores(path) == []
    assert len(findings({}, read_scores(path), "mini")) == 2


def test_the_best_reading_is_told_setting_by_setting():
    found = findings({}, anchors(), "mini")[2]
    assert found.text == (
        "The predicting row: its density has an area under the ROC curve of 0.90 ±0.02, where 0.5 is chance. Of all "
        "credit rules the best is raw attention with 0.95 ±0.02; AT-RL's has 0.70 ±0.02."
    )
    # 1.96 * 0.01 * sqrt(2) is 0.028: a difference of 0.01 is within it, one of 0.1 is not.
    assert "(difference +0.40, clear)" in found.because[0]
    assert "0.90 ±0.02 with it, 0.80 ±0.02 without (+0.10, clear)" in found.because[1]
    assert "0.70 ±0.02 without sinks, 0.69 ±0.02 with (+0.01, within noise)" in found.because[3]
    assert "0.55 ±0.02 with own rows, 0.60 ±0.02 by the letter" in found.because[4]
    assert "0.85 ±0.02 (+0.15, clear)" in found.because[5]

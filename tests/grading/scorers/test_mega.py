"""MEGA-Bench's field metrics: scores to redo by hand, parsers, what cannot be scored, and hostile answers."""

import math
import time

import needs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_bench.grading.grade import GradingPool
from atrl_bench.grading.scorers.mega.literals import (
    UnreadableLiteralError,
    find_literals,
    read_literal,
    try_literal,
)
from atrl_bench.grading.scorers.mega.scoring import BY_CONTEXT, BY_REFERENCE, UNAVAILABLE, mega, pack_rules
from atrl_bench.results.records import Gold

SLOW = {"latex_expr_equality", "text_with_latex_expr_equality"}  # ask sympy
PROGRAM = {"program_judge"}  # runs the answer


def gold_of(metrics, answer, parser="answer_string", context=None, aggregation="mean", weights=None, **more) -> Gold:
    """The gold of a row with these columns, written as the dataset writes them."""
    info = {
        "field_score_function": metrics,
        "aggregation": {"function": aggregation, "field_weights": weights or dict.fromkeys(metrics, 1)},
        "response_parse_function": parser,
        **more,
    }
    return Gold(str(answer), metric="mega", rules=pack_rules(str(info), str(answer), str(context or {})))


def one_field(metric, gold, parser="answer_string", context=None) -> Gold:
    return gold_of({"answer": metric}, {"answer": gold}, parser, context)


# The families -----------------------------------------------------------------------------------------------------

SCORES = [
    # strings
    ("exact_str_match", "B", "B", 1),
    ("exact_str_match", "(B)", "B", 1),
    ("exact_str_match", "B. a cat", "B", 1),
    ("exact_str_match", "Because it is so", "B", 0),  # the official script takes any first letter
    ("exact_str_match", "b", "B", 0),
    ("exact_str_match", 7, "7", 1),
    ("exact_str_match_case_insensitive", "b", "B", 1),
    ("simple_str_match", "Two-Words.", "two words", 1),
    ("simple_str_match", "two", "two words", 0),
    ("near_str_match", "the café noir", "Cafe noir", 1),
    ("near_str_match", "abcdefghiX", "abcdefghij", 0.9),  # one of ten letters
    ("near_str_match", "abcdefghXX", "abcdefghij", 0),  # 0.8 is not near
    ("normalized_similarity_damerau_levenshtein", "acb", "abc", 2 / 3),  # one swap of three letters
    ("normalized_similarity_damerau_levenshtein", "kitten", "sitting", 4 / 7),  # three edits of seven letters
    ("normalized_similarity_damerau_levenshtein", "ca", "abc", 1 / 3),  # a swap, and a letter between
    ("multi_ref_phrase", "seven", "[7, Seven]", 1),
    ("multi_ref_phrase", "eight", "[7, Seven]", 0),
    ("multi_ref_phrase", "U.S.A.", "['USA', 'United States']", 1),
    ("code_result_exact_str_match", "1\n 2", "```\n1\n 2\n```", 1),
    ("code_result_exact_str_match", "1\n2", "```\n1\n 2\n```", 0),
    # sets
    ("set_equality", "3, 1, 2", "[1, 2, 3]", 1),
    ("set_equality", "[1, 2]", "[1, 2, 3]", 0),
    ("set_equality", "[[2, 1]]", "[(2, 1)]", 1),
    ("set_equality_case_insensitive", "{b, a}", "['A', 'B']", 1),
    ("str_set_equality_line_break", "b\nA", "a\nB", 1),
    ("str_set_equality_comma", "none", "None", 1),
    ("str_set_equality_comma", "", "None", 0),  # officially nothing and None are the same
    ("jaccard_index", "[1, 2]", "[2, 3]", 1 / 3),
    ("jaccard_index", [1, 2], "1, 2", 1),
    ("jaccard_index_case_insensitive", "[A, b]", "[a, c]", 1 / 3),
    ("jaccard_index_case_insensitive", "[('New York', 'NY')]", "[('new-york', 'ny')]", 1),
    ("set_precision", "[1, 9]", "[1, 2, 3]", 1 / 2),
    ("set_precision", "", "[1, 2, 3]", 0),  # officially 1
    ("chess_move_list_jaccard_index", "[Qh7#, Ra1]", "[Qh7+, Rb1]", 1 / 3),
    # sequences
    ("sequence_equality", "1, 2", "[1, 2]", 1),
    ("sequence_equality", "[2, 1]", "[1, 2]", 0),
    ("sequence_equality_case_insensitive", "[Up, Down]", "['up', 'down']", 1),
    ("sequence_accuracy_case_insensitive", "[up, LEFT]", "['Up', 'Down']", 1 / 2),
    ("sequence_accuracy_case_insensitive", "[up]", "['Up', 'Down']", 0),
    ("longest_common_list_prefix_ratio", "[1, 2, 9, 4]", "[1, 2, 3, 4]", 2 / 4),
    ("longest_common_list_prefix_ratio", "[9, 2]", "[1, 2]", 0),
    # dicts
    ("dict_equality", '{"a": [1, 2]}', "{'a': (1, 2)}", 1),
    ("dict_equality", '{"a": 1}', "{'a': 1, 'b': 2}", 0),
    ("dict_exact_str_match_agg_recall", "{'a': '1', 'c': '3'}", "{'a': '1', 'b': '2'}", 1 / 2),
    ("dict_precision", "{'a': '1', 'c': '3', 'd': '4'}", "{'a': '1', 'b': '2'}", 1 / 3),
    ("dict_jaccard_agg_jaccard", "{'a': [1, 2], 'c': [3]}", "{'a': [2, 3], 'b': [4]}", (1 / 3) / 3),
    ("dict_set_equality_agg_jaccard", "{'a': [2, 1], 'c': [3]}", "{'a': [1, 2]}", 1 / 2),
    ("dict_nbbox_iou_tuple_agg_jaccard", "{'a': [[0, 0, 1, 1]]}", "{'a': [(0, 0, 1, 0.5)], 'b': [(0, 0, 1, 1)]}", 0.25),
    ("dict_equality", "no dict", "{'a': 1}", 0),
    # boxes and points
    ("nbbox_iou_tuple", "[(0, 0, 1, 1), (2, 2, 3, 3)]", "[(0, 0, 1, 1)]", 1 / 2),
    ("nbbox_iou_tuple", "(0, 0, 2, 1)", "[(1, 0, 3, 1)]", 1 / 3),  # one of three squares
    ("nbbox_iou_tuple", "[1, 1, 0, 0]", "[0, 0, 1, 1]", 0),  # corners swapped
    ("nbbox_iou_single", "[0, 0, 1, 0.5]", "(0, 0, 1, 1)", 1 / 2),
    ("nbbox_iou_sequence", "[[0, 0, 1, 1], [0, 0, 1, 1]]", "[[0, 0, 1, 1], [0, 0, 1, 0.5]]", 3 / 4),
    ("nbbox_iou_sequence", "[[0, 0, 1, 1]]", "[[0, 0, 1, 1], [0, 0, 1, 0.5]]", 0),
    ("xml_nbbox_iou_single", "<box>0, 0, 1, 0.25</box>", "<box>0, 0, 1, 1</box>", 1 / 4),
    ("xml_norm_point_distance", "<point>0.3, 0.4</point>", "<point>0, 0</point>", 1 / 2),
    ("xml_norm_point_distance", "<point>3, 4</point>", "<point>0, 0</point>", 0),
    ("sequence_coords_similarity", "[[0, 0], [1, 1]]", "[[0, 0], [0, 0]]", (1 + math.exp(-10)) / 2),
    # numbers
    ("general_single_numerical_match", "x = 101", "100", 1),
    ("general_single_numerical_match", "102", "100", 0),
    ("general_single_numerical_match", "50%", "0.5", 1),
    ("general_single_numerical_match", "\\frac{1}{2}", "0.5", 1),
    ("general_single_numerical_match", "3, 1", "[1, 3]", 1),
    ("general_single_numerical_match", "A", "a", 1),
    ("general_single_numerical_match", "__import__('os').getpid()", "100", 0),
    ("boxed_single_numerical_match", "so \\boxed{7}", "\\boxed{7.0}", 1),
    ("number_rel_diff_ratio", "80", "100", 0.8),
    ("number_rel_diff_ratio", "300", "100", 0),
    ("number_rel_diff_ratio", "-90", "-100", 0.9),  # officially 1 - |d / gold| too
    ("number_rel_diff_ratio", "1", "0", 0),  # officially a division by zero
    ("positive_int_match", "3", "3", 1),
    ("positive_int_match", "3.5", "3", 0),
    ("positive_int_match", "0", "3", 0),
    ("normalized_rmse", "0.52", "0.5", 0.8),
    ("normalized_rmse", "0.7", "0.5", 0),
    ("angle_seq_float_rmse", "[10, 24]", "[10, 20]", 0.8),  # two degrees on average
    ("angle_seq_float_rmse", "[10]", "[10, 20]", 0),
    ("latex_expr_equality", "(x+1)^2", "x^2+2x+1", 1),
    ("latex_expr_equality", "\\frac{2}{4}", "\\frac{1}{2}", 1),
    ("latex_expr_equality", "x+1", "x+2", 0),
    ("text_with_latex_expr_equality", "The sum, is $1+2$", "the sum is $2+1$", 1),
    ("text_with_latex_expr_equality", "The sum is $1+2$", "the product is $1+2$", 0),
    # running text
    ("bleu", "two words", "two words", 1),  # sacreBLEU gives 0 to any text of less than four tokens
    ("bleu", "quite another", "two words here now", 0),
    ("bleu", "a b c d f", "a b c d e", (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25),
    ("gleu_cn", "一二", "一三", 1 / 3),  # one of two characters, none of one pair
    # places
    (
        "geo_proximity_location_dict",
        {"country": "norway", "province_or_state": "Oslo", "municipality": "Óslo"},
        {"country": "Norway", "province_or_state": "Oslo", "municipality": "Oslo"},
        1,
    ),
    ("geo_proximity_location_dict", {"country": "Norway"}, {"country": "Norway", "municipality": "Oslo"}, 0),
]


@pytest.mark.parametrize(("metric", "answer", "gold", "score"), SCORES)
def test_a_field_gets_the_share_of_a_point_that_one_can_work_out_by_hand(metric, answer, gold, score) -> None:
    assert BY_REFERENCE[metric](answer, gold) == pytest.approx(score)


def test_every_metric_by_reference_is_in_the_table() -> None:
    assert {row[0] for row in SCORES} == set(BY_REFERENCE)


@pytest.mark.full
def test_the_official_metrics_are_all_known() -> None:
    """The names in the installed lmms-eval, which carries the official evaluator, read as text."""
    import re
    from importlib.util import find_spec
    from pathlib import Path

    package = find_spec("lmms_eval")
    assert package is not None
    text = Path(str(package.origin)).with_name("tasks") / "megabench" / "metrics" / "metric_type.py"
    names = set(re.findall(r'^    [A-Z_0-9]+ = "([a-z0-9_]+)"$', text.read_text(encoding="utf-8"), re.M))
    assert len(names) > 45
    assert names == {*BY_REFERENCE, *BY_CONTEXT, *UNAVAILABLE}


def test_a_number_that_both_call_nothing_does_not_count() -> None:
    gold = gold_of({"a": "positive_int_match", "b": "positive_int_match"}, {"a": "0", "b": "2"}, "json")
    assert mega('{"a": "0", "b": "2"}', gold).score == 1
    assert mega('{"a": "0", "b": "1"}', gold).score == 0
    assert mega('{"a": "1", "b": "2"}', gold).score == 0.5


# With the row's context -------------------------------------------------------------------------------------------


def test_a_point_counts_inside_any_of_the_boxes() -> None:
    context = {"bounding_boxes": ["(0.6, 0.7, 0.8, 0.8)", "(0.0, 0.8, 0.2, 0.9)"]}
    gold = one_field("xml_norm_point_in_bbox", "<point>0.7, 0.75</point>", context=context)
    assert mega("Answer: <point>0.1, 0.85</point>", gold).score == 1
    assert mega("Answer: <point>0.5, 0.85</point>", gold).score == 0
    assert mega("Answer: <point>0.1, 0.85</point><point>0.7, 0.75</point>", gold).score == 0


DOMAIN = """(define (domain blocks) ; a comment
  (:action lift :parameters (?b - block ?h) :precondition (and (clear ?b) (free ?h) (not (= ?b ?h)))
   :effect (and (holding ?h ?b) (not (clear ?b)) (not (free ?h)) (increase (total-cost) 1)))
  (:action drop :parameters (?b - block ?h) :precondition (holding ?h ?b)
   :effect (and (not (holding ?h ?b)) (clear ?b) (free ?h))))"""


@pytest.mark.parametrize(
    ("plan", "score"),
    [
        ("(lift a left)\n(drop a left)\n(lift b left)", 1),
        ("1. (LIFT B LEFT)", 1),
        ("(lift a left)\n(lift b left)", 0),  # the hand is not free
        ("(lift a left)", 0),  # the goal is not reached
        ("(lift b left)\n(fly b)", 0),  # no such action
        ("(lift b)", 0),
        ("()", 0),
        ("no plan", 0),
    ],
)
def test_a_plan_is_walked_through(plan, score) -> None:
    task = "(define (problem p) (:init (clear a) (clear b) (free left) (= (total-cost) 0)) (:goal (holding left b)))"
    gold = gold_of({"plan": "symbolic_planning_test"}, {"plan": ""}, context={"domain_pddl": DOMAIN, "task_pddl": task})
    assert mega(f"Answer: {plan}", gold).score == score


def test_a_domain_beyond_plain_facts_is_not_guessed_at() -> None:
    domain = "(define (domain d) (:action a :parameters () :precondition (and) :effect (forall (?x) (on ?x))))"
    context = {"domain_pddl": domain, "task_pddl": "(define (problem p) (:init (x)) (:goal (and (on y))))"}
    gold = gold_of({"plan": "symbolic_planning_test"}, {"plan": ""}, context=context)
    assert mega("(a)", gold).state == "judge failed"


@pytest.mark.parametrize(
    ("constraints", "text", "score"),
    [
        ({"contain1": "[beer, glass]", "contain2": "[is, are]"}, "The glasses are full.", 1),
        ({"contain1": "[beer, glass]"}, "Beerhouse fibreglass.", 0),  # parts of words are no words
        ({"contain1##position": "[elephant]##2"}, "It rained. Two elephants came.", 1),
        ({"contain1##position": "[elephant]##1"}, "It rained. Two elephants came.", 0),
        ({"contain1##position_only": "[car]##1"}, "A car! Then another car.", 0),
        ({"contain1##times": "[child, children]##2", "contain3##times": ""}, "A child saw children.", 1),
        ({"contain_only": "[[ice cream], [cake]]"}, "We ate ice cream.", 1),
        ({"contain_only": "[[ice cream], [cake]]"}, "We ate ice cream and cakes.", 0),
        ({"length1": ">3", "length2": "<5"}, "one two three four", 1),
        ({"length1": ">4"}, "one two three four", 0),
        ({"acrostic": "HI"}, "Hello there\nindeed", 1),
        ({"acrostic": "H I"}, "Hello there\n\n**I**ndeed", 1),
        ({"acrostic": "HI"}, "Hello there", 0),
        ({"acrostic_alliteration": "HI"}, "Hello honey\nI insist", 1),
        ({"acrostic_alliteration": "HI"}, "Hello there\nI insist", 0),
        ({"syllables": "575", "length1": ">100"}, "too short", 0),  # decided without counting syllables
    ],
)
def test_a_text_has_to_keep_every_constraint(constraints, text, score) -> None:
    gold = gold_of({"##output": "constrained_generation"}, {"##output": ""}, "dummy", constraints)
    verdict = mega(text, gold)
    assert (verdict.score, verdict.unscored) == (score, None)


# What cannot be scored --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "response", "reason"),
    [
        (one_field("nli_entailment", "x"), "x", "entailment"),
        (one_field("gpt_4o_as_judge", "x"), "x", "judge"),
        (one_field("a_metric_of_next_year", "x"), "x", "a_metric_of_next_year"),
        (gold_of({"a": "constrained_generation"}, {"a": ""}, "dummy", {"syllables": "575"}), "x", "dictionary"),
        (
            gold_of(
                {"a": "geo_proximity_location_dict"},
                {"a": {"country": "Norway", "province_or_state": "Oslo", "municipality": "Oslo"}},
                "json",
            ),
            '{"a": {"country": "Norway", "province_or_state": "Vestland", "municipality": "Bergen"}}',
            "gazetteer",
        ),
        (Gold("x", metric="mega", rules=pack_rules("{'aggregation': oops", "{}", "{}")), "x", "does not say"),
    ],
)
def test_what_needs_something_that_is_not_here_is_judge_failed_with_the_reason(gold, response, reason) -> None:
    verdict = mega(response, gold)
    assert verdict.state == "judge failed"
    assert reason in verdict.why


def test_a_minimum_is_zero_whatever_the_field_that_cannot_be_scored_is_worth() -> None:
    metrics, answer = {"a": "exact_str_match", "b": "nli_entailment"}, {"a": "1", "b": "x"}
    gold = gold_of(metrics, answer, "json", aggregation="min")
    assert mega('{"a": "2", "b": "x"}', gold).state == "wrong"
    assert mega('{"a": "1", "b": "x"}', gold).state == "judge failed"


def test_a_program_does_not_run_without_permission(monkeypatch) -> None:
    monkeypatch.delenv("ATRL_BENCH_ALLOW_CODE", raising=False)
    gold = one_field("program_judge", "", context={"test_case": {"input": ["3"], "expected": "6"}})
    verdict = mega("Answer: print(6)", gold)
    assert (verdict.state, "not allowed" in verdict.why) == ("judge failed", True)


@needs.isolation
def test_a_program_is_worth_the_share_of_its_tests(monkeypatch) -> None:
    monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", "1")
    cases = [{"input": ["3"], "expected": "6"}, {"input": ["5", "1"], "expected": "5\n"}]
    gold = one_field("program_judge", "", context={"test_case": cases})
    assert mega("Answer:\n```python\nprint(2 * int(input()))\n```", gold).score == 0.5


# Responses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        "Answer: 42",
        "answer: 1\nNo. **Answer: 42**",
        "Some thoughts.\n**Answer:** 42",
        "It is \\boxed{42}.",
        "Answer: 41, no: \\boxed{\\text{42}}",
        "Answer:\n```\n42\n```\nas asked.",
        "Answer: '42'",
        "Answer: 42\n\nBecause six times seven is that.",
        "42",
    ],
)
def test_a_single_answer_stands_in_a_box_or_after_the_word_or_alone(response) -> None:
    assert mega(response, one_field("exact_str_match", "42")).score == 1


@pytest.mark.parametrize(
    "response",
    [
        '{"a": "B", "b": [1, 2]}',
        "Answer: {'a': 'B', 'b': (1, 2)}",
        '```json\n{"a": "B",\n "b": "1, 2",}\n```',
        '\\boxed{{"a": "B", "b": [1, 2]}}',
        '\\boxed{\\{"a": "B", "b": [1, 2]\\}}',
        'First {"a": "C", "b": []}, better: {"a": "B", "b": [2, 1], "c": null}',
    ],
)
def test_fields_are_read_from_json_and_from_python_dicts(response) -> None:
    gold = gold_of({"a": "exact_str_match", "b": "set_equality"}, {"a": "B", "b": "[1, 2]"}, "json")
    assert mega(response, gold).score == 1


def test_a_response_without_json_is_unparseable_and_a_missing_field_costs_its_weight() -> None:
    metrics, answer = {"a": "exact_str_match", "b": "exact_str_match"}, {"a": "one", "b": "two"}
    gold = gold_of(metrics, answer, "json", weights={"a": 3, "b": 1})
    assert mega("I do not know.", gold).state == "unparseable"
    partly = mega('{"a": "one"}', gold)
    assert (partly.score, partly.state, partly.details) == (0.75, "wrong", {"a": 1.0, "b": 0.0})


def test_a_verbatim_answer_keeps_its_blanks() -> None:
    gold = one_field("exact_str_match", "  x\n x", "verbatim_answer_string")
    assert mega("Answer:\n```\n  x\n x\n```", gold).score == 1
    assert mega("Answer:\n```\nx\n x\n```", gold).score == 0


def test_a_metric_of_the_whole_answer_sees_all_fields() -> None:
    gold = gold_of({"a": "exact_str_match"}, {"a": "1"}, "json", global_aux_metrics={"all": "dict_equality"})
    assert mega('{"a": "1"}', gold).details == {"a": 1.0, "all": 1.0}
    assert mega('{"a": "1", "b": "2"}', gold).details == {"a": 1.0, "all": 0.0}


# Literals ---------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text("abc \n'\"\\", max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=200)
def test_what_python_writes_is_read_back_equal(value) -> None:
    assert read_literal(repr(value)) == value


@pytest.mark.parametrize("text", ["1 + 1", "os.system('x')", "[x for x in y]", "1e999", "nan", "[1", "{1: 2, 3}", ""])
def test_what_is_no_literal_is_refused(text) -> None:
    with pytest.raises(UnreadableLiteralError):
        read_literal(text)


def test_a_backslash_of_latex_survives_json() -> None:
    assert read_literal(r'"\frac{1}{2} \beta"') == r"\frac{1}{2} \beta"
    assert read_literal(r'"line\nline"') == "line\nline"
    assert read_literal(r'"\ud83d\ude00 \u4e2d"') == "😀 中"


def test_the_outermost_structures_of_a_text_are_found_in_order() -> None:
    assert find_literals('see [a], then {"x": [1]} and [2, 3] {bad') == [{"x": [1]}, [2, 3]]
    assert try_literal("(1)") == 1
    assert try_literal("(1,)") == (1,)


# Hostile answers --------------------------------------------------------------------------------------------------


def hostile(size: int) -> list[str]:
    """Answers that break parsers, the long ones of about this many characters."""
    return [
        "",
        "[" * size,
        "{'a':" * (size // 5),
        "['" * (size // 2),
        "(" * (size // 2) + "1" + ")" * (size // 2),
        "9" * size,
        "1e400",
        "nan",
        "-inf",
        "[1e308, 1e308, -1e308, 1e308]",
        "<point>" * (size // 7),
        "<box>nan, inf, 1e999, 0</box>",
        "\\boxed{" * (size // 7),
        "```" * (size // 3),
        "Answer:" * (size // 7),
        "Answer" + " " * size,
        "a, " * (size // 3),
        "x" * size,
        "\x00\ud800\u202e",
        "{}{0}%s%n{__class__}",
        "__import__('os').system('true')",
        "9**9**9**9",
        "{'a': {'a': float('nan')}}",
        "(move " + "a " * (size // 2) + ")",
    ]


QUICK = sorted({*BY_REFERENCE, *BY_CONTEXT} - SLOW - PROGRAM)
CONTEXT = {
    "domain_pddl": DOMAIN,
    "task_pddl": "(define (problem p) (:init (clear a)) (:goal (and (holding left a))))",
    "bounding_boxes": ["(0.1, 0.1, 0.2, 0.2)"],
    "contain1": "[elephant]",
}


def assert_never_a_point(metric: str, responses: list[str]) -> None:
    golds = [one_field(metric, "[(0.1, 0.2, 0.3, 0.4)]", parser, CONTEXT) for parser in ("answer_string", "json")]
    for response in responses:
        for gold in golds:
            verdict = mega(response, gold)
            assert verdict.state in ("wrong", "unparseable", "judge failed")
            assert 0 <= verdict.score < 1


@pytest.mark.parametrize("metric", QUICK)
def test_a_hostile_answer_gets_a_state_and_never_a_point(metric) -> None:
    assert_never_a_point(metric, hostile(300))


@pytest.mark.slow
@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_huge_hostile_answer_is_read_in_seconds(size) -> None:
    started = time.process_time()
    assert_never_a_point("jaccard_index", hostile(size))
    assert_never_a_point("dict_equality", hostile(size))
    assert time.process_time() - started < 60


@given(st.sampled_from(QUICK), VALUES, VALUES)
@settings(max_examples=200)
def test_any_value_against_any_other_gives_a_score_between_0_and_1(metric, answer, right) -> None:
    gold = gold_of({"answer": metric}, {"answer": right}, "json", CONTEXT)
    assert 0 <= mega(str({"answer": answer}), gold).score <= 1


def test_the_worker_ends_what_takes_too_long() -> None:
    long = one_field("normalized_similarity_damerau_levenshtein", "ab" * 50_000)
    with GradingPool(seconds=0.5) as pool:
        slow, quick = pool.grade_many([("cd" * 50_000, long), ("Answer: 7", one_field("exact_str_match", "7"))])
    assert slow.state == "timed out"
    assert (quick.state, quick.grader, quick.points) == ("correct", "mega", 1.0)


def test_a_hostile_formula_gets_a_state_and_never_a_point() -> None:
    formulas = ["9^{9^{9^{9}}}", "\\frac{" * 200]
    golds = [one_field("latex_expr_equality", "x^2"), one_field("text_with_latex_expr_equality", "$x^2$")]
    with GradingPool(num_workers=2, seconds=0.5) as pool:
        verdicts = pool.grade_many([(f"Answer: ${formula}$", gold) for formula in formulas for gold in golds])
    assert {verdict.state for verdict in verdicts} <= {"wrong", "unparseable", "timed out"}
    assert {verdict.points for verdict in verdicts} == {0.0}


def test_the_store_s_parts_of_the_score_come_through_the_worker() -> None:
    gold = gold_of({"a": "exact_str_match", "b": "jaccard_index"}, {"a": "B", "b": "[1, 2]"}, "json")
    with GradingPool() as pool:
        [verdict] = pool.grade_many([('{"a": "B", "b": "[2, 3]"}', gold)])
    assert verdict.points == pytest.approx(2 / 3)
    assert dict(verdict.details) == {"a": 1.0, "b": pytest.approx(1 / 3)}

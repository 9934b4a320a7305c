r"""The metric of MEGA-Bench: parse the response, score each answer field by the metric its row names, and combine them.

`Gold.rules` holds three of the row's columns as they are: `metric_info`, `answer` and `eval_context`. All of it runs in
a worker process with limits on time and memory. Metrics by family: `texts`, `sequences` (lists, sets, dicts, chess
moves), `numeric` (numbers and LaTeX), `places`, `planning`, `writing` (constrained generation), `programs`.

What cannot be scored here counts as "judge failed", outside the score and named in the report, never as wrong:
  - `gpt_4o_as_judge`, `ascii_art_gpt4o_judge`: need a vision-language judge (open set; no row of the core set);
  - `nli_entailment`: needs the entailment model of the official script (which gives 0 to every text: it tests the
    wrong type);
  - `program_judge`: runs the answer, only with `--allow-code` and in isolation;
  - `constrained_generation` with syllables, rhymes or metre: needs a pronouncing dictionary; other broken constraints
    still decide;
  - `geo_proximity_location_dict` between differently named places: needs a gazetteer.

Departures from the official script, where it is wrong or unsafe: a word is no option letter ("Because ..." is not B);
an empty set has no precision; equal texts of less than four words have BLEU 1; numbers are read by our own grammar
instead of being evaluated; words are counted as words in constrained texts; GLEU cuts Chinese by character.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import eq
from typing import Any

from atrl_bench.grading.scorers.mega import numeric, places, planning, programs, sequences, texts, writing
from atrl_bench.grading.scorers.mega.literals import UnreadableLiteralError, as_text, frozen, read_literal, unquoted
from atrl_bench.grading.scorers.mega.metric import CannotScoreError, FieldMetric, comparing
from atrl_bench.grading.scorers.mega.responses import PARSERS, SINGLE_FIELD_PARSERS, parse_fields, raw_answer
from atrl_bench.grading.scorers.mega.sequences import by_key, dict_of, items_of, jaccard, over_items, same_items
from atrl_bench.grading.scorers.scored import Scored
from atrl_bench.results.records import Gold

BOXES = partial(places.points_of, 4)


def _either(predicted: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
    return right | predicted


BY_REFERENCE: dict[str, FieldMetric] = {
    # texts
    "bleu": texts.bleu,
    "code_result_exact_str_match": texts.exact_code_result,
    "exact_str_match": texts.exact,
    "exact_str_match_case_insensitive": texts.exact_ignoring_case,
    "gleu_cn": texts.gleu,
    "multi_ref_phrase": texts.any_reference,
    "near_str_match": texts.near,
    "normalized_similarity_damerau_levenshtein": texts.similarity,
    "simple_str_match": texts.simple,
    # numbers and formulas
    "angle_seq_float_rmse": comparing(lambda side: numeric.all_numbers(items_of(side)), numeric.angle_error),
    "boxed_single_numerical_match": numeric.boxed_match,
    "general_single_numerical_match": numeric.general_match,
    "latex_expr_equality": numeric.formula,
    "normalized_rmse": comparing(numeric.number_of, numeric.normalized_error),
    "number_rel_diff_ratio": comparing(numeric.number_of, numeric.relative_difference),
    "positive_int_match": numeric.positive_whole_number,
    "text_with_latex_expr_equality": numeric.formulas_in_text,
    # lists, sets and dicts
    "chess_move_list_jaccard_index": over_items(jaccard, sequences.chess_move),
    "dict_equality": comparing(lambda side: frozen(dict_of(side)), eq),
    "dict_exact_str_match_agg_recall": by_key(lambda _, right: right, texts.exact),
    "dict_jaccard_agg_jaccard": by_key(_either, over_items(jaccard)),
    "dict_nbbox_iou_tuple_agg_jaccard": by_key(_either, comparing(BOXES, places.best_overlaps)),
    "dict_precision": by_key(lambda predicted, _: predicted, texts.exact),
    "dict_set_equality_agg_jaccard": by_key(_either, over_items(same_items)),
    "jaccard_index": over_items(jaccard),
    "jaccard_index_case_insensitive": over_items(jaccard, sequences.folded),
    "longest_common_list_prefix_ratio": over_items(sequences.common_prefix),
    "sequence_accuracy_case_insensitive": over_items(sequences.accuracy, as_text, str.lower),
    "sequence_equality": over_items(eq),
    "sequence_equality_case_insensitive": over_items(eq, as_text, str.lower),
    "set_equality": over_items(same_items),
    "set_equality_case_insensitive": over_items(same_items, as_text, str.upper),
    "set_precision": over_items(sequences.precision),
    "str_set_equality_comma": over_items(same_items, lambda item: item.lower() if isinstance(item, str) else item),
    "str_set_equality_line_break": comparing(sequences.lines_of, same_items),
    # places in pictures and on the Earth
    "geo_proximity_location_dict": places.same_place,
    "nbbox_iou_sequence": comparing(BOXES, partial(places.one_by_one, places.overlap)),
    "nbbox_iou_single": comparing(BOXES, places.one_box),
    "nbbox_iou_tuple": comparing(BOXES, places.best_overlaps),
    "sequence_coords_similarity": comparing(partial(places.points_of, 2), partial(places.one_by_one, places.near)),
    "xml_nbbox_iou_single": comparing(partial(places.tagged, "box", 4), places.best_overlaps),
    "xml_norm_point_distance": comparing(partial(places.tagged, "point", 2), places.point_distance),
}
BY_CONTEXT: dict[str, Callable[[Any, Mapping[str, Any]], float]] = {  # compare with `eval_context` instead
    "constrained_generation": writing.keeps_constraints,
    "program_judge": programs.passes_tests,
    "symbolic_planning_test": planning.plan_reaches_goal,
    "xml_norm_point_in_bbox": places.tagged_point_in_box,
}
UNAVAILABLE = {
    "ascii_art_gpt4o_judge": "a vision-language judge",
    "gpt_4o_as_judge": "a vision-language judge",
    "nli_entailment": "an entailment model",
    "unsupported": "a metric, which the row does not name",
}


@dataclass(frozen=True)
class Rules:
    """How one row is scored."""

    parser: str
    metrics: Mapping[str, str]  # field -> metric
    whole: Mapping[str, str]  # metrics of the whole answer, by the name they are reported under
    weights: Mapping[str, float]
    aggregation: str  # mean or min
    answer: Mapping[str, Any]
    context: Mapping[str, Any]


def pack_rules(metric_info: str, answer: str, eval_context: str) -> str:
    return json.dumps({"metric_info": metric_info, "answer": answer, "eval_context": eval_context}, ensure_ascii=False)


@lru_cache(maxsize=256)
def read_rules(packed: str) -> Rules:
    """The rules of a row; raises `CannotScoreError` for a row that does not say how to score it."""
    columns = json.loads(packed)
    try:
        info, answer, context = (read_literal(columns[name]) for name in ("metric_info", "answer", "eval_context"))
        aggregation = info["aggregation"]
        rules = Rules(
            parser=str(info.get("response_parse_function") or "json"),
            metrics=dict(info["field_score_function"]),
            whole=dict(info.get("global_aux_metrics") or {}),
            weights=dict(aggregation.get("field_weights") or {}),
            aggregation=str(aggregation["function"]),
            answer=dict(answer),
            context=dict(context or {}),
        )
    except (UnreadableLiteralError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CannotScoreError(f"the row does not say how it is scored: {error!r}") from error
    known = {*BY_REFERENCE, *BY_CONTEXT, *UNAVAILABLE}
    unknown = [name for name in [*rules.metrics.values(), *rules.whole.values()] if name not in known]
    if unknown or rules.parser not in PARSERS or rules.aggregation not in ("mean", "min"):
        raise CannotScoreError(f"no metric {', '.join(unknown) or rules.aggregation} after the parser {rules.parser}")
    return rules


def mega(answer: str, gold: Gold) -> Scored:
    """The weighted mean (or the minimum) of the scores of the answer's fields."""
    scores: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    try:
        rules = read_rules(gold.rules)
    except CannotScoreError as error:
        return Scored(0.0, str(error), unscored="judge failed")
    names = [name for name in rules.answer if not str(name).startswith("##")] or list(rules.metrics)
    one_line = rules.parser in SINGLE_FIELD_PARSERS and "\n" not in str(rules.answer.get(names[0], ""))
    fields = parse_fields(answer, rules.parser, names, one_line=one_line)
    parsed = fields is not None
    if fields is None:
        fields = dict.fromkeys(names, raw_answer(answer))
    for name, metric in [*rules.metrics.items(), *rules.whole.items()]:
        # A `dummy` response has no fields, and a metric of the whole answer sees all of them.
        whole = name in rules.whole or not isinstance(fields, dict)
        predicted = fields if whole else fields.get(name, "")
        right = rules.answer if name in rules.whole else unquoted(rules.answer.get(name, ""))
        try:
            scores[name] = _score(metric, predicted, right, rules.context)
        except CannotScoreError as error:
            reasons[name] = str(error)
    return _combined(scores, reasons, rules, parsed=parsed)


def _score(metric: str, answer: Any, gold: Any, context: Mapping[str, Any]) -> float | None:
    if metric in UNAVAILABLE:
        raise CannotScoreError(f"{metric} needs {UNAVAILABLE[metric]}")
    score = BY_CONTEXT[metric](answer, context) if metric in BY_CONTEXT else BY_REFERENCE[metric](answer, gold)
    if score is None:
        return None
    return min(1.0, max(0.0, float(score))) if math.isfinite(score) else 0.0


def _combined(scores: Mapping[str, float | None], reasons: Mapping[str, str], rules: Rules, *, parsed: bool) -> Scored:
    counted = {name: score for name, score in scores.items() if score is not None}
    details = {**counted, **reasons}
    decided = rules.aggregation == "min" and 0.0 in counted.values()  # whatever the other fields are worth
    if reasons and not decided:
        return Scored(
            0.0, "; ".join(f"{name}: {why}" for name, why in reasons.items()), details, unscored="judge failed"
        )
    if rules.aggregation == "min":
        score = min(counted.values(), default=1.0)
    else:
        weights = {name: float(rules.weights.get(name, 1.0)) for name in counted}
        total = sum(weights.values())
        # Nothing counts where answer and gold agree that there is nothing.
        score = sum(weights[name] * counted[name] for name in counted) / total if total else 1.0
    used = {**rules.metrics, **rules.whole}
    why = ", ".join(f"{name} {score:.3g} ({used[name]})" for name, score in counted.items()) or "nothing to compare"
    if not parsed and score == 0:
        return Scored(0.0, "no JSON object in the response", details, unscored="unparseable")
    return Scored(score, why[:500], details)


def written_response(gold: Gold) -> str:
    """A response that gives the gold answer in the form its parser reads; the grader gives it a full point."""
    rules = read_rules(gold.rules)
    written = {name: _written(value, rules.metrics.get(name, "")) for name, value in rules.answer.items()}
    if rules.parser == "json":
        return f"Some steps first.\nAnswer: {json.dumps(written, ensure_ascii=False)}"
    text = next(iter(written.values()))
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return text if rules.parser == "dummy" else f"Some steps first.\nAnswer: {text}"


def _written(value: Any, metric: str) -> Any:
    """A field as an answer gives it: of several accepted phrases the first."""
    return items_of(value)[0] if metric == "multi_ref_phrase" else value

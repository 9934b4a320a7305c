"""Two models on one benchmark: the sums stand in the comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atrl_bench.analysis.compare import ModelComparison, ModelDifference, compare, compare_models
from atrl_bench.cli.printing import text_of
from atrl_bench.errors import MissingDataError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.store import Store

PROFILE = load_profile("smoke")


def spec(model: str, task: str = "geoqa_test", repeats: int = 1, **changes: Any) -> dict[str, Any]:
    same = {"kind": "evaluation", "task": task, "data_digest": "d", "prompt_version": 1, "judge": None}
    same |= {"decoding": {"repeats": repeats, "temperature": 0.1}, "grader_version": "1"}
    return same | {"model_digest": f"digest of {model}", "model_name": model} | changes


def fill(store: Store, given: dict[str, Any], points: Sequence[Sequence[float | None]]) -> str:
    """Store one list of repeats a problem and finish the cell; None is an answer that the judge failed on."""
    key = store.add_cell(given)
    store.add_problems(
        key, [Problem(f"p{i}", f"p{i}", "?", Gold("1"), meta={"key": "2steps_1"}) for i in range(len(points))]
    )
    answers = [(f"p{i}", r, value) for i, repeats in enumerate(points) for r, value in enumerate(repeats)]
    store.add_responses(key, [Response(problem, r, "h", "1", 1, 0.1, False) for problem, r, _ in answers])
    states = {None: "judge failed", 1.0: "correct"}
    store.add_verdicts(key, {(p, r): Verdict(states.get(v, "wrong"), "1", "fast", "", score=v) for p, r, v in answers})
    store.finish_cell(key, expected=len(answers))
    return key


def single(*points: float | None) -> list[list[float | None]]:
    return [[value] for value in points]


def compared(folder: Path, a: str, b: str, tasks: Sequence[str], **options: Any) -> tuple[ModelDifference, ...]:
    return compare_models(a, b, tasks, RunDir.at(folder, PROFILE), **options).differences


def test_single_runs_are_compared_by_who_is_right_where_one_is_wrong(store):
    a = fill(store, spec("a"), single(1, 1, 1, 1, 1, 1, 0, 1))
    b = fill(store, spec("b"), single(0, 0, 0, 0, 0, 0, 0, 1))
    [record] = compare(store, a, b).differences
    assert (record.score_a.mean, record.score_b.mean) == (7 / 8, 1 / 8)
    assert record.difference.mean == 6 / 8
    # Six problems only A solved, none only B: 2 * (1/2)^6 = 1/32.
    assert (record.p, record.test) == (1 / 32, "exact McNemar")
    assert (record.num_a_better, record.num_b_better, record.num_common) == (6, 0, 8)
    assert record.differs_in == []


def test_only_problems_that_both_have_an_answer_to_are_compared(store):
    a = fill(store, spec("a"), single(1, 1, None, 1))
    b = fill(store, spec("b"), single(0, None, 1, 1))
    [record] = compare(store, a, b).differences
    assert (record.num_common, record.difference.mean) == (2, 0.5)
    assert record.score_a.num_problems == 3


def test_repeats_are_counted_as_far_as_both_cells_have_them(store):
    a = fill(store, spec("a", repeats=4), [[1, 1, 0, 0], [1, 0, 0, 0]])
    b = fill(store, spec("b", repeats=2), [[0, 1], [0, 0]])
    records = {record.metric: record for record in compare(store, a, b).differences}
    assert set(records) == {"acc@1", "mean@2"}
    # A: (1 + 1)/2 = 1 and (1 + 0)/2 = 1/2; B: 1/2 and 0.
    assert records["mean@2"].difference.mean == 0.5
    assert records["mean@2"].differs_in == ["decoding.repeats: 4, 2"]


def test_whatever_differs_beside_the_model_is_said(store):
    a = fill(store, spec("a", grader_version="1"), single(1, 0))
    b = fill(store, spec("b", grader_version="2", judge={"model": "j"}, data_digest="e"), single(1, 1))
    records = compare(store, a, b).differences
    assert {"data_digest: d, e", "grader_version: 1, 2", "judge.model: None, j"} <= set(records[0].differs_in)
    text = text_of(ModelComparison(records))
    assert "Not the model alone differs" in text
    assert "geoqa_test: grader_version: 1, 2" in text


def test_composite_metrics_of_a_task_are_compared_with_a_bootstrap(store):
    a = fill(store, spec("a", "wemath_testmini"), single(1, 0, 1))
    b = fill(store, spec("b", "wemath_testmini"), single(1, 0, 0))
    records = compare(store, a, b).differences
    composite = [record for record in records if record.metric != "acc@1"]
    assert composite
    assert {record.test for record in composite} == {"paired t, cluster bootstrap"}


def test_cells_of_two_tasks_are_refused(store):
    a, b = fill(store, spec("a"), single(1)), fill(store, spec("b", "mathvista_testmini"), single(1))
    with pytest.raises(MissingDataError, match="mathvista_testmini"):
        compare(store, a, b)
    with pytest.raises(MissingDataError, match="no cell"):
        compare(store, a, "0" * 16)


def test_models_are_found_by_name_and_cells_by_key(store, tmp_path):
    a, b = fill(store, spec("org/a"), single(1, 0)), fill(store, spec("served"), single(0, 0))
    by_name = compared(tmp_path, "org/a", "served", ["geoqa_test"])
    assert (by_name[0].cell_a, by_name[0].cell_b) == (a, b)
    assert compared(tmp_path, a, "served", ["geoqa_test"]) == by_name


def test_of_several_cells_those_that_differ_in_least_are_compared(store, tmp_path):
    like_b = fill(store, spec("a", prompt_version=1), single(1, 0))
    fill(store, spec("a", prompt_version=2), single(1, 0))
    b = fill(store, spec("b", prompt_version=1), single(0, 0))
    [record] = compared(tmp_path, "a", "b", ["geoqa_test"])
    assert (record.cell_a, record.cell_b, record.differs_in) == (like_b, b, [])


def test_p_values_are_corrected_for_the_number_of_tasks(store, tmp_path):
    for task, better in (("geoqa_test", 6), ("mathvista_testmini", 1)):
        fill(store, spec("a", task), single(*[1] * better, *[0] * (8 - better)))
        fill(store, spec("b", task), single(*[0] * 8))
    records = compared(tmp_path, "a", "b", ["geoqa_test", "mathvista_testmini"], metrics=["acc@1"])
    # p = 1/32 and 1: sorted, 2/1 * 1/32 = 1/16 and 2/2 * 1 = 1.
    assert [(record.p, record.q) for record in records] == [(1 / 32, 1 / 16), (1.0, 1.0)]


def test_a_missing_cell_names_the_command_that_fills_it(store, tmp_path):
    fill(store, spec("a"), single(1))
    pending = store.add_cell(spec("b"))
    with pytest.raises(MissingDataError) as error:
        compared(tmp_path, "a", "b", ["geoqa_test"])
    assert error.value.next_step.startswith("atrl-bench evaluate b --tasks geoqa_test --profile smoke")
    assert f"--out {tmp_path}" in error.value.next_step
    with pytest.raises(MissingDataError):
        compared(tmp_path, "a", pending, ["geoqa_test"])
    with pytest.raises(UnknownNameError):
        compared(tmp_path, "a", "b", ["geoqa"])


def test_a_suite_is_compared_as_the_mean_of_its_parts(store, tmp_path):
    from atrl_bench.evaluation.tasks import list_suites

    suite = next(suite for suite in list_suites() if len(suite.tasks) == 2)
    for task, gained in zip(suite.tasks, (1, 3), strict=True):
        fill(store, spec("a", task), single(*[1] * gained, *[0] * (4 - gained)))
        fill(store, spec("b", task), single(*[0] * 4))
    records = compared(tmp_path, "a", "b", [suite.name], metrics=["acc@1"])
    assert [record.kind for record in records] == ["task", "task", "suite"]
    # (1/4 + 3/4) / 2
    assert records[-1].difference.mean == 0.5
    assert (records[-1].num_a_better, records[-1].q) == (4, None)


def test_the_text_fits_eighty_columns_and_says_it_all(store):
    a = fill(store, spec("a" * 100), single(1, 1, 1, 1, 1, 1, 0, 1))
    b = fill(store, spec("b\x1b[31m"), single(0, 0, 0, 0, 0, 0, 0, 1))
    text = text_of(compare(store, a, b))
    assert max(map(len, text.splitlines())) <= 80
    assert "+75.00" in text
    assert "A better on 6, B on 0" in text
    assert "exact McNemar" in text
    assert "\x1b" not in text
    assert text_of(ModelComparison(())) == "Nothing to compare."


def test_a_single_problem_has_a_difference_without_an_interval(store):
    comparison = compare(store, fill(store, spec("a"), single(0.5)), fill(store, spec("b"), single(0.25)))
    [document] = comparison.document()
    assert (document["difference"]["mean"], document["difference"]["low"], document["p"]) == (0.25, None, None)
    assert "+25.00" in text_of(comparison)

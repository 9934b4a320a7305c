"""Columns that are no plain mean of one task: suites, composite scores, groups of rows with a baseline of their own."""

import pytest
from stored import fill_cell
from table_fixtures import cell_of as cell

from atrl_bench.experiments.definition import TableDefinition, load_table
from atrl_bench.papers.scores import load_printed
from atrl_bench.profiles import load_profile
from atrl_bench.report.build import build_table
from atrl_bench.report.cells import TableSource
from atrl_bench.report.table_model import Table
from atrl_bench.results.records import Gold, Problem
from atrl_bench.results.store import Store

MINI = load_profile("mini")


def answer(store: Store, task: str, *repeats: str, kinds: list[str] | None = None, **spec: object) -> str:
    """Return the key of a finished cell: a string of + and - for each repeat, one mark a problem."""
    metas = [{"question_type": kind} for kind in kinds] if kinds else [{}] * len(repeats[0])
    problems = [Problem(f"p{i}", f"p{i}", "?", Gold("3"), meta) for i, meta in enumerate(metas)]
    same = {"task": task, "decoding": {"repeats": len(repeats)}, "judge": None}
    return fill_cell(store, same | spec, *repeats, problems=problems)


def build(
    definition: TableDefinition, store: Store, keys: dict[tuple[str, str], list[str]], **options: object
) -> Table:
    return build_table(TableSource(definition, store, MINI, keys, **options), printed=load_printed(definition))


SCALE = load_table("scale_32b").select(rows=["instruct", "ours"], columns=["mmmu_pro"])


def test_a_suite_is_the_mean_of_its_parts_whatever_their_sizes(store):
    keys = [answer(store, "mmmu_pro_standard", "++--"), answer(store, "mmmu_pro_vision", "+-------")]
    found = cell(build(SCALE, store, {("instruct", "mmmu_pro"): keys}), "instruct", "mmmu_pro")
    assert found.estimate.mean == (2 / 4 + 1 / 8) / 2
    assert (found.state, found.num_expected, found.counts.samples) == ("measured", 12, 12)


def test_a_suite_without_one_of_its_parts_has_no_number_yet(store):
    keys = [answer(store, "mmmu_pro_standard", "++--")]
    found = cell(build(SCALE, store, {("instruct", "mmmu_pro"): keys}), "instruct", "mmmu_pro")
    assert (found.state, found.estimate) == ("partial", None)
    assert found.command.endswith("--rows instruct --columns mmmu_pro")


def test_two_rows_are_compared_part_by_part_of_a_suite(store):
    keys = {}
    for row, standard, vision in [("instruct", "----", "-----+++"), ("ours", "++--", "----++++")]:
        parts = {"mmmu_pro_standard": standard, "mmmu_pro_vision": vision}
        keys[row, "mmmu_pro"] = [answer(store, task, marks, row=row) for task, marks in parts.items()]
    difference = cell(build(SCALE, store, keys), "ours", "mmmu_pro").difference
    assert difference.estimate.mean == pytest.approx((2 / 4 + 1 / 8) / 2)
    assert difference.test == "paired t, clustered"


VIDEO = load_table("video").select(rows=["zero_shot"], columns=["vsi_16"])


def test_the_number_of_a_task_is_its_own_headline(store):
    """Three questions about counting, all right; one about rooms, wrong: the mean of the categories is a half."""
    kinds = ["object_counting"] * 3 + ["room_size_estimation"]
    key = answer(store, "vsi_bench", "+++-", kinds=kinds)
    found = cell(build(VIDEO, store, {("zero_shot", "vsi_16"): [key]}), "zero_shot", "vsi_16")
    assert found.estimate.mean == 1 / 2
    assert found.num_expected == 4


def test_a_composite_number_over_seeds_is_the_mean_of_the_seeds_numbers(store):
    """Seed by seed 1/2 and 0: a quarter, with the spread of the two."""
    definition = VIDEO.model_copy(
        update={"rows": (load_table("main_7b").row("grpo").model_copy(update={"group": None}),), "baseline": "grpo"}
    )
    kinds = ["object_counting"] * 3 + ["room_size_estimation"]
    keys = [answer(store, "vsi_bench", marks, kinds=kinds, seed=s) for s, marks in enumerate(["+++-", "----"])]
    found = cell(build(definition, store, {("grpo", "vsi_16"): keys}, seeds=(0, 1)), "grpo", "vsi_16")
    assert found.estimate.mean == 1 / 4
    assert (found.seeds.num_seeds, found.seeds.mean) == (2, 1 / 4)
    assert found.seeds.sd == pytest.approx(0.5 / 2**0.5)


def test_acc_at_1_reads_the_first_repeat_and_mean_at_n_all_of_them(store):
    definition = load_table("main_7b").select(rows=["zero_shot"], columns=["geoqa_test"])
    key = answer(store, "geoqa_test", "+---", "++++")
    found = cell(build(definition, store, {("zero_shot", "geoqa_test"): [key]}), "zero_shot", "geoqa_test")
    assert found.estimate.mean == 1 / 4
    assert found.all_repeats.mean == 5 / 8


CROSS = load_table("cross_dataset").select(
    rows=["zero_shot_7b", "grpo_7b", "zero_shot_3b", "grpo_3b"], columns=["geoqa_test"]
)


def test_each_group_has_its_own_baseline_and_its_own_best_row(store):
    marks = {"zero_shot_7b": "+" * 6 + "-" * 9, "grpo_7b": "+" * 15}
    marks |= {"zero_shot_3b": "-" * 15, "grpo_3b": "+" * 12 + "---"}
    keys = {(row, "geoqa_test"): [answer(store, "geoqa_test", of, row=row)] for row, of in marks.items()}
    table = build(CROSS, store, keys)
    gains = {row: cell(table, row, "geoqa_test").difference for row in marks}
    assert gains["zero_shot_7b"] is gains["zero_shot_3b"] is None
    assert gains["grpo_7b"].estimate.mean == pytest.approx(9 / 15)
    assert gains["grpo_3b"].estimate.mean == pytest.approx(12 / 15)
    assert [row.id for row in table.rows if row.cells[0].is_best] == ["grpo_7b", "grpo_3b"]
    assert [row.baseline for row in table.rows] == ["zero_shot_7b", "zero_shot_7b", "zero_shot_3b", "zero_shot_3b"]


def test_rows_of_one_name_are_told_apart_by_their_group_and_stand_ins_are_named(store):
    notes = " ".join(build(CROSS, store, {}).notes)
    assert "mini: Zero-shot (mini in place of Qwen2.5-VL-7B on Geometry-3K)" in notes
    assert "mini: Zero-shot (mini in place of Qwen2.5-VL-3B on GeoQA-8K)" in notes
    assert "One model, mini, stands here for Qwen/Qwen2.5-VL-3B-Instruct." in notes


def test_a_table_without_an_average_has_none_and_its_best_row_is_best_in_every_column(store):
    definition = load_table("hard_truncation").select(rows=["zero_shot", "grpo"])
    keys = {
        (row, "mathverse_testmini"): [answer(store, "mathverse_testmini", marks, row=row)]
        for row, marks in [("zero_shot", "-" * 12), ("grpo", "+" * 12)]
    }
    table = build(definition, store, keys)
    assert [column.id for column in table.columns] == ["mathverse_testmini"]
    assert not table.has_average
    assert [row.is_best for row in table.rows] == [False, True]
    assert not any("average" in note for note in table.notes)


def test_a_footnote_on_one_printed_score_stands_at_that_score_alone(store):
    table = build(load_table("kl_free"), store, {})
    kl, kl_free = table.published
    notes = {note.mark: note.text for note in table.published_footnotes}
    assert kl.scores[0].marks == kl.scores[1].marks == kl_free.scores[1].marks
    assert "Below plain GRPO" in notes[kl.scores[0].marks]
    assert len(kl_free.scores[0].marks.split(",")) == 2
    assert "" not in notes
    marked = [*(item for row in table.published for item in row.scores), *table.columns]
    assert set(notes) == {mark for item in marked for mark in item.marks.split(",")}


def test_a_column_that_nothing_here_may_fill_says_why_below_the_table(store):
    reason = "Programs written by models are not allowed to run."
    table = build(SCALE, store, {}, lacking={"mmmu_pro": reason})
    assert [row.cells[0].state for row in table.rows] == ["not measured"] * 2
    assert f"MMMU-Pro, not measured: {reason}" in table.notes
    key = answer(store, "mmmu_pro_standard", "+-"), answer(store, "mmmu_pro_vision", "+-")
    filled = build(SCALE, store, {("instruct", "mmmu_pro"): list(key), ("ours", "mmmu_pro"): list(key)})
    assert not any("not measured: Programs" in note for note in filled.notes)

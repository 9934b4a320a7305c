"""What a table says, and where a mistake in it is found."""

from decimal import Decimal

import pytest

from atrl_bench.credit.rules import rule_names
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.evaluation.tasks import expand
from atrl_bench.experiments.definition import (
    TableDefinition,
    list_tables,
    load_table,
)
from atrl_bench.papers.scores import load_printed, read_printed
from atrl_bench.profiles import load_profile
from atrl_bench.resources import folder
from atrl_bench.results.statistics.metrics import parse_metric
from atrl_bench.settings import read_settings

SMALL = """\
title: t
caption: c
source: s
label: tab:x
baseline: base
data: virl39k
schedule: strict
columns: [{id: a, label: A, task: t, metric: acc@1}]
rows:
  - {id: base, label: Base}
  - {id: grpo, label: GRPO, recipe: grpo}
"""


@pytest.fixture
def small(tmp_path):
    def read(text: str = SMALL) -> TableDefinition:
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return read_settings(path, TableDefinition, id="small")

    return read


OWN = ["credit_placement", "headroom", "released_7b", "looking"]  # tables that the paper does not have
IN_PAPER = [name for name in list_tables("at_rl") if name not in OWN]


@pytest.mark.parametrize("name", IN_PAPER)
def test_the_csv_holds_scores_for_every_row_of_the_paper_and_for_no_other(name):
    table = load_table(name)
    assert {row for row, _ in load_printed(table).scores} == {row.id for row in table.rows if row.in_paper}
    assert {column for _, column in load_printed(table).scores} == {column.id for column in table.columns}


@pytest.mark.parametrize("name", OWN)
def test_a_table_of_our_own_claims_no_row_and_no_score_of_the_paper(name):
    table = load_table(name)
    assert load_printed(table).scores == {}
    assert not any(row.in_paper for row in table.rows)
    assert table.source == "No table of the paper"


def test_scores_keep_their_digits_and_spreads_stand_apart():
    assert str(load_printed(load_table("main_7b")).scores["gspo", "mathvista_testmini"]) == "66.40"
    grouping = load_table("grouping")
    assert load_printed(grouping).scores["grpo", "mathverse_testmini"] == Decimal("41.48")
    assert load_printed(grouping).spreads["grpo", "mathverse_testmini"] == Decimal("0.18")
    assert ("zero_shot", "mathverse_testmini") not in load_printed(grouping).spreads


def test_every_file_of_scores_belongs_to_a_table_and_a_score_that_is_not_printed_is_none():
    assert set(IN_PAPER) == {path.stem for path in (folder("reports") / "at_rl" / "scores").glob("*.csv")}
    scores = load_printed(load_table("scale_32b")).scores
    assert ("instruct", "infovqa") not in scores
    assert len(scores) == 8 * 11 - 9


@pytest.mark.parametrize("name", list_tables())
def test_every_row_names_a_rule_and_one_that_can_be_trained_a_recipe_that_takes_its_settings(name):
    table = load_table(name)
    for row in table.rows:
        assert row.credit.rule in rule_names(), "a plan of shipped tables does not load the rules to see"
        if row.recipe:
            recipe = table.recipe_of(row)
            if recipe.method == "rollouts":
                assert (recipe.credit.rule, recipe.schedule) == (row.credit.rule, row.schedule or table.schedule)
            assert recipe.data == (row.data or table.data)


@pytest.mark.parametrize("name", list_tables())
def test_every_column_names_a_task_or_a_suite_and_a_number_that_it_has(name):
    for column in load_table(name).columns:
        for info in expand([column.task]):
            metric = column.metric.replace("headline@", f"{info.code.headline}@")
            assert parse_metric(metric, info.code.statistics)[1] == (1 if name in IN_PAPER else 8)
            assert (column.frames is not None) == (info.media == "video")


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("main_7b", 5),
        ("cross_dataset", 2),
        ("hard_truncation", 11),
        ("grouping", 5),
        ("video", 1),
        ("credit_placement", 11),
        ("headroom", 20),
    ],
)
def test_a_row_compared_with_another_differs_from_it_in_its_credit_alone(name, count):
    table = load_table(name)
    compared = [(row, row.compared_with) for row in table.rows if row.compared_with]
    assert len(compared) == count
    for row, name_of_other in [*compared, *((table.row(mine), theirs) for mine, theirs in table.pairs)]:
        other = table.row(name_of_other)
        mine, theirs = (table.recipe_of(r).model_dump() for r in (row, other))
        assert {name for name in mine if mine[name] != theirs[name]} == {"credit"}
        assert table.model_of(row) == table.model_of(other)


def test_a_served_row_of_a_video_table_is_asked_once_for_each_number_of_frames():
    table = load_table("video")
    row = table.rows[0].model_copy(update={"served": "vlm"})
    commands = table.evaluate_command(row, "--profile paper").split(" && ")
    assert [command.partition("--frames ")[2] for command in commands] == [
        "16 --profile paper",
        "32 --profile paper",
        "64 --profile paper",
    ]
    assert all(command.startswith("atrl-bench evaluate vlm --base-url URL --tasks vsi_bench,") for command in commands)


def test_an_unknown_table_names_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean main_7b"):
        load_table("main7b")
    with pytest.raises(UnknownNameError):
        load_table("../paper/main_7b")


def test_selecting_keeps_the_order_of_the_table_and_names_what_is_unknown():
    table = load_table("main_7b").select(rows=["grpo", "zero_shot"], columns=["wemath_testmini"])
    assert [row.id for row in table.rows] == ["zero_shot", "grpo"]
    assert len(load_printed(table).scores) == 2
    with pytest.raises(UnknownNameError, match=r"row 'grpo_atlr'(.|\n)*grpo_atrl"):
        load_table("main_7b").select(rows=["grpo_atlr"])
    with pytest.raises(UnknownNameError, match=r"column 'wemath'(.|\n)*wemath_testmini"):
        load_table("main_7b").select(columns=["wemath"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("metric: acc@1}", "metric: acc@1, frames: 15}", r"small\.yaml:8: field 'columns\.0\.frames'"),
        ("recipe: grpo}", "recipe: grpo, cell_footnotes: {b: []}}", "footnote on b, which is no column"),
        ("recipe: grpo}", "recipe: grpo, cell_footnotes: {a: [nil]}}", "footnote nil, which is not defined"),
        ("schedule: strict", "schedule: strict\nkind: ablation", "an ablation names its point"),
        ("schedule: strict", "schedule: strict\npoint: nil", "the point is nil, which is no row"),
        ("metric: acc@1", "metric: acc", r"small\.yaml:8: field 'columns\.0\.metric'"),
        ("recipe: grpo}", "recipe: grpo, color: red}", r"small\.yaml:11: field 'rows\.1\.color'"),
        ("baseline: base", "baseline: zero", "the baseline is zero, which is no row"),
        ("id: grpo,", "id: base,", "row base is there twice"),
        ("recipe: grpo}", "recipe: grpo, group: g}", "group g, which is not defined"),
        (
            "recipe: grpo}",
            "recipe: grpo, compared_with: nil}",
            r"small\.yaml: row grpo is compared with nil, which is no row",
        ),
        ("recipe: grpo}", "recipe: grpo, compared_with: grpo}", "row grpo is compared with itself"),
        ("id: grpo,", "id: a/b,", r"small\.yaml:11: field 'rows\.1\.id'"),
        ("id: a,", "id: average,", "column average is the mean of the others"),
        ("schedule: strict", "schedule: strict\npairs: [[grpo, nil]]", "the pairs name nil, which is no row"),
        ("recipe: grpo}", "recipe: grpo, footnotes: [nil]}", "footnote nil, which is not defined"),
        ("recipe: grpo}", "recipe: grpo, not_measured: x}", "keep one"),
        ("recipe: grpo}", "recipe: grpo, served: gpt}", "keep one"),
        ("recipe: grpo}", "credit: atrl}", "no recipe that would use it"),
        ("schedule: strict", "schedule: eager", "'strict' or 'minibatch4'"),
        ("rows:", "rows: [", "is not YAML"),
    ],
)
def test_a_mistake_in_a_table_is_found_where_it_is(small, old, new, message):
    small()
    with pytest.raises(InvalidFileError, match=message):
        small(SMALL.replace(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,a\ngrpo,50.1\n", None),
        ("\ufeffrow,a\ngrpo,50.1\n", None),
        ("name,a\ngrpo,50.1\n", r"scores\.csv:1: the first column 'name'"),
        ("row,b\ngrpo,50.1\n", r"scores\.csv:1: column 'b'"),
        ("row,a\nother,50.1\n", r"scores\.csv:2: row 'other'"),
        ("row,a\ngrpo,↑2.81\n", r"scores\.csv:2: field 'a'"),
        ("row,a\ngrpo,501\n", "no percentage"),
        ("row,a\ngrpo\n", r"scores\.csv:2: 1 fields, and 2 columns"),
        ("row,a\ngrpo,50.1,50.2\n", r"scores\.csv:2: 3 fields, and 2 columns"),
        ("row,a\ngrpo,50.1\ngrpo,50.2\n", "'grpo' stands there twice"),
        ("row,a,a\ngrpo,50.1,50.2\n", "'a' stands there twice"),
        ("row,a,b_sd\ngrpo,50.1,0.1\n", r"scores\.csv:1: column 'b_sd'"),
        ("", r"scores\.csv:1"),
    ],
)
def test_a_mistake_in_the_printed_scores_is_found_where_it_is(small, tmp_path, text, message):
    path = tmp_path / "scores.csv"
    path.write_text(text)
    if message is None:
        assert read_printed(path, small()).scores == {("grpo", "a"): Decimal("50.1")}
    else:
        with pytest.raises(InvalidFileError, match=message):
            read_printed(path, small())


def test_a_comparison_is_of_the_row_with_credit_minus_the_one_without_whichever_names_the_other():
    assert ("full", "grpo") in load_table("grouping").credit_pairs  # there the paper's deltas are those of GRPO
    assert ("raw", "full") in load_table("grouping").credit_pairs
    assert ("grpo_atrl", "grpo") in load_table("main_7b").credit_pairs


@pytest.mark.parametrize(
    ("row", "beside", "label"),
    [
        ("perception_uniform", None, "mini: Uniform, 1× (Perception, first base)"),
        ("reasoning_2_uniform", None, "mini: Uniform, 1–4× (Reasoning, second base)"),
        ("perception_uniform", "perception_atrl", "mini: Uniform, 1×"),
        ("perception_uniform", "reasoning_2_uniform", "mini: Uniform, 1× (Perception, first base)"),
        ("perception_atrl", None, "mini: AT-RL"),
        ("no_row", None, "no_row"),
    ],
)
def test_a_row_has_its_group_in_its_name_where_another_group_has_one_like_it(row, beside, label):
    table = load_table("headroom").select(rows=["perception_uniform", "perception_atrl", "reasoning_2_uniform"])
    rates = {"perception_uniform": "1", "reasoning_2_uniform": "1–4"}
    assert table.as_measured(load_profile("mini"), rates).row_label(row, beside) == label

"""A table that says what its rows lose without the picture: the sums stand in the comments."""

import pytest
from stored import fill_cell

from atrl_bench.experiments.definition import TableDefinition, load_table, table_of_cells
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.build import build_table
from atrl_bench.report.cells import TableSource

SHOWN = {"id": "shown", "label": "GeoQA", "task": "geoqa_test", "metric": "acc@1"}
LOSES = SHOWN | {"id": "loses", "subscript": "reliance, blank", "task": "geoqa_test@blank", "relies_on": "shown"}


def table(columns=(SHOWN, LOSES)) -> TableDefinition:
    rows = [
        {"id": "base", "label": "Base", "in_paper": False},
        {"id": "trained", "label": "Trained", "in_paper": False, "recipe": "grpo"},
    ]
    return table_of_cells("looking", title="t", caption="c", baseline="base", average=False, columns=columns, rows=rows)


def built(store, answers: dict[tuple[str, str], str | list[str]]):
    """Return the table of these answers, given as a text or, where training has several seeds, as one for each."""
    of_seeds = {at: [marks] if isinstance(marks, str) else marks for at, marks in answers.items()}
    keys = {
        (row, column): [
            fill_cell(store, {"task": "geoqa_test", "model_name": row, "image": column, "seed": seed, "of": text}, text)
            for seed, text in enumerate(marks)
        ]
        for (row, column), marks in of_seeds.items()
    }
    seeds = tuple(range(max(map(len, of_seeds.values()))))
    return build_table(TableSource(table(), store, load_profile("smoke"), keys, seeds=seeds))


def test_a_column_of_reliance_prints_what_goes_with_the_picture_and_the_page_answers_first(store):
    answers = {("base", "shown"): "++--", ("base", "loses"): "++--"}  # right without looking
    answers |= {("trained", "shown"): "++++", ("trained", "loses"): "+---"}
    made = built(store, answers)
    means = [[cell.estimate.mean for cell in row.cells] for row in made.rows]
    assert means == [[0.5, 0.0], [1.0, 0.75]]
    assert made.rows[1].cells[1].difference.estimate.mean == 0.75
    assert made.says.startswith("Did training make it look more?")
    assert "One seed cannot tell: against the untrained base reliance differs by +75.0 points" in made.says
    ((_, (base,)), (_, (trained,))) = made.grids[0].rows
    assert (base.value, trained.value) == (0.0, 75.0)


def test_with_several_seeds_a_gain_that_one_of_them_lacks_is_not_clear(store):
    many = 40  # problems: over them alone every difference below is clear

    def said(marks: list[str]) -> str:
        answers = {("base", "shown"): "+" * many, ("base", "loses"): "+" * many}  # relies on nothing
        return built(store, {**answers, ("trained", "shown"): ["+" * many] * 3, ("trained", "loses"): marks}).says

    assert "1 is clearly for more" in said(["-" * many, "-" * many, "+" + "-" * (many - 1)])
    assert "none are clearly for more" in said(["-" * many, "-" * many, "+" * many])


def test_without_the_answers_with_the_picture_nothing_is_said(store):
    made = built(store, {("base", "loses"): "++--"})
    cell = made.rows[0].cells[1]
    assert (cell.state, cell.reason) == ("missing", "it needs the column shown")
    assert made.says == ""


def test_the_column_with_the_picture_comes_with_the_one_that_needs_it():
    assert [column.id for column in table().select(columns=["loses"]).columns] == ["shown", "loses"]
    with pytest.raises(ValueError, match="relies on elsewhere, which is no column"):
        table(columns=(SHOWN, LOSES | {"relies_on": "elsewhere"}))


@pytest.mark.full
def test_a_plan_asks_for_each_task_both_ways(tmp_path):
    plan = plan_table("looking", RunDir.at(tmp_path, load_profile("smoke")), rows=["mini_base"])
    (job,) = plan.jobs
    asked = [(task, options.image) for task, options in job.evaluations]
    mathvista, mathverse = "mathvista_testmini", "mathverse_testmini"
    assert asked == [
        (mathvista, None),
        (mathvista, "shuffled"),
        (mathvista, "none"),
        (mathverse, None),
        (mathverse, "shuffled"),
    ]


def test_a_way_that_is_none_is_refused_where_the_table_is_read():
    with pytest.raises(ValueError, match="Pictures cannot be shown as 'shufled'"):
        table(columns=(SHOWN, LOSES | {"task": "geoqa_test@shufled"}))
    assert load_table("looking").of_worlds

"""A point of an ablation: what is asked for, which row it is, where it stands, and what it needs."""

import pytest

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.ablation import save_points, with_points, with_saved_points
from atrl_bench.experiments.definition import load_table
from atrl_bench.experiments.plan import plan_ablation, plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.papers.scores import load_printed
from atrl_bench.profiles import load_profile
from atrl_bench.report.build import build_table
from atrl_bench.report.cells import TableSource
from atrl_bench.results.store import Store

SMOKE = load_profile("smoke")


def points(name: str, *assignments: str) -> tuple[list[str], list[str]]:
    """Return the labels of the rows asked for, and of all rows."""
    definition, asked = with_points(load_table(name), assignments)
    return [row.label for row in asked], [row.label for row in definition.rows]


def test_a_point_that_the_paper_has_is_the_papers_row():
    asked, rows = points("hard_truncation", "topk=0.15")
    assert asked == ["Hard truncation (top 15%)"]
    assert rows == [row.label for row in load_table("hard_truncation").rows]


def test_a_new_share_of_tokens_is_a_row_between_its_neighbours():
    asked, rows = points("hard_truncation", "topk=0.35,0.02,0.9")
    assert asked == ["Hard truncation (top 35%)", "Hard truncation (top 2%)", "Hard truncation (top 90%)"]
    curve = [label.split("top ")[1][:-2] for label in rows if "(top" in label]
    assert curve == ["2", "5", "10", "15", "20", "30", "35", "50", "75", "90"]


def test_values_of_any_field_are_rows_in_the_order_of_the_values():
    asked, rows = points("bias_correction", "alpha=0.75,0.25,0.5")
    assert asked == ["AT-RL, α=0.75", "AT-RL, α=0.25", "AT-RL, α=0.5"]
    assert rows[-4:] == ["AT-RL w/ Bias Correction", "AT-RL, α=0.25", "AT-RL, α=0.5", "AT-RL, α=0.75"]


def test_several_settings_make_every_combination_and_the_papers_default_is_one_of_them():
    asked, rows = points("cluster_refinement", "tau_cen=0.7,0.75", "outlier_scale=0.6,0.9")
    assert asked == [
        "τ_cen=0.70, α=0.6",
        "AT-RL, τ_cen=0.7, α=0.9",
        "Default (τ_cen=0.75, α=0.6)",
        "AT-RL, τ_cen=0.75, α=0.9",
    ]
    assert len(rows) == 5 + 2


def test_a_point_is_trained_with_its_settings_and_with_nothing_else_changed():
    definition, (point,) = with_points(load_table("neighbourhood_expansion"), ["R=2"])
    default = definition.row("default")
    mine, theirs = (definition.recipe_of(r).model_dump() for r in (point, default))
    assert {name for name in mine if mine[name] != theirs[name]} == {"credit"}
    assert mine["credit"]["settings"] == {"num_neighbours": 2}
    assert not point.in_paper


def test_the_rule_and_the_preset_are_settings_too():
    _, (point,) = with_points(load_table("hard_truncation"), ["rule=bottom_truncation", "kept_fraction=0.3"])
    assert (point.credit.rule, point.credit.settings) == ("bottom_truncation", {"kept_fraction": 0.3})
    _, (literal,) = with_points(load_table("hard_truncation"), ["preset=literal"])
    assert (literal.credit.rule, literal.credit.preset) == ("atrl", "literal")
    assert points("hard_truncation", "rule=uniform")[0] == ["GRPO (Uniform weighting)"]


def test_fields_of_the_recipe_are_set_as_those_of_the_credit_are():
    asked, rows = points("kl_free", "rule=uniform,atrl", "kl=0.02,0")
    assert asked == ["rule=uniform, kl_coef=0.02", "rule=uniform, kl_coef=0", "AT-RL (β=0.02)", "AT-RL (β=0)"]
    assert rows == ["AT-RL (β=0.02)", asked[1], asked[0], "AT-RL (β=0)"]
    definition, (point,) = with_points(load_table("cluster_refinement"), ["learning_rate=3e-6"])
    mine, default = (definition.recipe_of(row).sizes(SMOKE) for row in (point, definition.row("default")))
    assert mine == default.model_copy(update={"learning_rate": 3e-6})
    assert point.compared_with is None, "it differs in more than its credit"


def test_the_papers_search_is_every_combination_with_its_default_and_its_sensitivity_rows_among_them():
    grid = ["tau_cen=0.7,0.75,0.8", "alpha=0.4,0.6,0.8", "R=3,4,5", "tau_nb=0.6,0.65,0.7", "q=0.1,0.15,0.2"]
    _, asked = with_points(load_table("cluster_refinement"), grid)
    assert len({row.id for row in asked}) == 3**5
    assert {row.id for row in load_table("cluster_refinement").rows if row.credit.rule == "atrl"} <= {
        row.id for row in asked
    }


def test_a_point_is_compared_with_what_the_paper_compares_its_neighbours_with():
    compared = {}
    for name, setting in [
        ("hard_truncation", "topk=0.35"),
        ("grouping", "alpha=0.5"),
        ("cluster_refinement", "alpha=0.5"),
    ]:
        _, (point,) = with_points(load_table(name), [setting])
        compared[name] = point.compared_with
    assert compared == {"hard_truncation": "grpo", "grouping": "full", "cluster_refinement": None}


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ("alfa=0.3", UnknownNameError, "Did you mean alpha"),
        ("outlier_scal=0.3", UnknownNameError, "Did you mean outlier_scale"),
        ("rule=atlr", UnknownNameError, "Did you mean atrl"),
        ("topk=1.5", InvalidFileError, r"(?s)kept_fraction=1\.5.*at most 1"),
        ("R=many", InvalidFileError, r"(?s)num_neighbours=many.*finite number"),
        ("R=2.5", InvalidFileError, "whole number"),
        ("preset=mine", InvalidFileError, "preset=mine"),
        ("kl_cof=0", UnknownNameError, "Did you mean kl_coef"),
        ("kl=-1", InvalidFileError, "kl_coef=-1"),
        ("alpha", InvalidFileError, "not field=value"),
        ("alpha=", InvalidFileError, "not field=value"),
        ("alpha=[1", InvalidFileError, r"outlier_scale=\[1"),
        ("topk=0.3 kept_fraction=0.4", InvalidFileError, "kept_fraction is set twice"),
    ],
)
def test_a_setting_that_is_none_is_a_clear_error(setting, error, message):
    with pytest.raises(error, match=message):
        with_points(load_table("hard_truncation"), setting.split())


def test_one_point_needs_itself_and_what_it_is_set_against(tmp_path, mini_world):
    plan = plan_ablation("hard_truncation", RunDir.at(tmp_path, SMOKE, mini_world), ["topk=0.15"])
    assert [job.name for job in plan.due] == ["zero_shot", "grpo seed 0", "top_15 seed 0"]
    assert len(plan.definition.rows) == 13  # the table shows all, measured or not


def test_without_options_the_whole_ablation_is_due(tmp_path, mini_world):
    plan = plan_ablation("bias_correction", RunDir.at(tmp_path, SMOKE, mini_world))
    assert [job.row.id for job in plan.due] == ["zero_shot", "grpo", "without", "atrl"]


def test_a_table_is_no_ablation_and_an_unknown_one_names_the_nearest():
    for name, near in [("main_7b", "Known: bias_correction"), ("hard_truncaton", "Did you mean hard_truncation")]:
        with pytest.raises(UnknownNameError, match=near):
            plan_ablation(name, RunDir.at(None, SMOKE))


def test_points_that_were_run_stay_with_the_run_folder(tmp_path, mini_world):
    run_dir = RunDir.at(tmp_path, SMOKE, mini_world)
    for setting in ("topk=0.35", "max_neighbours=null", "topk=0.35"):
        save_points(with_points(load_table("hard_truncation"), [setting])[0], run_dir)
    saved = [row.label for row in with_saved_points(load_table("hard_truncation"), run_dir).rows if row.added_by]
    assert saved == ["Hard truncation (top 35%)", "AT-RL, max_neighbours=null"]
    assert with_saved_points(load_table("main_7b"), run_dir) is load_table("main_7b")
    rows = plan_table("hard_truncation", run_dir).definition.rows
    assert len(rows) == 13 + 2


@pytest.mark.parametrize(
    ("points", "mistake"),
    [
        ("[[", "Invalid JSON: expected value at line 1 column 14."),
        ('{"hard_truncation": [[1]]}', "field 'points.hard_truncation.0.0': Input should be a valid string."),
        ("5", "field 'points': Input should be an object."),
    ],
)
def test_a_damaged_list_of_points_is_named_with_its_first_mistake_and_nothing_is_dropped(
    tmp_path, mini_world, points, mistake
):
    path, content = tmp_path / "run.json", f'{{"points": {points}}}'
    run_dir = RunDir.at(tmp_path, SMOKE, mini_world)
    path.write_text(content)
    with pytest.raises(InvalidFileError, match=r"run\.json does not say") as error:
        plan_table("hard_truncation", run_dir)
    assert error.value.why == mistake
    assert path.read_text() == content


def test_a_point_says_that_the_paper_lacks_it_and_how_it_is_made(tmp_path):
    definition, (point,) = with_points(load_table("hard_truncation"), ["topk=0.35"])
    with Store.open(tmp_path / "store.sqlite") as store:
        table = build_table(TableSource(definition, store, SMOKE, {}), printed=load_printed(definition))
    row = next(row for row in table.rows if row.id == point.id)
    assert not row.in_paper
    assert row.cells[0].command == (
        "atrl-bench ablate hard_truncation --profile smoke --set kept_fraction=0.35 --columns mathverse_testmini"
    )
    assert "Rows that `ablate` added are not in the paper: smoke: Hard truncation (top 35%)." in table.notes
    assert point.id not in {row.id for row in table.published}

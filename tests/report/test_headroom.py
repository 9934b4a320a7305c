"""A world ranks rules only where its oracle gains: a table of made-up trainings, in which that is known."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from stored import fill_cell

from atrl_bench.experiments.definition import TableDefinition, load_table
from atrl_bench.profiles import load_profile
from atrl_bench.report.build import build_table
from atrl_bench.report.cells import TableSource
from atrl_bench.report.differences import answer_of, contrasts, with_headroom
from atrl_bench.report.html import render_html
from atrl_bench.report.text import render_markdown
from atrl_bench.results.statistics.means import Difference, Estimate, SeedSpread
from atrl_bench.results.store import Store

SEEDS = (0, 1, 2)
TASKS = {"rich": "geoqa_test", "poor": "mathvista_testmini"}
COLUMNS = [
    {"id": "here", "label": "Here", "task": TASKS["rich"], "metric": "acc@1"},
    {"id": "there", "label": "There", "task": TASKS["poor"], "metric": "acc@1"},
]
GROUPS = [
    {"id": "rich", "label": "Rich world", "baseline": "rich_uniform", "columns": ["here"], "oracle": "rich_oracle"},
    {"id": "poor", "label": "Poor world", "baseline": "poor_uniform", "columns": ["there"], "oracle": "poor_oracle"},
]


def definition(**changes):
    rows = []
    for world, rule in product(("rich", "poor"), ("uniform", "atrl", "oracle")):
        credit = {} if rule == "uniform" else {"credit": "atrl", "compared_with": f"{world}_uniform"}
        same = {"label": rule, "group": world, "recipe": "grpo", "in_paper": False}
        rows.append({"id": f"{world}_{rule}", **same, **credit})
    fields = load_table("main_7b").model_dump(include={"title", "caption", "source", "label", "data", "schedule"})
    own = {"id": "made_up", "baseline": "rich_uniform", "average": False, "seeds": SEEDS, "columns": COLUMNS}
    return TableDefinition.model_validate({**fields, **own, "groups": GROUPS, "rows": rows, **changes})


def table(path, accuracies):
    """Return the table in which row `rich_atrl` answers so large a share of its 200 problems right, under each seed."""
    made, keys = definition(), {}
    with Store.open(path / "store.sqlite") as store:
        for row in made.rows:
            column, seeds = "here" if row.group == "rich" else "there", []
            for seed in SEEDS:
                # One order of difficulty for all, so that differences are of the rows alone; seeds move by a problem.
                order = np.random.default_rng(0).permutation(200)
                right = set(order[: round(200 * accuracies.get(row.id, 0.5)) + seed % 2])
                spec = {"task": TASKS[row.group], "model_name": f"{row.id}-{seed}", "decoding": {"repeats": 1}}
                key = fill_cell(store, spec, "".join("+" if i in right else "-" for i in range(200)))
                seeds.append(key)
            keys[row.id, column] = seeds
        built = build_table(TableSource(made, store, load_profile("smoke"), keys, seeds=SEEDS))
    return with_headroom(built, made)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    accuracies = {"rich_atrl": 0.7, "rich_oracle": 0.8, "poor_atrl": 0.7, "poor_oracle": 0.5}
    return table(tmp_path_factory.mktemp("headroom"), accuracies)


def test_a_world_whose_oracle_gains_ranks_its_rules(measured):
    rich, _ = measured.headroom
    assert rich.startswith("Rich world: headroom +30.0 points, 95 % interval +")
    assert rich.endswith("This world can rank rules.")
    atrl = next(item for item in measured.comparisons if item.row_id == "rich_atrl")
    assert atrl.is_ranked
    assert atrl.q_values[0] < 0.05


def test_a_world_whose_oracle_gains_nothing_ranks_none_however_far_a_rule_is_ahead(measured):
    _, poor = measured.headroom
    assert "headroom 0.0 points" in poor
    # All 200 problems stood still: of all such up to 1 - 0.05^(1/200) = 1.5 % may yet change sides.
    assert "−1.5 to +1.5: none larger than 1.5. This" in poor
    assert poor.endswith("This world cannot rank rules.")
    atrl = next(item for item in measured.comparisons if item.row_id == "poor_atrl")
    assert atrl.overall.estimate.mean == pytest.approx(0.2)
    assert not atrl.is_ranked
    assert set(atrl.q_values) == {None}
    assert not any(cell.is_best for row in measured.rows if row.group == "Poor world" for cell in row.cells)


def test_where_the_interval_is_wide_it_cannot_tell(measured):
    estimate = Estimate(0.0, 0.02 / math.sqrt(3), 2, 200, 200)  # 4.30 * 2 / sqrt(3) = 5.0 points to each side
    difference = Difference.tested(estimate, "t")
    wide = tuple(replace(item, overall=difference, overall_q=1.0) for item in measured.comparisons)
    _, poor = with_headroom(replace(measured, comparisons=wide), definition()).headroom
    assert "95 % interval −5.0 to +5.0: this cannot tell; " in poor
    assert poor.endswith("This world cannot rank rules.")


def test_a_row_is_compared_on_the_columns_of_its_group_alone(measured):
    cells = {row.id: [cell.state for cell in row.cells] for row in measured.rows}
    assert cells["rich_atrl"] == ["measured", "not measured"]
    assert cells["poor_atrl"] == ["not measured", "measured"]


def test_page_and_markdown_say_it_before_any_number(measured):
    for text in (render_html(measured), render_markdown(measured)):
        assert text.index("This world cannot rank rules") < text.index("Measured here")


@pytest.mark.parametrize(
    ("group", "said"),
    [({"oracle": "rich_uniform"}, "is no row that is compared"), ({"columns": ["nowhere"]}, "which is no column")],
)
def test_an_oracle_without_a_comparison_and_an_unknown_column_are_refused(group, said):
    with pytest.raises(ValueError, match=said):
        definition(groups=[GROUPS[0] | group, GROUPS[1]])


def test_the_headroom_at_one_rate_says_who_learned_faster_too(measured):
    # Two seeds, +2 and +4 points: 3 ± 12.7, since the standard error is 1 and t with one degree of freedom 12.7.
    training = SeedSpread(mean=0.03, sd=0.02 / 2**0.5, num_seeds=2)
    at_one_rate = tuple(replace(item, training=training) for item in measured.comparisons)
    rich, _ = with_headroom(replace(measured, equal_rate=at_one_rate), definition()).headroom
    assert "(+30.0 at one learning rate for all, +3.0 ±12.7 while training)" in rich


def test_a_difference_that_is_not_ranked_is_not_said_to_be_near_zero(measured):
    # `poor_atrl` is 20 points above uniform credit, over all problems and seeds, in a world without headroom.
    answer = answer_of(contrasts(measured))
    assert answer is not None
    assert "not clearly different from zero" not in answer.sentence
    assert answer.sentence.endswith(
        "2 of 4 differences are not called clear, 1 of them because no rule is ranked where there is no headroom."
    )

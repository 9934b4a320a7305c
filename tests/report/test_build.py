"""What the page claims about the numbers in the store."""

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal

import pytest
from stored import fill_cell
from table_fixtures import cell_of as cell

from atrl_bench.experiments.definition import load_table
from atrl_bench.profiles import load_profile
from atrl_bench.report.build import build_table
from atrl_bench.report.cells import TableSource
from atrl_bench.report.html import render_html
from atrl_bench.report.latex import render_latex
from atrl_bench.report.rendered import table_from_json
from atrl_bench.report.text import render_csv, render_json, render_markdown, terminal_text
from atrl_bench.results.records import Gold, Problem
from atrl_bench.results.statistics.means import SeedSpread
from atrl_bench.results.store import Store


@pytest.fixture
def small(tmp_path):
    """Return a function that stores the given verdicts by row, one column, and builds the table of those rows."""

    def build(verdicts: dict[str, str], *, growing: Sequence[str] = (), groups: int | None = None, seeds: int = 1):
        definition = load_table("main_7b").select(rows=list(verdicts), columns=["mathvision_testmini"])
        with Store.open(tmp_path / "store.sqlite") as store:
            keys = {}
            for row, marks in verdicts.items():
                for seed, of_seed in enumerate(marks.split()):
                    spec = {"row": row, "seed": seed, "decoding": {"repeats": 1}, "judge": None}
                    size = len(of_seed) // groups if groups else 1
                    problems = [Problem(f"p{i}", f"g{i // size}", "?", Gold("3")) for i in range(len(of_seed))]
                    key = fill_cell(store, spec, of_seed, problems=problems, is_finished=row not in growing)
                    keys.setdefault((row, "mathvision_testmini"), []).append(key)
            of_seeds = tuple(range(seeds))
            return build_table(TableSource(definition, store, load_profile("mini"), keys, seeds=of_seeds))

    return build


def test_a_score_is_the_share_of_correct_answers_and_a_failed_judge_is_no_answer(small):
    found = cell(small({"zero_shot": "+-?tj"}), "zero_shot", "mathvision_testmini")
    assert found.estimate.mean == 1 / 4  # one of the four that have a verdict
    assert (found.estimate.num_problems, found.num_expected) == (4, 5)
    counts = found.counts
    assert (counts.correct, counts.wrong, counts.unparseable, counts.timed_out, counts.judge_failed) == (1, 1, 1, 1, 1)
    assert counts.unusual == {"unparseable": 1, "timed out": 1, "judge failed": 1}


def test_a_page_begins_with_a_judge_that_failed_on_more_than_one_answer_in_a_hundred(small):
    table = small({"zero_shot": "+" * 96 + "-" * 2 + "j" * 2})
    said = "The judge failed on 2 of 100 answers (2.0 %)."
    assert table.judge_warning.startswith(said)
    assert small({"zero_shot": "+" * 97 + "-" * 2 + "j"}).judge_warning == ""
    assert re.search(r"<main>\s*<p[^>]*>" + re.escape(said), render_html(table))
    assert re.match(r"# .*\n+\*\*The judge failed on 2 of 100 answers", render_markdown(table))
    assert terminal_text(table).plain.split("\n\n")[1].startswith(said)


def test_a_note_says_how_exact_a_number_has_to_be_in_general_and_where_questions_say_it(store):
    golds = [Gold("3.14"), Gold("2.5", precision=1), Gold("7", tolerance=0.05), Gold("8", tolerance=0.01)]

    def notes(golds):
        definition = load_table("main_7b").select(rows=["zero_shot"], columns=["mathvista_testmini"])
        problems = [Problem(f"p{i}", f"p{i}", "?", gold) for i, gold in enumerate(golds)]
        spec = {"decoding": {"repeats": 1}, "judge": None, "golds": str(golds)}
        keys = {("zero_shot", "mathvista_testmini"): [fill_cell(store, spec, "+" * len(golds), problems=problems)]}
        table = build_table(TableSource(definition, store, load_profile("mini"), keys))
        return [note for note in table.notes if note.startswith("A number is right where")], render_latex(table)[""]

    (said,), latex = notes(golds)
    assert said.endswith(
        "On MathVista both are rounded to the decimal places of the question. "
        "On MathVista a number may be off by what its question allows, at most 5 %."
    )
    assert "A number is right where" in latex
    (to_gold,), _ = notes([Gold("51.0", precision="gold")])
    assert to_gold.endswith("On MathVista a number is right that rounds to the gold.")
    (plain,), _ = notes(golds[:1])
    assert plain.endswith("four right decimal places stand for an exact gold.")
    assert notes([Gold("B", ("1", "2"), "choice")])[0] == []


def test_a_judge_that_failed_on_a_fifth_has_bounds_and_no_score_in_any_format(small):
    table = small({"zero_shot": "+" * 40 + "-" * 40 + "j" * 20})  # 50 % of those with a verdict: of all 40 to 60 %
    row = next(csv.DictReader(io.StringIO(render_csv(table))))
    assert (row["score"], row["low"], row["high"], row["judge_failed"]) == ("", "40.0", "60.0", "20")
    document = json.loads(render_json(table))
    assert document["judge_warning"].startswith("The judge failed on 20 of 100 answers (20.0 %).")
    assert [(cell["estimate"], cell["between"]) for cell in document["rows"][0]["cells"][:1]] == [(None, [0.4, 0.6])]
    assert table_from_json(render_json(table)) == table
    texts = [render_html(table), render_markdown(table), render_latex(table)[""], terminal_text(table).plain]
    for text in texts:
        assert "The judge failed on 20 of 100 answers" in text
        assert "40.0 to 60.0" in text
        assert "50.0" not in text


def test_differences_are_paired_with_the_baseline_and_tested_exactly(small):
    found = cell(small({"zero_shot": "------++", "grpo": "++++++++"}), "grpo", "mathvision_testmini")
    assert found.difference.estimate.mean == 6 / 8
    assert found.difference.p_value == 1 / 32  # six problems gained, none lost: 2 * (1/2)^6
    assert found.difference.test == "exact McNemar"
    # two differences, this one and that of the one-column average, whose paired t has p = 0.0032 (t = 4.58, 7 degrees)
    assert found.q_value == pytest.approx(1 / 32)
    assert found.is_significant


def test_problems_of_one_group_are_compared_by_the_clustered_test(small):
    found = cell(small({"zero_shot": "----++++", "grpo": "++++++++"}, groups=2), "grpo", "mathvision_testmini")
    assert found.difference.test == "paired t, clustered"
    assert found.estimate.num_groups == 2


def test_the_best_row_is_bold_only_if_it_differs_from_every_other(small):
    clear = small({"zero_shot": "-" * 12, "grpo": "+" * 12})
    assert cell(clear, "grpo", "mathvision_testmini").is_best
    assert not any("not bold" in note for note in clear.notes)


def test_a_tie_is_not_bold_and_the_page_says_so(small):
    tie = small({"zero_shot": "-" * 12, "grpo": "+" * 12, "sapo": "+" * 11 + "-"})
    assert not any(c.is_best for row in tie.rows for c in row.cells)
    assert any(note.startswith("A highest score is not bold where it is tied") for note in tie.notes)


def test_a_cell_that_still_grows_shows_how_far_it_is_and_is_not_tested(small):
    table = small({"zero_shot": "--..", "grpo": "++.."}, growing=["zero_shot", "grpo"])
    found = cell(table, "grpo", "mathvision_testmini")
    assert (found.state, found.estimate.num_problems, found.num_expected) == ("partial", 2, 4)
    assert found.difference.estimate.mean == 1.0
    assert found.q_value is None
    assert not found.is_best
    assert "--rows grpo --columns mathvision_testmini" in found.command


def test_nothing_is_tested_against_a_baseline_that_still_grows(small):
    table = small({"zero_shot": "-" * 12, "grpo": "+" * 12}, growing=["zero_shot"])
    found = cell(table, "grpo", "mathvision_testmini")
    assert (found.state, found.difference.estimate.mean, found.q_value) == ("measured", 1.0, None)


def test_the_best_of_a_column_is_sought_among_finished_cells(small):
    """One seed of GRPO is the highest, and the other is not there yet: of the others SAPO is better than zero-shot."""
    marks = {"zero_shot": "-" * 24, "sapo": " ".join(["+" * 12 + "-" * 12] * 2), "grpo": "+" * 24}
    table = small(marks, seeds=2)
    is_best = {row: cell(table, row, "mathvision_testmini").is_best for row in marks}
    assert is_best == {"zero_shot": False, "sapo": True, "grpo": False}


def test_problems_of_one_group_alone_tell_nothing_apart(small):
    """There is no p-value over a single group, and that is no small one."""
    found = cell(small({"zero_shot": "-" * 8, "grpo": "+" * 8}, groups=1), "grpo", "mathvision_testmini")
    assert math.isnan(found.difference.p_value)
    assert (found.q_value, found.is_significant, found.is_best) == (1.0, False, False)


def test_a_row_with_fewer_seeds_than_asked_for_is_partial(small):
    found = cell(small({"zero_shot": "----", "grpo": "++++"}, seeds=2), "grpo", "mathvision_testmini")
    assert (found.state, found.reason) == ("partial", "1 of 2 seeds, not all of them finished")


def test_a_score_over_seeds_is_the_mean_and_carries_their_spread(small):
    table = small({"zero_shot": "----", "grpo": "++++ ++--"}, seeds=2)
    found = cell(table, "grpo", "mathvision_testmini")
    assert found.state == "measured"
    assert found.estimate.mean == 0.75
    assert (found.seeds.num_seeds, found.seeds.sd) == (2, pytest.approx(0.5 / 2**0.5))  # 1 and 1/2
    assert not any("seed variance is not measured" in note for note in table.notes)


def test_one_seed_is_said_to_be_one_seed(small):
    table = small({"zero_shot": "----", "grpo": "++++"})
    assert any("seed variance is not measured" in note for note in table.notes)
    assert cell(table, "grpo", "mathvision_testmini").seeds.sd is None
    assert cell(table, "zero_shot", "mathvision_testmini").seeds is None  # nothing was trained


@pytest.mark.parametrize(("seeds", "option"), [(1, ""), (2, " --seeds 0,1")])
def test_a_missing_cell_prints_the_command_that_fills_it_for_the_seeds_the_table_shows(make_table, seeds, option):
    table = make_table(problems=10, seeds=seeds, leave_out={("dapo", "wemath_testmini")})
    missing, average = (cell(table, "dapo", column) for column in ("wemath_testmini", "average"))
    command = f"atrl-bench run-table main_7b --profile mini{option} --rows dapo --columns wemath_testmini"
    assert (missing.state, missing.command) == ("missing", command)
    assert (average.state, average.estimate) == ("missing", None)


def test_a_failed_cell_says_why(tmp_path):
    definition = load_table("main_7b").select(rows=["zero_shot", "grpo"], columns=["geoqa_test"])
    with Store.open(tmp_path / "store.sqlite") as store:
        key = store.add_cell({"row": "zero_shot"})
        store.fail_cell(key, "3 % of the images do not decode")
        run = store.add_run({"recipe": {"name": "grpo"}, "seed": 0})
        store.fail_run(run, "out of memory")
        keys, runs = {("zero_shot", "geoqa_test"): [key]}, {"grpo": [store.run(run)]}
        table = build_table(TableSource(definition, store, load_profile("mini"), keys, runs))
    assert cell(table, "zero_shot", "geoqa_test").reason == "3 % of the images do not decode"
    failed = cell(table, "grpo", "geoqa_test")
    assert (failed.state, failed.reason) == ("failed", "out of memory")


def test_rows_that_nothing_can_measure_yet_say_why(table):
    for row in ("step_grpo", "vppo"):
        found = cell(table, row, "geoqa_test")
        assert found.state == "not measured"
        assert len(found.reason) > 40


def test_published_numbers_are_never_among_the_measured_ones(table):
    assert not table.is_comparable
    assert "not comparable" in table.warning
    assert [row.id for row in table.published] == [row.id for row in table.rows if row.id != "grpo_atrl_literal"]
    sapo_atrl = table.published[-1]
    assert [str(item.score) for item in sapo_atrl.scores] == ["52.77", "48.34", "30.33", "68.60", "66.23", "53.25"]
    assert sapo_atrl.scores[-1].difference == Decimal("8.24")
    assert sapo_atrl.is_best


def test_the_paper_profile_says_that_its_numbers_may_be_set_beside_the_papers(make_table):
    assert make_table(problems=10, profile="paper").is_comparable


def test_credit_is_compared_with_the_same_method_without_it_over_problems_and_over_seeds(table):
    assert [(c.row, c.other) for c in table.comparisons] == [
        ("mini: GRPO + AT-RL", "mini: GRPO"),
        ("mini: DAPO + AT-RL", "mini: DAPO"),
        ("mini: GSPO + AT-RL", "mini: GSPO"),
        ("mini: SAPO + AT-RL", "mini: SAPO"),
        ("mini: GRPO + AT-RL, literal", "mini: GRPO"),
    ]
    comparison = table.comparisons[0]
    assert len(comparison.differences) == 6
    assert comparison.seeds.num_seeds == 2
    assert comparison.seeds.mean == pytest.approx(comparison.differences[-1].estimate.mean, abs=0.02)
    assert comparison.overall == comparison.differences[-1]
    assert comparison.seeds.mean == pytest.approx(sum(comparison.by_seed) / 2)
    ours, theirs = comparison.scores
    assert ours - theirs == pytest.approx(comparison.overall.estimate.mean, abs=0.01)  # unjudged answers apart
    # (49.24-46.86 + 45.98-41.81 + 27.97-24.37 + 66.70-63.80 + 62.73-59.71) / 5
    assert comparison.claim == Decimal("3.214")
    assert table.comparisons[-1].claim is None  # no row of the paper


def test_the_accuracy_while_training_is_compared_seed_by_seed(table):
    """Every run of the fixture has 0.5 at seed 0 and 0.51 at seed 1: no difference on any seed."""
    assert table.comparisons[0].training == SeedSpread(mean=0.0, sd=0.0, num_seeds=2)


def test_pairs_of_a_table_are_compared_beside_its_rows(make_table):
    """Two more comparisons of the same rows, the other way round: the same size, the other sign."""
    table = make_table(problems=20, rows=["grpo", "grpo_atrl"], pairs=(("grpo", "grpo_atrl"),))
    there, back = (comparison for comparison in table.comparisons)
    assert (there.row, there.other) == (back.other, back.row) == ("mini: GRPO + AT-RL", "mini: GRPO")
    assert there.differences[0].estimate.mean == -back.differences[0].estimate.mean
    assert there.q_values[0] == back.q_values[0]


def test_seeds_are_compared_with_the_same_seed_when_one_of_them_is_missing(make_table, monkeypatch):
    """Of GRPO only seed 1 is there, of GRPO + AT-RL both: the only pair is seed 1."""
    rows = ["zero_shot", "grpo", "grpo_atrl"]
    whole = make_table(seeds=2, problems=20, rows=rows)
    part = make_table(seeds=2, problems=20, rows=rows, forget=("grpo", 0))
    assert whole.comparisons[0].seeds.num_seeds == 2
    assert part.comparisons[0].seeds.num_seeds == 1
    assert part.comparisons[0].seeds.mean != pytest.approx(whole.comparisons[0].seeds.mean)
    assert cell(part, "grpo", "geoqa_test").state == "partial"


def test_the_credits_figures_are_means_over_seeds(table):
    grid = table.grids[0]
    assert grid.columns[0] == "anchor AUC"
    assert dict(grid.rows)["mini: GRPO + AT-RL"][0].value == pytest.approx((0.93 + 0.94) / 2)
    assert "mini: GRPO" not in dict(grid.rows)


def test_what_a_number_depends_on_is_listed_with_the_digest_of_every_seed(table):
    provenance = dict(cell(table, "grpo", "geoqa_test").provenance)
    assert len(provenance["cell"].split(", ")) == len(provenance["model_digest"].split(", ")) == 2
    assert provenance["decoding.temperature"] == "0.1"
    assert provenance["judge"] == "none"
    assert any("rule grader alone" in note for note in table.notes)


@pytest.mark.parametrize(
    ("marks", "state", "said"),
    [
        ("+" * 4 + "j" * 8, "failed", "between 33.3 and 100.0: the judge failed on 8 answers."),  # 4 proven right of 12
        ("+-" * 24 + "jj", "measured", ""),  # 24 of 50 to 26 of 50: within the error bar
        ("+-" * 24, "measured", ""),
    ],
)
def test_a_judge_that_fails_raises_no_score(small, marks, state, said):
    found = small({"zero_shot": marks}).rows[0].cells[0]
    assert (found.state, found.reason) == (state, said)
    assert (found.estimate is None) is (state == "failed")
    if "j" in marks and state == "measured":
        assert dict(found.provenance)["score"] == "between 48.0 and 52.0: the judge failed on 2 answers"


@pytest.mark.parametrize(
    ("columns", "states", "in_place"),
    [
        # Each alone lies within its error bar of 14 points, 44 to 56; the average's is 10.
        (["+-" * 22 + "j" * 6] * 2, ["measured", "measured", "failed"], "44.0 to 56.0"),
        (["+-" * 22 + "j" * 6, "+-" * 25], ["measured", "measured", "measured"], None),
        (["+-" * 15 + "j" * 20, "+-" * 25], ["failed", "measured", "failed"], "40.0 to 60.0"),  # of 30 to 70, and 50
        (["j" * 50, "+-" * 25], ["failed", "measured", "failed"], "25.0 to 75.0"),
    ],
)
def test_an_average_over_columns_whose_judge_failed_has_their_bounds(store, columns, states, in_place):
    names = ["geoqa_test", "mathvista_testmini"]
    definition = load_table("main_7b").select(rows=["zero_shot", "grpo"], columns=names)
    keys = {}
    for row in ("zero_shot", "grpo"):
        for name, marks in zip(names, columns if row == "zero_shot" else ["+" * 50] * 2, strict=True):
            keys[row, name] = [fill_cell(store, {"task": name, "model_name": row, "judge": None}, marks)]
    table = build_table(TableSource(definition, store, load_profile("smoke"), keys))
    cells = table.rows[0].cells
    assert [cell.state for cell in cells] == states
    average, gain = cells[-1], table.rows[1].cells[-1].difference
    assert (gain is None) is (average.estimate is None) is (in_place is not None)
    said = average.reason if in_place else dict(average.provenance)["score"] + "."
    failed = sum(marks.count("j") for marks in columns)
    assert said == f"between {in_place or '47.0 to 53.0'}: the judge failed on {failed} answers.".replace(
        " to ", " and "
    )
    assert in_place in (None, average.in_place)

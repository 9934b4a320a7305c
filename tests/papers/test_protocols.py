"""Protocols as settings of a row: what is asked, what it is called in the store, and what a page says of both."""

from dataclasses import replace
from decimal import Decimal

import pytest

from atrl_bench.experiments.definition import load_table, table_under
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.price import price_of
from atrl_bench.experiments.protocol import StatedProtocol, asked_in, protocol_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.papers.paper import load_paper
from atrl_bench.papers.printed import printed_beside
from atrl_bench.plugins import paper_folders
from atrl_bench.profiles import load_profile
from atrl_bench.report.protocols import Pair
from atrl_bench.results.statistics.means import Estimate


def run_dir(tmp_path, profile):
    return RunDir.at(tmp_path / profile, load_profile(profile))


def test_what_a_protocol_states_replaces_the_profiles_own_and_the_rest_stays(tmp_path):
    own = run_dir(tmp_path, "paper")
    asked = asked_in(protocol_of(paper_folders()["vppo"]), own).profile.evaluation
    assert (asked.temperature, asked.num_repeats, asked.top_k, asked.max_pixels) == (1.0, 8, 50, 589824)
    assert asked.template == "think-then-box"
    assert asked.batch_size == own.profile.evaluation.batch_size
    assert asked_in(None, own) is own


def test_words_that_are_no_template_are_not_asked_and_greedy_answers_are_asked_for_once():
    assert StatedProtocol(prompt="one of three, not printed", temperature=0.0).sizes() == {
        "temperature": 0.0,
        "num_repeats": 1,
    }
    assert StatedProtocol(prompt="{question} Think.").sizes() == {"template": "{question} Think."}
    assert StatedProtocol(subset="half", grader="a judge").not_ours == "subset: half; grader: a judge"


def test_a_checkpoint_is_asked_under_both_protocols_and_a_grader_that_is_a_program_is_asked_too(tmp_path):
    assert StatedProtocol(grader="mathruler").sizes() == {"grader": "mathruler"}
    assert StatedProtocol(subset="half", grader="mathruler").not_ours == "subset: half"
    plan = plan_table("released_7b", run_dir(tmp_path, "paper"), rows=["vppo_7b", "vppo_7b_authors"])
    assert [job.model for job in plan.jobs] == ["chamber111/VPPO-7B"] * 2
    ours, authors = (asked_in(job.protocol, plan.run_dir).profile.evaluation for job in plan.jobs)
    assert (ours.grader, authors.grader, authors.temperature) == (None, "mathruler", 1.0)


def test_the_code_decides_over_the_text_where_a_protocol_is_asked():
    paper = load_paper("vl_rethinker")
    assert (paper.protocol.temperature, paper.as_printed.temperature) == (0.0, 0.6)


def test_printed_scores_of_a_checkpoint_come_from_its_papers_folder_and_are_typed_once():
    table = load_table("released_7b")
    scores = printed_beside(table).scores
    assert scores["vppo_7b", "mathverse_testmini"] == scores["vppo_7b_authors", "mathverse_testmini"] == Decimal("71.6")
    assert scores["thinklite_7b", "mathvista_testmini"] == Decimal("75.1")
    assert ("qwen_7b", "mathverse_testmini") not in scores


def test_the_plan_of_released_checkpoints_has_ids_sizes_licences_and_hours(tmp_path):
    price = price_of(plan_table("released_7b", run_dir(tmp_path, "paper")))
    models = {each.name: each for each in price.downloads if each.kind == "model"}
    assert len(models) == 15
    assert models["chamber111/VPPO-7B"].licence == "mit"
    assert all("about 17 GB" in each.size for each in models.values())  # 8.29 B parameters of two bytes
    assert all(cost.needs.gpu_hours > 0 for cost in price.cells)


def test_where_data_is_generated_three_planted_checkpoints_stand_for_the_released_ones(tmp_path):
    table = table_under("released_7b", load_profile("mini"))
    assert table.id == "released_7b"
    assert "Planted" in table.title
    assert {row.model for row in table.rows} == {"mini", "mini-perception", "mini-reasoning"}
    assert "planted" in load_paper("planted").title.lower()


def estimate(mean):
    return Estimate(mean, 0.01, 999.0, 1000, 1000)


@pytest.mark.parametrize(
    ("printed", "as_printed", "ours", "words"),
    [
        ("50.0", 0.50, 0.60, "reached as its authors ask; our protocol differs by −10.0 points"),
        ("60.0", 0.50, 0.60, "was measured under another protocol than it states"),
        ("80.0", 0.50, 0.60, "cannot be reached: under neither protocol, −30.0 points"),
        ("50.0", 0.50, 0.50, "reached under both protocols"),
    ],
)
def test_a_page_says_which_protocol_a_printed_score_is_of(printed, as_printed, ours, words):
    pair = Pair("x", Decimal(printed), estimate(ours), estimate(as_printed))
    assert pair.verdict.startswith(words)


def test_without_both_measurements_nothing_is_said():
    pair = Pair("x", Decimal("50.0"), estimate(0.5), None)
    assert pair.verdict == ""
    assert [cell.text for cell in pair.cells()][3:] == ["–", "–"]
    assert replace(pair, printed=None).cells()[0].text == "–"

"""The shipped papers: what their printed numbers say against each other, from CSV files and protocols alone."""

import ast
import re
from decimal import Decimal
from pathlib import Path

import pytest

import atrl_bench
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.definition import list_tables
from atrl_bench.papers.across import across
from atrl_bench.papers.audit import audit
from atrl_bench.papers.paper import PrintedColumn, PrintedTable, list_papers, load_paper
from atrl_bench.papers.printed import load_claims, load_scores
from atrl_bench.papers.scores import read_cells
from atrl_bench.plugins import FOLDERS, paper_folders

WHOLE = ["vppo", "papo", "noisyrollout", "easyr1"]


@pytest.fixture(scope="module")
def every():
    """All findings over all papers, by section."""
    return {section.id: section.findings for section in across()}


@pytest.fixture(scope="module")
def own():
    """Return a function that audits one paper, by section."""
    audits = {name: {section.id: section.findings for section in audit(load_paper(name))} for name in WHOLE}
    return audits.__getitem__


def one(findings, *words):
    (found,) = [f for f in findings if all(word in f"{f.where} {f.printed} {f.computed}" for word in words)]
    return found


@pytest.mark.parametrize("name", list_papers())
def test_every_paper_has_a_title_and_scores_that_can_be_read_and_named(name):
    paper = load_paper(name)
    scores = load_scores(paper)
    assert paper.title
    assert scores
    assert all(Decimal(-100) <= score.value <= 100 for score in scores)
    assert {score.table for score in scores} >= set(paper.tables)
    assert {score.row for score in scores} >= set(paper.rows), "a row that no table prints"
    assert {score.column for score in scores} >= set(paper.columns) - {"mathvision_testmini"}
    assert all(section.summary for section in audit(paper, others=False))


def test_spreads_over_trainings_say_something_where_the_size_of_the_benchmark_is_known():
    [noise] = [section for section in audit(load_paper("sober_look"), others=False) if section.id == "noise"]
    spreads = [finding.where for finding in noise.findings if "spread" in finding.where]
    assert any("MATH500" in where for where in spreads)
    assert not any("Minerva" in where for where in spreads)


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_paper_has_protocol_claims_and_a_finding_with_printed_numbers_each(name, own):
    paper = load_paper(name)
    assert {"prompt", "system"} & set(paper.protocol.stated())
    assert load_claims(paper).claims
    findings = [finding for section in own(name).values() for finding in section]
    assert all(finding.where and finding.printed and finding.computed and finding.sure for finding in findings)


# What is known to be wrong or odd in them, by hand -------------------------------------------------------------------


def test_one_baseline_of_two_papers_has_two_values_and_their_trainings_differ_in_entropy(every):
    found = one(every["same_training"], "dapo + virl39k, geometry3k_test")
    assert "35.92 (papo" in found.printed
    assert "41.5 (vppo" in found.printed
    assert "entropy" in found.sure


def test_a_headline_over_a_collapsed_baseline_is_under_a_point_over_the_better_one(own):
    found = one(own("papo")["weaker_baselines"], "PAPO_D-7B, Overall AVG")
    assert found.printed.startswith("17.54 % over 55.01")
    assert "+0.89 points, 1.43 %" in found.computed  # 63.16 - 62.27


def test_relative_gains_are_means_of_gains_or_do_not_follow_at_all(own):
    findings = own("papo")["follows"]
    overall = one(findings, "Table 1: PAPO_D-7B, Overall delta_rel %")
    assert (overall.outcome, overall.computed.split(",")[0]) == ("open", "14.82")  # 63.16 / 55.01
    assert "17.54 is the mean of the columns' own gains" in overall.sure
    vision = one(findings, "Table 1: PAPO_D-3B, Vision delta_rel %")
    # 52.93 / 49.11 is 7.78 %; 41.67 / 40.69, 83.56 / 74.25, 28.76 / 28.42 and 57.72 / 53.09 are 6.22 % in the mean.
    assert (vision.outcome, vision.printed) == ("fails", "5.97")
    assert "7.78" in vision.computed
    assert "6.22" in vision.computed


def test_two_averages_with_the_same_printed_gain_are_found(own):
    found = one(own("papo")["follows"], "same gain of 1.53")
    assert "63.34" in found.computed
    assert "63.50" in found.computed


def test_a_row_copied_from_another_paper_after_rounding_is_found(every):
    found = one(every["copies"], "vppo, Table 1: ", "papo, Table 1: GRPO-7B")
    assert found.outcome == "fails"
    assert "40.18 and 40.2" in found.printed
    assert found.computed == "equal in all 6 common benchmarks, once rounded"


def test_a_cited_row_that_is_equal_is_in_order(every):
    assert one(every["copies"], "vppo", "PAPO_D-7B").outcome == "holds"


def test_one_baseline_with_two_values_in_one_paper(own):
    found = one(own("noisyrollout")["contradictions"], "geometry3k_test", "51.4")
    assert (found.outcome, found.details["apart"]) == ("fails", 0.6)
    assert "52.0" in found.printed


def test_a_headline_that_is_the_best_of_four_seeds_and_what_all_seeds_say(own):
    found = one(own("noisyrollout")["seeds"], "noisyrollout + geometry3k")
    assert (found.outcome, found.details["best"], found.details["columns"]) == ("fails", 4, 7)
    assert "MathVision +1.2 with the first seed, +0.20 ± 1.04 over all" in found.computed
    assert one(own("noisyrollout")["seeds"], "grpo + geometry3k").outcome == "open"


def test_a_base_far_from_everybodys_is_named_with_the_others_numbers(every):
    found = one(every["far_bases"], "Qwen2.5-VL-7B-Instruct in vppo")
    assert "18.4 (others 22.70, 23.6" in found.printed
    assert set(found.details["far"]) == {"mathverse_testmini", "mathvision_test", "mmmu_pro", "wemath_testmini"}
    assert "format" in found.sure


@pytest.mark.parametrize(
    ("checkpoint", "benchmark", "numbers"),
    [
        ("ThinkLite-VL-7B", "mathvista_testmini", ["75.1", "72.7", "71.6", "71.4"]),
        ("ThinkLite-VL-7B", "mathvision_test", ["32.9", "27.6", "24.6", "24.84"]),
        ("R1-OneVision-7B", "mathvision_test", ["29.9", "23.5", "22.5", "21.9"]),
        ("MM-Eureka-Qwen-7B", "mathvision_test", ["26.9", "28.3", "31.9", "27.6"]),
        ("NoisyRollout-Geo3K-7B", "mathvision_test", ["28.5", "22.1"]),
        ("NoisyRollout-Geo3K-7B", "geometry3k_test", ["54.9", "51.8"]),
        ("Qwen2.5-VL-7B-Instruct", "geometry3k_test", ["37.1", "37", "39", "39.4", "38.6", "40.6"]),
    ],
)
def test_one_checkpoint_with_several_numbers_has_all_of_them(checkpoint, benchmark, numbers, every):
    found = one([f for f in every["same_checkpoint"] if f.where.endswith(f"{checkpoint}, {benchmark}")])
    assert all(f"{number} (" in found.printed for number in numbers)


def test_grpo_on_geometry3k_is_between_48_and_65_and_other_methods_on_it_are_below(every):
    found = one(every["same_training"], "Qwen2.5-VL-7B-Instruct + grpo + geometry3k, geometry3k_test")
    assert all(f"{number} (" in found.printed for number in ("48", "52", "51.4", "52.0", "65.4"))
    data = one(every["same_data"], "Qwen2.5-VL-7B-Instruct + geometry3k, geometry3k_test")
    assert all(f"{number} (" in data.printed for number in ("41.5", "45.0", "65.4"))


def test_figures_of_one_release_fell_in_the_next(own):
    found = one(own("easyr1")["versions"], "7B-Instruct GRPO AMP kl 1e-2")
    assert "52 (" in found.printed
    assert "48 (" in found.printed
    assert found.computed.startswith("4 points")


def test_a_run_again_by_a_user_is_below_what_is_printed(own):
    assert one(own("vppo")["contradictions"], "80.57", "82.8").details["apart"] == pytest.approx(2.23)


@pytest.mark.parametrize(("name", "setting"), [("video_r1", "temperature"), ("vl_rethinker", "temperature")])
def test_code_that_does_otherwise_than_the_text_says_is_found(name, setting):
    sections = {section.id: section.findings for section in audit(load_paper(name), others=False)}
    assert one(sections["code"], f"protocol: {setting}").outcome == "fails"


def test_a_text_and_its_table_with_two_averages_of_one_model():
    findings = [f for s in audit(load_paper("thinklite"), others=False) if s.id == "contradictions" for f in s.findings]
    assert one(findings, "64.18", "63.89").outcome == "fails"


def test_two_trainings_with_one_entropy_term_and_two_are_runs_of_the_same(own):
    assert one(own("papo")["contradictions"], "61.12", "61.66").details["apart"] == pytest.approx(0.54)


# A folder ------------------------------------------------------------------------------------------------------------


def folder(tmp_path, monkeypatch, scores="row,a,b,Avg\nx,50.0†,60.0,55.0\ny,0.5,--,--\n", **fields):
    home = tmp_path / "invented"
    (home / "scores").mkdir(parents=True)
    (home / "scores" / "main.csv").write_text(scores, encoding="utf-8")
    text = 'title: T\nmarks: {"†": again}\ncolumns: {a: {benchmark: aa}, b: {benchmark: bb}, Avg: {mean_of: ["*"]}}\n'
    (home / "paper.yaml").write_text(text + "".join(f"{k}: {v}\n" for k, v in fields.items()), encoding="utf-8")
    monkeypatch.setenv(FOLDERS, str(home))
    return home


def test_a_folder_is_a_paper_by_its_name_and_marks_and_averages_are_told_from_scores(tmp_path, monkeypatch):
    folder(tmp_path, monkeypatch)
    paper = load_paper("invented")
    assert "invented" in list_papers()
    assert [str(score.value) for score in load_scores(paper)] == ["50.0", "60.0", "55.0", "0.5"]
    assert [score.benchmark for score in load_scores(paper)] == ["aa", "bb", "", "aa"]


def test_a_wrong_average_is_found_and_one_within_rounding_is_not(tmp_path, monkeypatch):
    folder(tmp_path, monkeypatch, "row,a,b,Avg\nx,50.0,60.1,55.0\ny,50.0,60.0,56.0\n")
    (section,) = [s for s in audit(load_paper("invented"), others=False) if s.id == "follows"]
    assert [(f.printed, f.outcome) for f in section.findings if f.outcome == "fails"] == [("56.0", "fails")]


def test_fractions_are_percentages_of_as_many_digits(tmp_path, monkeypatch):
    home = folder(tmp_path, monkeypatch)
    paper = load_paper("invented").model_copy(update={"tables": {"main": PrintedTable(source="s", unit="fraction")}})
    assert [str(cell.score) for cell in read_cells(home / "scores" / "main.csv", paper)][-1] == "50"


def test_a_sign_that_is_not_declared_and_an_unknown_paper_are_errors(tmp_path, monkeypatch):
    home = folder(tmp_path, monkeypatch, "row,a\nx,50.0‡\n")
    with pytest.raises(InvalidFileError, match=r"main\.csv:2: field 'a': '50.0‡' is no percentage"):
        load_scores(load_paper("invented"))
    with pytest.raises(UnknownNameError, match="invented"):
        load_paper("invneted")
    assert paper_folders()["invented"] == home


def test_tables_have_their_papers_name_before_them_and_ours_none():
    assert "main_7b" in list_tables()
    assert not [name for name in list_tables("at_rl") if ":" in name]
    assert all(name.partition(":")[0] in list_papers() for name in list_tables() if ":" in name)


# No paper is special -------------------------------------------------------------------------------------------------

DECIDING = (ast.Compare, ast.Match, ast.Subscript)


def test_no_line_of_code_decides_anything_by_the_name_of_our_paper():
    """It is in sentences and labels; outside the room of its method nothing is compared with it or looked up by it."""
    package = Path(atrl_bench.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in ("credit", "_shipped"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            asks = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            asks = asks and node.func.attr in ("startswith", "endswith", "removeprefix", "partition", "split", "get")
            if isinstance(node, DECIDING) or asks:
                texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
                found += [f"{path.name}:{node.lineno}" for text in texts if "AT-RL" in text]
    assert not found


def test_nothing_in_the_room_of_papers_names_one():
    room = Path(atrl_bench.__file__).parent / "papers"
    names = "|".join(map(re.escape, ["AT-RL", "at_rl", *WHOLE]))
    for path in room.glob("*.py"):
        assert not re.search(rf"\b({names})\b", path.read_text(encoding="utf-8"), re.I), path.name


def test_a_column_that_follows_from_others_is_no_benchmark():
    assert PrintedColumn(mean_of=("a",)).benchmark is None

"""The shipped papers: what their printed numbers say against each other, from CSV files and protocols alone."""

import ast
import re
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

import atrl_bench
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.definition import list_tables
from atrl_bench.papers.across import across
from atrl_bench.papers.audit import audit
from atrl_bench.papers.paper import PrintedTable, list_papers, load_paper
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
    return cache(lambda name: {section.id: section.findings for section in audit(load_paper(name))})


def one(findings, *words):
    (found,) = [f for f in findings if all(word in f"{f.where} {f.printed} {f.computed}" for word in words)]
    return found


def audit_alone(name):
    """The audit of a paper whose tables are named, which asks about no other paper."""
    paper = load_paper(name)
    return audit(paper, sorted({score.table for score in load_scores(paper)}))


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
    assert all(section.summary for section in audit_alone(name))


def test_spreads_over_trainings_say_something_where_the_size_of_the_benchmark_is_known():
    [noise] = [section for section in audit_alone("sober_look") if section.id == "noise"]
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


QWEN, ACROSS = "Qwen2.5-VL-7B-Instruct", None
# What is found: of all papers or of one, in which section, by which words, with which outcome, saying what.
KNOWN = {
    "one baseline of two papers has two values, and their trainings differ in entropy": (
        *(ACROSS, "same_training", ["dapo + virl39k, geometry3k_test"]),
        *("open", ["35.92 (papo", "41.5 (vppo", "entropy"]),
    ),
    "a headline over a collapsed baseline is under a point over the better one": (
        *("papo", "weaker_baselines", ["PAPO_D-7B, Overall AVG"]),
        *("open", ["17.54 % over 55.01", "+0.89 points, 1.43 %"]),  # 63.16 - 62.27
    ),
    "a relative gain is a mean of gains": (
        *("papo", "follows", ["Table 1: PAPO_D-7B, Overall delta_rel %"]),
        *("open", ["14.82,", "17.54 is the mean of the columns' own gains"]),  # 63.16 / 55.01
    ),
    # 52.93 / 49.11 is 7.78 %; 41.67 / 40.69, 83.56 / 74.25, 28.76 / 28.42 and 57.72 / 53.09 are 6.22 % in the mean.
    "a relative gain does not follow at all": (
        *("papo", "follows", ["Table 1: PAPO_D-3B, Vision delta_rel %"]),
        *("fails", ["5.97", "7.78", "6.22"]),
    ),
    "two averages have the same printed gain": (
        *("papo", "follows", ["same gain of 1.53"]),
        *("fails", ["63.34", "63.50"]),
    ),
    "a row is copied from another paper after rounding": (
        *(ACROSS, "copies", ["vppo, Table 1: ", "papo, Table 1: GRPO-7B"]),
        *("fails", ["40.18 and 40.2", "equal in all 6 common benchmarks, once rounded"]),
    ),
    "a cited row that is equal is in order": (ACROSS, "copies", ["vppo", "PAPO_D-7B"], "holds", []),
    "one baseline has two values in one paper": (
        *("noisyrollout", "contradictions", ["geometry3k_test", "51.4"]),
        *("fails", ["52.0", "0.6 points apart"]),
    ),
    "a headline is the best of four seeds, and all seeds say otherwise": (
        *("noisyrollout", "seeds", ["noisyrollout + geometry3k"]),
        *("fails", ["in 4 of 7 columns", "MathVision +1.2 with the first seed, +0.20 ± 1.04 over all"]),
    ),
    "a spread without a headline is open": ("noisyrollout", "seeds", ["grpo + geometry3k"], "open", []),
    "a base far from everybody's has the others' numbers": (
        *(ACROSS, "far_bases", [f"{QWEN} in vppo"]),
        *("fails", ["18.4 (others 22.70, 23.6", "format"]),
    ),
    "GRPO on Geometry3K is between 48 and 65": (
        *(ACROSS, "same_training", [f"{QWEN} + grpo + geometry3k, geometry3k_test"]),
        *("open", [f"{number} (" for number in ("48", "52", "51.4", "52.0", "65.4")]),
    ),
    "other methods on it are below": (
        *(ACROSS, "same_data", [f"{QWEN} + geometry3k, geometry3k_test"]),
        *("open", [f"{number} (" for number in ("41.5", "45.0", "65.4")]),
    ),
    "a figure of one release fell in the next": (
        *("easyr1", "versions", ["7B-Instruct GRPO AMP kl 1e-2"]),
        *("open", ["52 (", "48 (", "4 points"]),
    ),
    "a run again by a user is below what is printed": (
        *("vppo", "contradictions", ["80.57", "82.8"]),
        *("fails", ["2.23 points apart"]),
    ),
    "a text and its table have two averages of one model": (
        *("thinklite", "contradictions", ["64.18", "63.89"]),
        *("fails", []),
    ),
    "two trainings with one entropy term and two are runs of the same": (
        *("papo", "contradictions", ["61.12", "61.66"]),
        *("fails", ["0.54 points apart"]),
    ),
    "the code has another temperature than the text": ("video_r1", "code", ["protocol: temperature"], "fails", []),
    "and in another paper": ("vl_rethinker", "code", ["protocol: temperature"], "fails", []),
}


@pytest.mark.parametrize("known", KNOWN)
def test_what_is_known_to_be_wrong_or_odd_is_found(known, every, own):
    paper, section, words, outcome, said = KNOWN[known]
    found = one((every if paper is ACROSS else own(paper))[section], *words)
    text = f"{found.printed} | {found.computed} | {found.sure}"
    assert (found.outcome, [words for words in said if words not in text]) == (outcome, [])


def test_a_far_base_is_far_on_these_benchmarks(every):
    found = one(every["far_bases"], f"{QWEN} in vppo")
    assert set(found.details["far"]) == {"mathverse_testmini", "mathvision_test", "mmmu_pro", "wemath_testmini"}


@pytest.mark.parametrize(
    ("checkpoint", "benchmark", "numbers"),
    [
        ("ThinkLite-VL-7B", "mathvista_testmini", ["75.1", "72.7", "71.6", "71.4"]),
        ("ThinkLite-VL-7B", "mathvision_test", ["32.9", "27.6", "24.6", "24.84"]),
        ("R1-OneVision-7B", "mathvision_test", ["29.9", "23.5", "22.5", "21.9"]),
        ("MM-Eureka-Qwen-7B", "mathvision_test", ["26.9", "28.3", "31.9", "27.6"]),
        ("NoisyRollout-Geo3K-7B", "mathvision_test", ["28.5", "22.1"]),
        ("NoisyRollout-Geo3K-7B", "geometry3k_test", ["54.9", "51.8"]),
        (QWEN, "geometry3k_test", ["37.1", "37", "39", "39.4", "38.6", "40.6"]),
    ],
)
def test_one_checkpoint_with_several_numbers_has_all_of_them(checkpoint, benchmark, numbers, every):
    found = one([f for f in every["same_checkpoint"] if f.where.endswith(f"{checkpoint}, {benchmark}")])
    assert all(f"{number} (" in found.printed for number in numbers)


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
    (section,) = [s for s in audit_alone("invented") if s.id == "follows"]
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


CLAIM = "claims: [{says: s, where: w, printed: %s, formula: %s}]"
ORDER = "orders: [{says: s, where: w, table: %s, better: %s, worse: y}]"


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        (CLAIM % ("'2 points'", "1"), r"claims\.yaml:1: .*'2 points' is no number"),
        (CLAIM % ("'2'", "word"), "'word' is no number"),
        (CLAIM % ("'2'", "{over: [main/x/a, 0]}"), "cannot be computed"),
        (CLAIM % ("'2'", "mian/x/a"), "no printed table mian"),
        (ORDER % ("mian", "x"), "no printed table mian"),
        (ORDER % ("main", "nobody"), "no score of both nobody and y"),  # it held: of 0 of 0 benchmarks
    ],
)
def test_a_claim_that_nothing_printed_can_check_is_an_error(tmp_path, monkeypatch, claims, message):
    home = folder(tmp_path, monkeypatch)
    (home / "claims.yaml").write_text(claims, encoding="utf-8")
    with pytest.raises(InvalidFileError, match=message):
        audit_alone("invented")


@pytest.mark.parametrize("line", ["main,x,a,change,y,2 points", "main,x,a,rise,y,2", "main,x,a"])
def test_a_derived_number_that_is_none_is_named_with_its_line(tmp_path, monkeypatch, line):
    home = folder(tmp_path, monkeypatch)
    (home / "derived.csv").write_text(f"table,row,column,kind,against,printed\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidFileError, match=r"derived\.csv:2"):
        audit_alone("invented")


def test_a_gain_over_nothing_is_not_checked(tmp_path, monkeypatch):
    home = folder(tmp_path, monkeypatch, "row,a,Gain\nx,0,0\ny,50,5\n", rows="{y: {baseline: x}}")
    text = (home / "paper.yaml").read_text(encoding="utf-8").replace("columns: {", "columns: {Gain: {gain_of: a}, ")
    (home / "paper.yaml").write_text(text, encoding="utf-8")
    assert "follows" not in {section.id for section in audit_alone("invented")}


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

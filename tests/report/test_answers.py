"""The pages behind a number: every answer on them, filters that count right, pictures, shades, nothing but text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from atrl_bench.data.dataset import data_digest
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.mini.problems import READING_PREFIX
from atrl_bench.mini.world import write_world
from atrl_bench.profiles import load_profile
from atrl_bench.report import answers as samples_module
from atrl_bench.report.answers import FILTERS, file_name, kinds_of
from atrl_bench.report.media import pictures_of, shown_pictures
from atrl_bench.report.token_shades import READING, shaded, top_tokens
from atrl_bench.report.verify import verify
from atrl_bench.results.records import Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.store import Store


def page(run_dir, name: str) -> str:
    return (run_dir.reports / "samples" / "main_7b" / name).read_text(encoding="utf-8")


def answers_of(html: str) -> list[set[str]]:
    """Return the filters that keep each answer of a page, equal repeats one by one."""
    kept = []
    for classes, text in re.findall(r'<li class="a ([^"]*)">(.*?)</li>', html, re.DOTALL):
        times = re.search(r'class="times">×(\d+)<', text)
        kept += [set(re.findall(r"k-([a-z-]+)", classes))] * (int(times[1]) if times else 1)
    return kept


@pytest.fixture(scope="module")
def run_dir(make_report, tmp_path_factory):
    return make_report(tmp_path_factory.mktemp("report"), leave_out={("grpo", "wemath_testmini")})


def test_every_answer_of_a_cell_is_on_its_page_and_every_cell_with_answers_has_one(run_dir):
    names = {path.name for path in (run_dir.reports / "samples" / "main_7b").iterdir()}
    rows, columns = ("zero_shot", "grpo", "grpo_atrl"), ("geoqa_test", "wemath_testmini")
    assert names == {f"{row}.{column}.html" for row in rows for column in columns} - {"grpo.wemath_testmini.html"}
    assert len(answers_of(page(run_dir, "grpo.geoqa_test.html"))) == 12 * 2


def test_a_filters_count_is_the_number_of_answers_it_keeps(run_dir):
    html = page(run_dir, "grpo.geoqa_test.html")
    answers = answers_of(html)
    for kind, text in FILTERS.items():
        count = sum(kind in kinds for kinds in answers)
        if kind not in ("fixed", "broken"):  # of equal repeats some may have changed and others not
            assert (f'<a href="#only-{kind}">{text} {count}</a>' in html) == bool(count)
        assert (f'href="#only-{kind}"' in html) == bool(count)
        assert f'id="only-{kind}"' in html
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    for kind in FILTERS:
        assert f"#only-{kind}:target ~ .problems :is(.a, .problem):not(.k-{kind})" in style


def test_wrong_to_right_and_back_are_told_by_the_baselines_answer_to_the_same_question(run_dir):
    with Store.open(run_dir.store_path, read_only=True) as store:
        cells = {(cell.spec["model_digest"], cell.spec["task"]): cell.key for cell in store.cells()}
        before, after = (
            {(s.problem.problem_id, s.response.repeat): s.score for s in store.samples(cells[digest * 8, "geoqa_test"])}
            for digest in ("000", "010")
        )
    graded = [(before[at], score) for at, score in after.items() if None not in (before[at], score)]
    html = page(run_dir, "grpo.geoqa_test.html")
    for kind, (old, new) in {"fixed": (0.0, 1.0), "broken": (1.0, 0.0)}.items():
        count = graded.count((old, new))
        assert (f'<a href="#only-{kind}">{FILTERS[kind]} {count}</a>' in html) == bool(count)
    assert graded.count((0.0, 1.0))
    assert 'href="#only-fixed"' not in page(run_dir, "zero_shot.geoqa_test.html")


def test_equal_repeats_are_one_answer_and_the_baselines_stand_beside_them(run_dir):
    html = page(run_dir, "grpo.geoqa_test.html")
    assert "×2</span>" in html
    assert html.count('<div class="beside">') == 12
    left, right = re.search(r'<div class="beside">(.*?)</article>', html, re.DOTALL)[1].split("</ol></div>")[:2]
    assert "<h3>mini: Zero-shot</h3>" in left
    assert "<h3>mini: GRPO</h3>" in right
    assert '<li class="a ' not in left  # what is filtered and counted is the row's
    assert "beside" not in page(run_dir, "zero_shot.geoqa_test.html").partition("</style>")[2]


def test_equal_answers_are_one_however_many_requests_their_verdicts_took():
    asked = Verdict("wrong", "10", "judge", "a wrong sum", details={"calls": 1, "rule": {"state": "wrong"}})
    known = asked._replace(details={"calls": 0, "rule": {"state": "wrong"}})
    unsure = asked._replace(details={"calls": 1, "rule": {"state": "unparseable"}})
    assert samples_module.without_calls(asked) == samples_module.without_calls(known)
    assert samples_module.without_calls(asked) != samples_module.without_calls(unsure)
    assert samples_module.without_calls(None) is None


def test_each_problem_leads_to_the_next_and_each_page_to_its_neighbours(run_dir):
    html = page(run_dir, "grpo.geoqa_test.html")
    ids = set(re.findall(r'<article[^>]* id="(p\d+)"', html))
    assert set(re.findall(r'href="#(p\d+)"', html)) == ids
    assert '<a href="grpo_atrl.geoqa_test.html">mini: GRPO + AT-RL</a>' in html
    assert 'href="grpo.wemath_testmini.html"' not in html  # was left out


def test_the_table_links_each_number_to_its_answers_and_filters(run_dir):
    html = (run_dir.reports / "main_7b.html").read_text()
    links = set(re.findall(r'href="(samples/[^"#]+)', html))
    assert links == {f"samples/main_7b/{path.name}" for path in (run_dir.reports / "samples" / "main_7b").iterdir()}
    assert 'href="samples/main_7b/grpo.geoqa_test.html#only-fixed">wrong → right ' in html
    for link in re.findall(r'href="([^"#]+)[#"]', page(run_dir, "grpo.geoqa_test.html")):
        assert (run_dir.reports / "samples" / "main_7b" / link).resolve().is_file()


def test_a_long_page_is_cut_into_parts_that_link_to_each_other(make_report, tmp_path, monkeypatch):
    monkeypatch.setattr(samples_module, "PART_BYTES", 3000)
    run_dir = make_report(tmp_path, rows=("zero_shot", "grpo"), columns=("geoqa_test",))
    parts = sorted((run_dir.reports / "samples" / "main_7b").glob("grpo.geoqa_test*.html"))
    assert len(parts) > 2
    texts = [path.read_text() for path in parts]
    assert sum(len(answers_of(text)) for text in texts) == 12 * 2
    assert all(len(re.sub("<style>.*?</style>", "", text, flags=re.DOTALL)) < 3000 + 9000 for text in texts)
    assert f'<a href="{parts[1].name}">part' in texts[0]
    total = sum("wrong" in kinds for text in texts for kinds in answers_of(text))
    assert all(f"<span>wrong {total}</span>" in text for text in texts)


def test_a_report_can_show_the_first_problems_alone_and_says_so(make_report, tmp_path):
    """Two answers to each of 12 problems, of which 3 are asked for."""
    run_dir = make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",), max_problems=3)
    html = page(run_dir, "zero_shot.geoqa_test.html")
    assert len(answers_of(html)) == 3 * 2
    assert "6 of 24 answers" in html
    assert "every answer" not in html
    assert "6 of 24 answers</a>" in (run_dir.reports / "main_7b.html").read_text()


def test_pages_of_an_earlier_report_do_not_stay_and_are_not_missed(make_report, tmp_path):
    run_dir = make_report(tmp_path, rows=("zero_shot", "grpo"), columns=("geoqa_test",))
    old = run_dir.reports / "samples" / "main_7b" / "grpo.geoqa_test.html"
    assert old.exists()
    make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",))
    assert not old.exists()
    assert [damage.part for damage in verify(run_dir).damages if damage.what == "is gone"] == []


def pages_of(run_dir) -> dict[str, tuple[int, str]]:
    folder = run_dir.reports / "samples" / "main_7b"
    return {path.name: (path.stat().st_ino, path.read_text(encoding="utf-8")) for path in sorted(folder.iterdir())}


def test_pages_of_what_has_not_changed_are_left_alone_and_a_damaged_one_is_made_again(make_answers, tmp_path):
    run_dir, write = make_answers(tmp_path)
    first = pages_of(run_dir)
    table = (run_dir.reports / "main_7b.html").read_text()
    path = run_dir.reports / "samples" / "main_7b" / "grpo.geoqa_test.html"
    path.write_text(path.read_text().replace("Gold", "Lead"))
    (path.parent / "grpo.wemath_testmini.html").unlink()
    write()
    again = pages_of(run_dir)
    assert {name: text for name, (_, text) in again.items()} == {name: text for name, (_, text) in first.items()}
    written = {name for name, (file, _) in again.items() if file != first[name][0]}
    assert written <= {"grpo.geoqa_test.html", "grpo.wemath_testmini.html"}
    assert (run_dir.reports / "main_7b.html").read_text() == table  # with the links of pages that were left alone


def test_another_verdict_changes_the_page_of_its_row_and_those_that_show_it_beside_theirs(make_answers, tmp_path):
    run_dir, write = make_answers(tmp_path)
    first = pages_of(run_dir)
    for row, digest, changed in (("grpo", "010", {"grpo"}), ("zero_shot", "000", {"zero_shot", "grpo", "grpo_atrl"})):
        with Store.open(run_dir.store_path) as store:
            [cell] = [c for c in store.cells(task="geoqa_test") if c.spec["model_digest"] == digest * 8]
            sample = store.samples(cell.key)[0]
            verdict = Verdict("unparseable", None, "fast", f"looked at again, {row}")
            store.add_verdicts(cell.key, {(sample.problem.problem_id, sample.response.repeat): verdict})
        write()
        again = pages_of(run_dir)
        different = {name.split(".")[0] for name, (_, text) in again.items() if text != first[name][1]}
        assert different == changed
        assert f"looked at again, {row}" in again[f"{row}.geoqa_test.html"][1]
        assert again["grpo.wemath_testmini.html"][0] == first["grpo.wemath_testmini.html"][0]
        first = again


def test_answers_of_several_training_seeds_say_which(make_report, tmp_path):
    run_dir = make_report(tmp_path, seeds=2, rows=("zero_shot", "grpo"), columns=("geoqa_test",))
    html = page(run_dir, "grpo.geoqa_test.html")
    assert html.count("training seed 0, repeat") >= 12 <= html.count("training seed 1, repeat")
    assert "training seed" not in page(run_dir, "zero_shot.geoqa_test.html")


@pytest.mark.parametrize("third", [0, 1, 2])
def test_no_answer_question_or_name_becomes_markup(make_report, tmp_path, payloads, third):
    payload = "".join(payloads[third::3])
    small = {"rows": ("zero_shot", "grpo"), "columns": ("geoqa_test",), "problems": 5}
    clean = make_report(tmp_path / "clean", **small)
    run_dir = make_report(tmp_path / "bad", **small, decorate=lambda text: payload + text)
    for path in sorted(run_dir.reports.rglob("*.html")):
        html = path.read_text()
        good = (clean.reports / path.relative_to(run_dir.reports)).read_text()
        assert re.findall(r"<[/a-zA-Z]+", html) == re.findall(r"<[/a-zA-Z]+", good), path.name
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a/b", ".hidden", "x" * 200, "nul\0", "CON\\x", "<b>"])
def test_a_name_that_no_file_should_have_becomes_its_digest(name):
    assert re.fullmatch("[0-9a-f]{16}", file_name(name))
    assert file_name("grpo_atrl.geoqa_test") == "grpo_atrl.geoqa_test"


# Shades


def test_shades_are_those_of_the_credit_itself_whatever_else_the_response_has():
    pieces = shaded([("a", 0.0), (" b", 0.94), (" c", 1.06), (" d", 1.4), (" e", 3.5)])
    # five levels between 0 and 1, five between 1 and 2; of five tokens the top 15 % is one
    assert [piece.level for piece in pieces] == [-5, 0, 0, 2, 5]
    assert [piece.is_top for piece in pieces] == [False] * 4 + [True]


def test_exactly_15_percent_are_underlined_or_none_where_they_tie():
    assert top_tokens([1.0] * 17 + [1.2, 1.3, 1.4]) == {17, 18, 19}  # 15 % of 20 are 3
    assert top_tokens([1.0] * 16 + [1.2, 1.2, 1.3, 1.4]) == set()  # the third and the fourth have as much
    assert top_tokens([1.0, 1.0]) == top_tokens([]) == set()


def test_what_a_generated_worlds_answer_read_from_the_image_is_marked():
    tokens = [("The", 1.0), (" image", 1.0), (" shows", 1.0), (" 6", 1.0), (" 5", 1.0), (".", 1.0), (" 6", 1.0)]
    pieces = shaded(tokens, has_known_anchors=True)
    assert [piece.text for piece in pieces if piece.is_anchor] == [" 6", " 5"]
    assert not pieces[-1].is_anchor  # the same digit, but not where the image is read
    assert not any(piece.is_anchor for piece in shaded(tokens))
    assert READING.match(f"{READING_PREFIX} 3 7.")[1] == "3 7"


def test_credit_is_shown_on_the_answer_it_was_computed_for_and_only_where_the_tokens_are_its_text(
    make_report, tmp_path
):
    text = "The digits are 0 and 0. \\boxed{0}"
    known = {("geoqa_test/0", 0): [("The digits", 0.2), (text[10:], 1.8)], ("geoqa_test/1", 0): [("other text", 1.0)]}
    run_dir = make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",), credit_of=lambda _: known)
    html = page(run_dir, "zero_shot.geoqa_test.html")
    shades = '<span class="tok m4">The digits</span><span class="tok c4 top"> are 0 and 0. \\boxed{0}</span>'
    assert html.count(f"<pre>{shades}</pre>") == 1
    assert "other text" not in html
    assert "Shaded: what AT-RL" in html


def test_a_page_without_credit_has_no_legend(run_dir):
    assert "Shaded:" not in page(run_dir, "grpo.geoqa_test.html")


# Who decided


def test_judge_and_rule_disagreeing_is_a_filter_of_its_own():
    grade = Verdict("correct", "5", "judge", "same number", details={"rule": "wrong"})
    sample = Sample(Problem("1", "1", "q", Gold("5")), Response("1", 0, "h", "5", 1, 0.1, False), grade)
    assert grade.opinions == ("wrong", "correct")
    assert list(kinds_of(sample, None)) == ["correct", "disputed"]
    agreed = replace(sample, verdict=grade._replace(details={"rule": "unparseable"}))
    assert list(kinds_of(agreed, None)) == ["correct"]


# Pictures


@pytest.mark.full
def test_problems_are_shown_by_small_pictures_that_are_made_once(tmp_path):
    data = write_world(tmp_path / "data", load_profile("smoke"), ("geoqa",))
    digest = data_digest(find_task("geoqa_test"), data)
    spec = {"task": "geoqa_test", "task_version": "1", "data_digest": digest, "limit": None}
    shown = pictures_of(spec, ["0", "1", "no such problem"], tmp_path / "media", lambda folder: data)
    assert set(shown) == {"0", "1"}
    files = [tmp_path / "media" / name for names in shown.values() for name in names]
    assert all(path.stat().st_size < 60_000 for path in files)
    times = [path.stat().st_mtime_ns for path in files]
    # The list alone is enough afterwards: a report is rendered where the data is not.
    assert pictures_of(spec, ["0", "1"], tmp_path / "media", lambda folder: None) == shown
    assert times == [path.stat().st_mtime_ns for path in files]
    of_others = spec | {"data_digest": "that of other rows"}
    assert pictures_of(of_others, ["0", "1"], tmp_path / "media", lambda folder: data) == {}


def test_a_picture_that_does_not_decode_is_no_picture(tmp_path: Path):
    from atrl_bench.evaluation.tasks import find_task

    row = {"image": {"bytes": b"not an image", "path": None}}
    assert shown_pictures(find_task("geoqa_test").module, row) == []

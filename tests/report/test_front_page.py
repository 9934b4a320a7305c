"""The front page of a run folder: what there is, what is missing, how to get it."""

import re

import pytest

from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.front_page import render_index, write_index
from atrl_bench.report.rendered import table_from_json
from atrl_bench.report.text import render_csv, render_json
from atrl_bench.results.files import write_atomically
from atrl_bench.results.store import Store

SVG = "<svg xmlns='http://www.w3.org/2000/svg'><title>Curves &amp; bands</title><desc>Reward over steps.</desc></svg>"


@pytest.fixture(scope="module")
def run_dir(make_report, tmp_path_factory):
    return make_report(tmp_path_factory.mktemp("folder"), leave_out={("grpo", "wemath_testmini")})


def text_of(html: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", html.partition("</style>")[2]).split())


def test_every_table_has_its_state_its_counts_and_its_command(run_dir):
    html = render_index(run_dir)
    # Three rows by two columns were filled, one of these cells was left out; the whole table is 13 by 5.
    assert "5 of 6 measured, 1 to run; the page shows 3 of 13 rows and 2 of 5 columns" in text_of(html)
    for table in list_tables("at_rl"):
        assert f"<li><code>atrl-bench run-table {table} --profile mini</code></li>" in html
    assert text_of(html).count("not run") >= len(list_tables("at_rl")) - 1
    assert '<a href="main_7b.html">' in html
    assert '<a href="main_7b.csv">CSV<span class="hidden">: Main results' in html
    # 5 cells of 12 problems, 2 repeats
    assert "120 answers in 5 evaluations: 5 done." in text_of(html)
    assert "2 training runs" in text_of(html)


def test_a_page_of_some_rows_does_not_say_that_the_others_have_not_run(make_report, tmp_path):
    columns = tuple(column.id for column in load_table("main_7b").columns)
    html = render_index(make_report(tmp_path, rows=("zero_shot", "grpo"), columns=columns, problems=2))
    assert "partial 10 of 10 measured; the page shows 2 of 13 rows Markdown" in text_of(html)
    assert "<code>atrl-bench run-table main_7b --profile mini</code>" in html


def test_a_page_of_the_whole_table_is_done_and_needs_no_command(make_report, tmp_path):
    whole = load_table("main_7b")
    rows, columns = (tuple(item.id for item in items) for items in (whole.rows, whole.columns))
    html = text_of(render_index(make_report(tmp_path, rows=rows, columns=columns, problems=2)))
    # Two of the 13 rows by five columns cannot be measured in these tests.
    assert "done 55 of 65 measured, 10 not measured, with reasons One seed cannot tell Markdown" in html
    assert "the page shows" not in html


@pytest.mark.parametrize("damaged", ["", '{"id": "main_7b", "rows"', "[]", '{"id": "main_7b", "rows": []}', "\xff"])
def test_a_damaged_report_is_as_good_as_not_rendered(make_report, tmp_path, damaged):
    run_dir = make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",))
    (run_dir.reports / "main_7b.json").write_bytes(damaged.encode("latin-1"))
    html = render_index(run_dir)
    assert "not run 0 of 65 measured, 65 to run" in text_of(html)
    assert "24 answers in 1 evaluation" in text_of(html)


def test_a_rendered_table_comes_back_as_it_was(make_table, tmp_path):
    for profile in ("mini", "paper"):
        table = make_table(seeds=2, profile=profile, problems=10, leave_out={("grpo", "geoqa_test")})
        again = table_from_json(text := render_json(table))
        assert render_json(again) == text
        assert render_csv(again) == render_csv(table)  # a published 63.80 stays one


def test_the_page_says_what_its_commands_leave_out_and_never_where_the_folder_lies(run_dir):
    html = render_index(run_dir)
    assert "A command fills runs/mini below the current folder: for this folder in another place, add --out" in html
    assert str(run_dir.root) not in html


def test_answers_that_a_judge_graded_again_are_counted_once(make_report, tmp_path):
    run_dir = make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",))
    with Store.open(run_dir.store_path) as store:
        [cell] = store.cells()
        again = store.add_cell({**cell.spec, "judge": {"model": "judge"}})
        store.add_problems(again, store.problems(cell.key))
        store.add_responses(again, [sample.response for sample in store.samples(cell.key)])
        store.finish_cell(again, expected=cell.num_responses)
    # 12 problems by two repeats; the second evaluation holds the very same answers.
    assert "24 answers in 1 evaluation: 1 done." in text_of(render_index(run_dir))


def test_a_folder_where_nothing_ran_says_so(tmp_path):
    html = render_index(RunDir(tmp_path, load_profile("mini")))
    assert "Nothing has been evaluated in this folder yet." in text_of(html)
    assert "0 training runs" in text_of(html)


def test_figures_and_other_pages_are_found_with_their_own_words(make_report, tmp_path):
    run_dir = make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",))
    write_atomically(run_dir.reports / "figures" / "learning curve.svg", SVG.encode())
    write_atomically(run_dir.reports / "figures" / "learning curve.csv", b"step,reward\n")
    write_atomically(run_dir.reports / "audit.html", b"<title>The paper &lt;against&gt; itself</title>")
    html = write_index(run_dir).read_text()
    assert '<img src="figures/learning%20curve.svg" loading="lazy" alt="Reward over steps.">' in html
    assert "Curves &amp; bands" in html
    assert 'href="figures/learning%20curve.csv"' in html
    assert '<li><a href="audit.html">The paper &lt;against&gt; itself</a></li>' in html
    assert "index.html" not in html


def test_the_front_page_is_written_again_only_where_it_would_say_something_else(make_report, tmp_path):
    run_dir = make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",))
    page = run_dir.reports / "index.html"
    before = page.stat().st_ino
    assert write_index(run_dir).stat().st_ino == before
    write_atomically(run_dir.reports / "figures" / "curve.svg", SVG.encode())
    assert "Curves &amp; bands" in write_index(run_dir).read_text()
    with Store.open(run_dir.store_path) as store:
        store.reopen_cell(store.cells()[0].key)
    assert "24 answers in 1 evaluation: 1 pending." in text_of(write_index(run_dir).read_text())
    page.write_text("cut off")
    assert write_index(run_dir).read_text().rstrip().endswith("</html>")


def test_the_same_folder_gives_the_same_bytes(make_report, tmp_path):
    one, two = (make_report(tmp_path / name, seeds=2) for name in "ab")
    files = sorted(path.relative_to(one.reports) for path in one.reports.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two.reports) for path in two.reports.rglob("*") if path.is_file())
    # The table as HTML, Markdown, CSV, JSON and a figure, six floats of LaTeX and all in one, the index, six cells.
    assert len(files) == 5 + 7 + 1 + 6
    for name in files:
        assert (one.reports / name).read_bytes() == (two.reports / name).read_bytes(), name

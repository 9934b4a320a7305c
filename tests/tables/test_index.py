"""The front page of a run folder: what there is, what is missing, how to get it."""

from __future__ import annotations

import re

import pytest

from atrl_bench.profiles import load_profile
from atrl_bench.results.files import write_atomically
from atrl_bench.tables.definition import list_tables
from atrl_bench.tables.index import render_index, write_index
from atrl_bench.tables.workspace import Workspace

SVG = (
    """<svg xmlns="http://www.w3.org/2000/svg"><title>Curves &amp; bands</title><desc>Reward over steps.</desc></svg>"""
)


@pytest.fixture(scope="module")
def place(make_report, tmp_path_factory):
    return make_report(tmp_path_factory.mktemp("folder"), leave_out={("grpo", "wemath_testmini")})


def text_of(html: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", html.partition("</style>")[2]).split())


def test_every_table_has_its_state_its_counts_and_its_command(place):
    html = render_index(place)
    # 13 rows by 5 columns; three rows by two columns were filled, one of these cells was left out
    assert "5 of 65 measured" in text_of(html)
    for table in list_tables():
        assert f"<code>atrl-bench run-table {table} --profile mini</code>" in html
    assert text_of(html).count("not run") >= len(list_tables()) - 1
    assert '<a href="main_7b.html">' in html
    assert '<a href="main_7b.csv">CSV</a>' in html


def test_a_folder_where_nothing_ran_says_so(tmp_path):
    html = render_index(Workspace(tmp_path, load_profile("mini")))
    assert "Nothing has been evaluated in this folder yet." in text_of(html)
    assert "0 training runs" in text_of(html)


def test_trainings_and_evaluations_are_counted(place):
    assert "120 answers in 5 evaluations: 5 done." in text_of(render_index(place))  # 5 cells of 12 problems, 2 repeats
    assert "2 training runs" in text_of(render_index(place))


def test_figures_and_other_pages_are_found_with_their_own_words(make_report, tmp_path):
    place = make_report(tmp_path, rows=("zero_shot",), columns=("geoqa_test",))
    write_atomically(place.reports / "figures" / "learning curve.svg", SVG.encode())
    write_atomically(place.reports / "figures" / "learning curve.csv", b"step,reward\n")
    write_atomically(place.reports / "audit.html", b"<title>The paper &lt;against&gt; itself</title>")
    html = write_index(place).read_text()
    assert '<img src="figures/learning%20curve.svg" loading="lazy" alt="Reward over steps.">' in html
    assert "Curves &amp; bands" in html
    assert 'href="figures/learning%20curve.csv"' in html
    assert '<li><a href="audit.html">The paper &lt;against&gt; itself</a></li>' in html
    assert "index.html" not in html


def test_the_same_folder_gives_the_same_bytes(make_report, tmp_path):
    one, two = (make_report(tmp_path / name) for name in "ab")
    files = sorted(path.relative_to(one.reports) for path in one.reports.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two.reports) for path in two.reports.rglob("*") if path.is_file())
    assert len(files) == 6 + 1 + 6  # the table, the index, six cells
    for name in files:
        assert (one.reports / name).read_bytes() == (two.reports / name).read_bytes(), name

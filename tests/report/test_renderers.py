"""Every kind of output: complete, harmless whatever the text in it, and the same bytes for the same store."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from itertools import product

import pytest

from atrl_bench.errors import StoreError
from atrl_bench.escape import latex, markdown, running_latex, spreadsheet, visible
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.report import latex as latex_module
from atrl_bench.report.html import _charts, render_html
from atrl_bench.report.latex import render_latex
from atrl_bench.report.table_model import Footnote, TableCell
from atrl_bench.report.table_run import write_report
from atrl_bench.report.text import render_csv, render_json, render_markdown, terminal_text
from atrl_bench.resources import folder
from atrl_bench.results import numbers
from atrl_bench.results.statistics import Estimate


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "line", "circle", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def poisoned(value, payload: str):
    """Return a copy of the table with the payload in front of every text in it, except for keywords and numbers."""
    if is_dataclass(value):
        keep = {"state", "metric", "test"} if type(value).__name__ in ("TableCell", "Difference") else set()
        changes = {f.name: poisoned(getattr(value, f.name), payload) for f in fields(value) if f.name not in keep}
        return replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(poisoned(item, payload) for item in value)
    return payload + value if isinstance(value, str) and value else value


@pytest.fixture(scope="module")
def tiny(make_table):
    rows = ["zero_shot", "grpo", "dapo", "vppo", "grpo_atrl"]
    columns = ["geoqa_test", "wemath_testmini"]
    return make_table(seeds=2, problems=6, leave_out={("dapo", "wemath_testmini")}, rows=rows, columns=columns)


# Harmless


def test_no_text_becomes_markup_in_the_page(tiny, payload):
    clean, page = Page(render_html(tiny)), Page(render_html(poisoned(tiny, payload)))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in clean.tags]
    assert {name for _, attrs in page.tags for name in attrs} == {name for _, attrs in clean.tags for name in attrs}
    assert not page.open
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.text)


def test_no_text_becomes_a_command_in_latex(tiny, payload):
    source = render_latex(poisoned(tiny, payload))
    for command in (r"\input", r"\write", r"\immediate", r"\catcode", r"\def"):
        assert command not in source
    assert source.count("{") - source.count(r"\{") == source.count("}") - source.count(r"\}")
    assert commands(source) - {
        "textbackslash",
        "textasciicircum",
        "textasciitilde",
        "textquotedbl",
        "textbar",
    } <= commands(render_latex(tiny)) | {"textless", "textgreater", "textasciigrave", "geq", "leq"}
    assert source.isascii() or not re.search("[^\x00-\u017f]", source)


def commands(source: str) -> set[str]:
    return set(re.findall(r"\\([a-zA-Z]+)", source))


def test_no_text_becomes_a_formula_in_a_spreadsheet(tiny, payload):
    records = list(csv.DictReader(io.StringIO(render_csv(poisoned(tiny, payload)))))
    assert len(records) == len(list(csv.DictReader(io.StringIO(render_csv(tiny)))))
    for record in records:
        for name in ("profile", "row", "column", "reason", "state", "metric"):
            assert not record[name].startswith(("=", "+", "-", "@", "\t", "\r"))


def test_no_text_becomes_markup_in_markdown(tiny, payload):
    clean, text = render_markdown(tiny), render_markdown(poisoned(tiny, payload))
    assert len(text.splitlines()) == len(clean.splitlines())
    assert not re.search(r"(?<!\\)[\[`]|<(?!U\+)", text.replace("[5 of 6]", "").replace("[4 of 6]", ""))
    unescaped = [re.sub(r"\\.", "", line).count("|") for line in text.splitlines()]
    assert unescaped == [line.count("|") for line in clean.splitlines()]


def test_no_text_moves_the_cursor_of_a_terminal(tiny, payload):
    text = terminal_text(poisoned(tiny, payload)).plain
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_json_keeps_every_text_as_it_is(tiny, payload):
    document = json.loads(render_json(poisoned(tiny, payload)))
    assert document["title"] == payload + tiny.title


def test_hostile_answers_pass_from_the_store_to_every_file(make_table, tmp_path, payloads):
    payload = "".join(payloads)
    table = make_table(problems=3, decorate=lambda text: payload + text, rows=["zero_shot", "grpo"])
    assert len(write_report(table, tmp_path)) == 6
    assert not Page((tmp_path / "main_7b.html").read_text()).all("script")


def test_escaping_by_hand():
    assert visible("a\x1bb\u202ec\nd") == "a<U+001B>b<U+202E>c\nd"
    assert latex(r"\a_b{c}^~%") == r"\textbackslash{}a\_b\{c\}\textasciicircum{}\textasciitilde{}\%"
    assert latex("--allow-code ''x'' ,,") == "-{}-allow-code '{}'x'{}' ,{},"
    assert latex("1–2") == "1--2"
    assert running_latex("a_b,c/d, e_") == r"a\_\allowbreak{}b,\allowbreak{}c/\allowbreak{}d, e\_"
    assert latex("é ζ ↑") == r"é [U+03B6] $\uparrow$"
    assert markdown("a|b\n<c>*") == r"a\|b &lt;c&gt;\*"
    assert [spreadsheet(text) for text in ("=1", " @x", "-2", "ok")] == ["'=1", "' @x", "'-2", "ok"]


# The page


def test_the_page_asks_for_nothing_outside_itself_and_forbids_it(table):
    html = render_html(table)
    page = Page(html)
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"https?:|url\(|@import|src=", html)
    assert not page.all("script")
    assert not any("style" in attrs or any(name.startswith("on") for name in attrs) for _, attrs in page.tags)


def test_every_link_of_the_page_leads_to_something_on_it(table):
    page = Page(render_html(table))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [a["href"] for a in page.all("a")]
    assert len(links) == 11 * 6
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_tables_have_captions_and_headings_with_a_scope(table):
    page = Page(render_html(table))
    assert len(page.all("caption")) == len(page.all("table")) == 6
    assert all(th["scope"] in ("col", "row", "rowgroup", "colgroup") for th in page.all("th"))
    assert page.all("html")[0]["lang"] == "en"
    assert page.all("svg")[0]["role"] == "img"


def test_directions_are_words_too_and_not_colour_alone(table):
    html = render_html(table)
    assert html.count('<span aria-hidden="true">↑</span><span class="hidden">up </span>') > 20
    assert 'class="change up"' in html
    assert 'class="change down"' in html


def test_the_page_says_that_mini_and_paper_numbers_are_not_comparable_and_keeps_them_apart(table):
    html = render_html(table)
    measured, published = html.split('id="published"')
    assert "not comparable" in measured
    assert "66.23" not in measured  # the paper's best WeMath score
    assert "66.23" in published


def test_each_groups_baseline_is_a_dashed_line_beside_its_own_rows_only(table):
    """Two rows in each of two groups: the headings take a line of the chart each, so rows stand 26 units apart."""
    [zero_shot, grpo], shares = table.rows[:2], (0.2, 0.3, 0.4, 0.6)
    rows = [
        replace(row, id=f"{row.id}_{group}", group=group, baseline=f"zero_shot_{group}", cells=(cell(share),))
        for (group, row), share in zip(product(("7B", "3B"), (zero_shot, grpo)), shares, strict=True)
    ]
    small = replace(table, rows=tuple(rows), columns=table.columns[:1], has_average=False, baseline="Zero-shot, 7B")
    [chart] = _charts(small)
    assert [text for _, text in chart.headings] == ["7B", "3B"]
    assert [y for y, _ in chart.headings] == [26, 104]
    assert [bar.y for bar in chart.bars] == [52, 78, 130, 156]
    assert [line.x for line in chart.baselines] == [chart.bars[0].middle, chart.bars[2].middle]
    assert [(line.top, line.bottom) for line in chart.baselines] == [(39, 91), (117, 169)]
    html = render_html(small)
    assert "Dashed: Zero-shot, 7B; Zero-shot, 3B." in html
    assert html.count('<line class="zero"') == 2
    assert "points against Zero-shot, 7B or, in its group, Zero-shot, 3B)" in html


def test_no_dashed_line_is_spoken_of_where_the_baseline_has_no_score(table):
    [grpo, dapo] = (replace(row, cells=(cell(0.5),)) for row in table.rows[1:3])
    small = replace(table, rows=(grpo, dapo), columns=table.columns[:1], has_average=False)
    html = render_html(small)
    assert 'class="range"' in html
    assert "Dashed" not in html


def cell(share):
    return TableCell("measured", estimate=Estimate(share, 0.01, 9, 10, 10), num_expected=10)


@pytest.mark.parametrize("name", list_tables())
def test_a_footnote_that_stands_under_measured_numbers_too_says_which_values_it_speaks_of(name):
    definition = load_table(name)
    for footnote in {footnote for row in definition.rows if row.recipe for footnote in row.footnotes}:
        text = definition.footnotes[footnote]
        assert not re.search(r"The (caption|text|values) |this table", text), footnote  # whose?
        if "elow zero-shot" in text:
            assert "published values" in text, footnote


def test_a_full_page_stays_below_two_megabytes(make_table):
    table = make_table(seeds=1, problems=60, decorate=lambda text: text + " word" * 400 if len(text) > 20 else text)
    assert len(render_html(table).encode()) < 2_000_000


# The other files


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
@pytest.mark.parametrize("third", [None, 0, 1, 2])
@pytest.mark.parametrize("most_columns", [1, 10])
def test_the_latex_document_compiles(tiny, tmp_path, payloads, third, most_columns, monkeypatch):
    monkeypatch.setattr(latex_module, "MOST_COLUMNS", most_columns)
    payload = "" if third is None else "".join(payloads[third::3])
    table = replace(tiny, profile="paper", is_comparable=True)  # with a verdict on each row
    (tmp_path / "t.tex").write_text(render_latex(poisoned(table, payload) if payload else table, standalone=True))
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_lists_and_paths_in_latex_notes_end_inside_the_page(tiny, tmp_path):
    tasks = ",".join(f"task_number_{i}" for i in range(30))
    note = f"Only an endpoint has it: atrl-bench evaluate Qwen/Qwen2.5-VL-72B --tasks {tasks}"
    [first, *others] = tiny.rows
    unmeasured = replace(first, cells=tuple(TableCell("not measured", reason=note) for _ in first.cells))
    table = replace(tiny, notes=(note,), rows=(unmeasured, *others), footnotes=(Footnote("a", note),))
    (tmp_path / "t.tex").write_text(render_latex(table, standalone=True))
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0
    wide = re.findall(r"Overfull \\hbox \(([\d.]+)pt", done.stdout.decode(errors="replace"))
    assert max(map(float, wide), default=0) < 20


def test_the_latex_looks_like_the_papers_table(table):
    source = render_latex(table)
    assert r"\rowcolor{gray!10} \multicolumn{7}{l}{\textit{Uniform Credit Baselines}} \\" in source
    assert r"GeoQA$_{\text{test}}$" in source
    published = source[source.index(r":published}") :]
    assert r"GRPO & 46.86{\scriptsize\textcolor{ForestGreen}{$\uparrow$2.81}} & 41.81" in published
    assert r"\rowcolor{blue!5}" in published
    assert r"\textbf{SAPO + AT-RL} & \textbf{52.77{\scriptsize\textcolor{ForestGreen}{$\uparrow$8.72}}} &" in published
    assert r"StepGRPO$^{\text{i}}$ & 41.12{\scriptsize\textcolor{red}{$\downarrow$2.93}}" in published


def test_a_table_with_many_columns_is_printed_with_its_models_as_columns(table, monkeypatch):
    monkeypatch.setattr(latex_module, "MOST_COLUMNS", 5)
    source = render_latex(table)
    assert source.count(r"\textbf{Benchmark} & Zero-shot") == 2  # measured and published
    lines = [line for line in source.splitlines() if line.startswith(("GeoQA", "Average"))]
    assert [line.count(" & ") for line in lines] == [len(table.rows)] * 2 + [len(table.published)] * 2
    assert r" & 46.86{\scriptsize\textcolor{ForestGreen}{$\uparrow$2.81}}" in lines[2]


def test_the_terminal_table_fits_eighty_columns_and_shows_every_row(table):
    text = terminal_text(table).plain
    assert max(map(len, text.splitlines())) <= 80
    assert all(row.label.split(",")[0] in text for row in table.rows)
    assert "seed variance" in text or "training seeds" in text


def test_partial_cells_and_columns_that_may_not_run_stay_below_their_heads_in_eighty_columns(tiny):
    score = Estimate(1.0, 0.1, 9, 10, 10)  # "100.0… ±22.6": twelve characters, as "not measured" has
    cells = (TableCell("partial", estimate=score, num_expected=20), TableCell("not measured"), TableCell("missing"))
    rows = tuple(replace(row, cells=cells) for row in tiny.rows[:2])
    lines = terminal_text(replace(tiny, rows=rows, notes=())).plain.splitlines()
    assert {len(line) for line in lines if "±" in line or "─" in line} == {80}
    [shown, _] = (line for line in lines if "±" in line)
    assert shown.endswith(" 100.0… ±22.6 not measured      not run")


def test_a_note_breaks_no_name_on_the_terminal_and_ends_with_a_command_that_can_be_pasted(tiny):
    tasks = ",".join(f"long_name_of_a_task_{i}" for i in range(6))
    said = f"This says in words that nobody looked at {tasks[:62]} yet"
    note = f"{said}: atrl-bench overlap virl39k {tasks} --profile smoke"
    text = terminal_text(replace(tiny, notes=(note,))).plain
    assert text.endswith(
        "· This says in words that nobody looked at\n"
        f"  {tasks[:62]} yet:\n"
        f"  atrl-bench overlap virl39k {tasks} \\\n"
        "    --profile smoke\n"
    )


def test_csv_tells_measured_from_published_numbers(table):
    records = list(csv.DictReader(io.StringIO(render_csv(table))))
    assert len([r for r in records if r["kind"] == "measured"]) == 13 * 6
    published = {(r["row"], r["column"]): r["score"] for r in records if r["kind"] == "published"}
    assert published["gspo", "mathvista_testmini"] == "66.40"
    grpo = next(r for r in records if (r["row"], r["column"]) == ("grpo", "average"))
    assert float(grpo["low"]) < float(grpo["score"]) < float(grpo["high"])


def test_the_same_store_gives_the_same_bytes(make_table, tmp_path):
    small = {"seeds": 2, "problems": 8, "columns": ["geoqa_test", "mathverse_testmini"]}
    one = write_report(make_table(**small, path=tmp_path / "a.sqlite"), tmp_path / "a")
    two = write_report(make_table(**small, path=tmp_path / "b.sqlite"), tmp_path / "b")
    assert [path.name for path in one] == [path.name for path in two]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))


def test_a_report_that_cannot_be_written_says_what_to_do(tiny):
    with pytest.raises(StoreError, match="--out"):
        write_report(tiny, folder("reports") / "templates" / "table.css" / "x")


def test_numbers_by_hand():
    assert numbers.percent(0.46859) == "46.86"
    assert numbers.percent(float("nan")) == "–"
    assert (numbers.signed(0.0281), numbers.signed(-0.0293), numbers.signed(0.00001)) == ("+2.81", "−2.93", "0.00")
    assert numbers.interval(Estimate(0.05, 0.05, 9, 10, 10)) == "0.0 to 16.3"  # t at 9 degrees: 2.262
    assert numbers.direction(-0.00004) == 0  # an arrow beside 0.00 would say more than the digits
    assert [numbers.p_value(p) for p in (0.0001, 0.0134, float("nan"))] == ["< 0.001", "= 0.013", "not defined"]

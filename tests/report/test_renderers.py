"""Every kind of output: complete, harmless whatever the text in it, and the same bytes for the same store."""

import base64
import csv
import hashlib
import io
import json
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from html_page import Page
from table_fixtures import poisoned

from atrl_bench.errors import StoreError
from atrl_bench.escape import latex, markdown, running_latex, spreadsheet, visible
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.profiles import load_profile
from atrl_bench.report.charts import draw
from atrl_bench.report.html import render_html
from atrl_bench.report.table_model import TableCell
from atrl_bench.report.table_run import write_report
from atrl_bench.report.text import render_csv, render_json, render_markdown, terminal_text
from atrl_bench.resources import folder
from atrl_bench.results import numbers
from atrl_bench.results.statistics.means import Estimate

# Harmless


def test_no_text_becomes_markup_in_the_page(tiny, payload):
    clean, page = Page(render_html(tiny)), Page(render_html(poisoned(tiny, payload)))
    assert [tag for tag, *_ in page.elements] == [tag for tag, *_ in clean.elements]
    names, of_clean = ({name for _, attrs, _ in each.elements for name in attrs} for each in (page, clean))
    assert names == of_clean
    assert not page.open
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.text)


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


def test_escaping_by_hand():
    assert visible("a\x1bb\u202ec\nd") == "a<U+001B>b<U+202E>c\nd"
    assert latex(r"\a_b{c}^~%") == r"\textbackslash{}a\_b\{c\}\textasciicircum{}\textasciitilde{}\%"
    assert latex("--allow-code ''x'' ,,") == "-{}-allow-code '{}'x'{}' ,{},"
    assert latex("1–2") == "1--2"
    assert running_latex("a_b,c/d, e_") == r"a\_\allowbreak{}b,\allowbreak{}c/\allowbreak{}d, e\_"
    assert latex("é ζ ↑ ï ą") == r"\'{e} [U+03B6] $\uparrow$ \"{\i} [U+0105]"
    assert latex('a "b c" `d') == r"a ``b c'' \textquoteleft{}d"
    assert markdown("a|b\n<c>*") == r"a\|b &lt;c&gt;\*"
    assert [spreadsheet(text) for text in ("=1", " @x", "-2", "ok")] == ["'=1", "' @x", "'-2", "ok"]


# The page


def test_the_page_asks_for_nothing_outside_itself_and_forbids_it(table):
    html = render_html(table)
    page = Page(html)
    policy = next(m["content"] for m in page.attributes("meta") if m.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert (
        policy == f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"https?:|url\(|@import", html)
    assert all(image["src"].startswith("data:image/svg+xml;base64,") for image in page.attributes("img"))
    assert html.count("src=") == len(page.attributes("img")) == 1
    assert not page.attributes("script")
    assert not any("style" in attrs or any(name.startswith("on") for name in attrs) for _, attrs, _ in page.elements)


def test_every_link_of_the_page_leads_to_something_on_it(table):
    page = Page(render_html(table))
    ids = [attrs["id"] for _, attrs, _ in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [a["href"] for a in page.attributes("a")]
    assert len(links) == 11 * 6 + 1  # the numbers, and past the heading
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_a_difference_has_one_notation_and_colour_only_where_a_comparison_of_credit_is_clear(table):
    html = render_html(table)
    assert not re.search("[↑↓]", html)
    scores = html[html.index('id="measured"') : html.index('id="credit"')]
    assert re.search(r'<span class="change">\+\d+\.\d\*<span class="hidden"> significant', scores)
    assert 'class="change up"' not in scores


def test_no_score_has_an_interval_that_leaves_nought_to_a_hundred():
    assert numbers.error(Estimate(0.74, 0.05, 9, 10, 10)) == "±11.3"  # t at 9 degrees: 2.262
    assert numbers.error(Estimate(0.95, 0.05, 9, 10, 10)) == "83.7 to 100.0"


def test_every_row_and_figure_of_another_profile_says_whose_it_is(table):
    assert all(row.label.startswith("mini: ") for row in table.rows)
    for drawing in draw(table).values():
        assert drawing.svg.count("mini: ") >= 2 * len(table.comparisons)
    wide = load_table("scale_32b").as_measured(load_profile("mini"))
    assert {row.label for row in wide.rows} >= {
        "mini in place of Qwen2.5-VL-32B-Instruct",
        "mini in place of Qwen2.5-VL-32B + Ours",
        "mini: OpenAI GPT-4o",
    }
    assert wide.caption.startswith("Profile mini in place of the models named here. Score in percent")
    assert load_table("scale_32b").as_measured(load_profile("paper")) == load_table("scale_32b")


def test_the_page_says_that_mini_and_paper_numbers_are_not_comparable_and_keeps_them_apart(table):
    html = render_html(table)
    measured, published = html.split('id="published"')
    assert "not comparable" in measured
    assert "66.23" not in measured  # the paper's best WeMath score
    assert "66.23" in published


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


def test_the_terminal_table_fits_eighty_columns_and_shows_every_row(table):
    text = terminal_text(table).plain
    assert max(map(len, text.splitlines())) <= 80
    words = set(text.split())
    named = [*(row.label for row in table.rows), *(column.text for column in table.columns)]
    assert all(set(name.split()) <= words for name in named)  # a label may take several lines
    assert "seed variance" in text or "training seeds" in text


def test_partial_cells_and_columns_that_may_not_run_stay_below_their_heads_in_eighty_columns(tiny):
    score = Estimate(1.0, 0.1, 9, 10, 10)  # "100.0… 77.4–100.0": wider than "not measured"
    cells = (TableCell("partial", estimate=score, num_expected=20), TableCell("not measured"), TableCell("missing"))
    rows = tuple(replace(row, cells=cells) for row in tiny.rows[:2])
    lines = terminal_text(replace(tiny, rows=rows, notes=())).plain.splitlines()
    assert {len(line) for line in lines if "…" in line or "─" in line} == {80}
    [shown, _] = (line for line in lines if "…" in line)
    assert shown.endswith(" 100.0… 77.4–100.0      not measured           not run")


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


def test_csv_has_scores_in_percent_and_probabilities_as_they_are(table):
    records = csv.DictReader(io.StringIO(render_csv(table)))
    [written] = (r for r in records if (r["row"], r["column"], r["kind"]) == ("grpo", "geoqa_test", "measured"))
    cell = next(row for row in table.rows if row.id == "grpo").cells[0]
    assert float(written["score"]) == pytest.approx(100 * cell.estimate.mean)
    assert float(written["difference"]) == pytest.approx(100 * cell.difference.estimate.mean)
    assert float(written["p"]) == pytest.approx(cell.difference.p_value, abs=1e-6)
    assert float(written["q"]) == pytest.approx(cell.q_value, abs=1e-6)


def test_a_report_that_cannot_be_written_says_what_to_do(tiny):
    with pytest.raises(StoreError, match="--out"):
        write_report(tiny, folder("reports") / "templates" / "table.css" / "x")


def test_numbers_by_hand():
    assert numbers.percent(0.46859) == "46.9"
    assert numbers.percent(float("nan")) == "–"
    assert (numbers.signed(0.0281), numbers.signed(-0.0293), numbers.signed(0.00001)) == ("+2.8", "−2.9", "0.0")
    assert numbers.signed(Decimal("2.81")) == "+2.81"  # as printed
    assert numbers.interval(Estimate(0.05, 0.05, 9, 10, 10)) == "0.0 to 16.3"  # t at 9 degrees: 2.262
    assert numbers.direction(-0.00004) == 0  # a sign before 0.0 would say more than the digits
    assert [numbers.p_value(p) for p in (0.0001, 0.0134, float("nan"))] == ["< 0.001", "= 0.013", "not defined"]

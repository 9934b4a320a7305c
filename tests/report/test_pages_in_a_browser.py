"""In headless Chromium: no script runs, no request leaves the page, nothing is wider than a phone, axe finds no fault.

The scripts that look at a page are put into copies, whose policy lets just these run.
"""

import base64
import hashlib
import html as html_module
import json
import re
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import needs
import pytest

from atrl_bench.papers.audit import audit
from atrl_bench.papers.paper import load_paper
from atrl_bench.report.analysis_pages import write_audit
from atrl_bench.report.html import render_html
from atrl_bench.resources import folder

FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars --disable-sync"
FLAGS += " --disable-background-networking --disable-component-update --disable-default-apps"

# What the browser itself asks its maker, whatever page is open.
BROWSERS_OWN = (".google.com", ".googleapis.com", ".gvt1.com")

pytestmark = [needs.chromium, pytest.mark.full]

PROBE = """
document.querySelectorAll("details").forEach((e) => { e.open = true; });
addEventListener("load", () => setTimeout(() => {
  const boxes = [...document.querySelectorAll(".scroll")], inside = (e) => e.closest(".scroll, .hidden") !== null;
  const wide = [...document.querySelectorAll("body *")].filter(
    (e) => !inside(e) && e.getBoundingClientRect().right > innerWidth + 1);
  parent.postMessage(JSON.stringify({
    width: document.documentElement.scrollWidth,
    window: innerWidth,
    wide: wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)),
    pictures: [...document.images].filter((e) => e.complete && e.naturalWidth).length,
    scrolling: boxes.filter((e) => e.scrollWidth > e.clientWidth).map((e) => ({
      table: e.querySelector("table") !== null, says: parseFloat(getComputedStyle(e, "::before").height) > 9})),
    cut: boxes.filter((e) => e.scrollHeight > e.clientHeight + 1).length,
    shown: [...document.querySelectorAll(".a")].filter((e) => e.getBoundingClientRect().height > 0).length,
  }), "*");
}, 200));
"""
AXE = """
addEventListener("load", () => {
  document.querySelectorAll("details").forEach((e) => { e.open = true; });
  axe.run(document).then((found) => parent.postMessage(JSON.stringify({
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    texts: found.passes.filter((rule) => rule.id === "color-contrast").map((rule) => rule.nodes.length),
    violations: found.violations.map((rule) => [rule.id, rule.nodes.slice(0, 3).map((node) => node.html)]),
  }), "*"));
});
"""
SCHEMES = {"dark": 0, "light": 1}  # as Chromium counts them
# A window cannot be narrower than about 500 pixels, a frame can.
FRAME = """<!doctype html><body><script>addEventListener("message", (e) => document.body.textContent = e.data)</script>
<iframe width="{width}" height="900" src="{address}"></iframe>"""


def browse(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(needs.CHROMIUM), *FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def probed(
    page: Path,
    tmp_path: Path,
    fragment: str = "",
    *,
    width: int = 1280,
    probe: str = PROBE,
    flags: str = "",
    with_own: bool = False,
) -> Any:
    """Return what the probe says of a copy of the page, at this width, after its pictures have loaded.

    The page's own script does not run beside it, unless `with_own`.
    """
    html = page.read_text(encoding="utf-8").replace(' loading="lazy"', "")
    digest = base64.b64encode(hashlib.sha256(probe.encode()).digest()).decode()
    before, after = ("script-src ", "") if with_own else ("default-src &#39;none&#39;; ", "script-src ")
    assert before in html
    html = html.replace(before, f"{before}{after}'sha256-{digest}'{' ' if with_own else '; '}", 1)
    copy, frame = page.with_name(f"probe-{page.name}"), page.with_name(f"frame-{page.name}")
    try:
        copy.write_text(html.replace("</body>", f"<script>{probe}</script></body>"), encoding="utf-8")
        frame.write_text(FRAME.format(width=width, address=copy.name + fragment), encoding="utf-8")
        done = browse(tmp_path, *flags.split(), "--virtual-time-budget=5000", "--dump-dom", frame.as_uri())
    finally:
        copy.unlink()
        frame.unlink()
    found = re.search(r"<body>([{\[].*[}\]])</body>", done.stdout, re.DOTALL)
    assert found, done.stdout[-500:] + done.stderr[-500:]
    return json.loads(html_module.unescape(found[1]))


def pages_of(run_dir) -> list[Path]:
    reports = run_dir.reports
    return [reports / "index.html", reports / "main_7b.html", reports / "samples/main_7b/grpo.geoqa_test.html"]


@pytest.fixture(scope="module")
def every_kind(make_report, tmp_path_factory):
    """One page of each kind: front, table, answers, and a paper held against itself."""
    run_dir, paper = make_report(tmp_path_factory.mktemp("report")), load_paper("at_rl")
    return [*pages_of(run_dir), *write_audit(audit(paper), run_dir.reports, paper)[:1]]


@pytest.fixture(scope="module")
def hostile(make_report, tmp_path_factory, payloads):
    text = "".join(payloads)
    return make_report(tmp_path_factory.mktemp("hostile"), problems=3, decorate=lambda own: text + own)


def test_hostile_pages_run_no_script_and_ask_for_nothing(hostile, tmp_path):
    for number, page in enumerate(pages_of(hostile)):
        log = tmp_path / f"net{number}.json"
        done = browse(tmp_path, f"--log-net-log={log}", "--enable-logging=stderr", "--dump-dom", page.as_uri())
        assert "<h1>" in done.stdout, done.stderr[-500:]
        # What another script would have left, and what a blocked one would have been reported as.
        own = (folder("reports") / "templates" / "answers.js").read_text(encoding="utf-8")
        assert "<script" not in done.stdout.replace(f"<script>{own}</script>", "")
        assert "Content Security Policy" not in done.stderr
        asked = re.findall(r'"url":"https?://([^/"]+)', log.read_text(encoding="utf-8", errors="replace"))
        assert not [host for host in asked if not host.endswith(BROWSERS_OWN)]


@pytest.mark.parametrize("width", [375, 768, 1280])
def test_only_a_table_scrolls_sideways_and_says_so_and_no_row_is_hidden(every_kind, tmp_path, width):
    for page in every_kind:
        found = probed(page, tmp_path, width=width)
        assert found["window"] == width
        assert found["width"] <= width, (page.name, found["wide"])
        assert not found["wide"], page.name
        assert all(one["table"] and one["says"] for one in found["scrolling"]), page.name
        assert not found["cut"], page.name
    assert (width == 375) <= bool(found["scrolling"])  # the last page's tables are wider than a phone


def test_even_hostile_texts_stay_inside_a_phone(hostile, tmp_path):
    for page in pages_of(hostile):
        found = probed(page, tmp_path, width=375)
        assert found["width"] <= 375, (page.name, found["wide"])


@needs.pdftotext
def test_on_paper_no_column_and_no_reason_is_cut_off(table, tmp_path):
    """Eleven columns of long names, and a row whose reason holds a word that is wider than any paper."""
    columns = [replace(table.columns[0], id=f"c{i}", label=f"LongBenchmark{i}", subscript="") for i in range(11)]
    tasks = ",".join(f"mathvista_testmini_{i}" for i in range(11))
    rows = [replace(row, cells=tuple(replace(row.cells[0], reason=tasks) for _ in columns)) for row in table.rows]
    wide = replace(table, columns=tuple(columns), rows=tuple(rows), has_average=False, published=(), comparisons=())
    page, paper, words = (tmp_path / name for name in ("wide.html", "wide.pdf", "words.html"))
    page.write_text(render_html(wide), encoding="utf-8")
    browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri())
    subprocess.run(["pdftotext", "-bbox", str(paper), str(words)], check=True)
    found = words.read_text(encoding="utf-8")
    [width, height] = map(float, re.search(r'<page width="([\d.]+)" height="([\d.]+)"', found).groups())
    assert width > height
    ends = {text: float(end) for end, text in re.findall(r'xMax="([\d.]+)" yMax="[\d.]+">([^<]*)</word>', found)}
    assert ends.keys() >= {column.label for column in columns}
    assert max(ends.values()) < width - 20
    assert tasks in "".join(ends)


def test_a_filter_hides_all_other_answers_without_any_script(every_kind, tmp_path):
    page = every_kind[2]
    total = page.read_text().count('<li class="a ')
    wrong = page.read_text().count('<li class="a s-wrong')
    assert probed(page, tmp_path)["shown"] == total
    assert probed(page, tmp_path, "#only-wrong")["shown"] == wrong
    assert 0 < wrong < total


def test_filters_combine_and_words_are_searched_for_with_the_shipped_script(every_kind, tmp_path):
    html = every_kind[2].read_text()
    steps = """
    addEventListener("load", () => {
      const click = (kind) => document.querySelector(`.filters a[href="#only-${kind}"]`).click();
      const all = [...document.querySelectorAll(".a")];
      const shown = () => all.filter((e) => e.getBoundingClientRect().height > 0).length;
      const counts = [shown()];
      click("wrong"); counts.push(shown());
      click("correct"); counts.push(shown());
      click("fixed"); counts.push(shown());
      document.querySelector(".all").click();
      document.getElementById("search").value = "DIGITS 3 AND 1";
      document.getElementById("search").dispatchEvent(new Event("input"));
      counts.push([...document.querySelectorAll(".problem")].filter((e) => !e.hidden).length);
      parent.postMessage(JSON.stringify(counts), "*");
    });"""
    total, wrong, either, fixed, problems = probed(every_kind[2], tmp_path, probe=steps, with_own=True)
    assert total == html.count('<li class="a ')
    assert 0 < wrong == html.count('<li class="a s-wrong') < either < total
    # wrong or correct, and changed from wrong: all of them are correct now
    assert 0 < fixed == len(re.findall(r'<li class="a [^"]*k-fixed', html)) < either
    assert problems == 1  # that of 3 and 21 = 1 of the twelve


def test_pictures_beside_the_page_are_allowed_by_its_policy(make_report, tmp_path, monkeypatch):
    from PIL import Image

    from atrl_bench.report import answers

    def pictures(spec, names, out, data_dir):
        out.mkdir(exist_ok=True, parents=True)
        Image.new("RGB", (40, 30), "red").save(out / "one.png")
        return dict.fromkeys(names, ("one.png",))

    monkeypatch.setattr(answers, "pictures_of", pictures)
    run_dir = make_report(tmp_path / "report", problems=4)
    assert probed(pages_of(run_dir)[2], tmp_path)["pictures"] == 4


def axe(page: Path, tmp_path: Path, scheme: str) -> dict[str, Any]:
    """Return what axe finds with everything unfolded, in this theme."""
    source = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    return probed(page, tmp_path, probe=source + AXE, flags=f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_no_fault_in_any_kind_of_page_in_either_theme(every_kind, tmp_path, scheme):
    for page in every_kind:
        found = axe(page, tmp_path, scheme)
        assert found["dark"] == (scheme == "dark")
        assert found["texts"][0] > 50, page.name  # of which it could tell the contrast
        assert not found["violations"], page.name


def test_axe_would_find_a_fault(make_report, tmp_path):
    run_dir = make_report(tmp_path / "report")
    page = pages_of(run_dir)[0]
    page.write_text(page.read_text().replace('lang="en"', "").replace("<h1>", "<h5>").replace("</h1>", "</h5>"))
    found = {rule for rule, _ in axe(page, tmp_path, "light")["violations"]}
    assert {"html-has-lang", "page-has-heading-one"} <= found

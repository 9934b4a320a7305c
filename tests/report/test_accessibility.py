"""What can be checked of the pages without a browser: contrast, headings, scopes, names, focus, no colour alone."""

import re
from itertools import product

import pytest
from html_page import Page

from atrl_bench.report.front_page import write_index
from atrl_bench.report.token_shades import LEVELS
from atrl_bench.resources import folder
from atrl_bench.results.files import write_atomically

STYLE = "".join(
    (folder("reports") / "templates" / name).read_text(encoding="utf-8") for name in ("theme.css", "table.css")
)


@pytest.fixture(scope="module")
def pages(make_report, tmp_path_factory):
    text = "The digits are 0 and 0. \\boxed{0}"
    known = {("geoqa_test/0", 0): [(text[:10], 0.2), (text[10:], 1.8)]}
    run_dir = make_report(
        tmp_path_factory.mktemp("report"), leave_out={("grpo", "wemath_testmini")}, credit_of=lambda _: known
    )
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><title>A</title><desc>Reward over steps.</desc></svg>'
    write_atomically(run_dir.reports / "figures" / "a.svg", svg)
    write_index(run_dir)
    paths = ["index.html", "main_7b.html", "samples/main_7b/grpo.geoqa_test.html"]
    return {path: Page((run_dir.reports / path).read_text()) for path in paths}


def test_every_table_has_a_caption_and_every_heading_cell_a_scope(pages):
    for name, page in pages.items():
        tables, captions = page.all("table"), page.all("caption")
        assert len(tables) == len(captions), name
        assert all(text for _, text in captions), name
        assert all(attrs.get("scope") in ("col", "row", "rowgroup", "colgroup") for attrs, _ in page.all("th")), name


def test_every_picture_link_and_region_has_a_name(pages):
    for name, page in pages.items():
        assert all(attrs.get("alt") for attrs, _ in page.all("img")), name
        assert all("aria-hidden" in attrs or attrs.get("aria-label") for attrs, _ in page.all("svg")), name
        assert all(text for _, text in page.all("summary", "figcaption", "li")), name
        ids = {attrs["id"] for _, attrs, _ in page.elements if "id" in attrs}
        for _, attrs, _ in page.elements:
            if attrs.get("role") == "region":
                assert attrs.get("aria-label") or attrs.get("aria-labelledby") in ids, name
        assert all(attrs.get("aria-label") for attrs, _ in page.all("nav")), name


def test_what_scrolls_can_be_reached_and_scrolled_by_keyboard(pages):
    for name, page in pages.items():
        scrolling = [attrs for _, attrs, _ in page.elements if attrs.get("class") == "scroll"]
        assert all(attrs.get("tabindex") == "0" for attrs in scrolling), name


def test_a_verdict_is_a_word_beside_its_colour(pages):
    page = pages["samples/main_7b/grpo.geoqa_test.html"]
    verdicts = [text for attrs, text in page.all("strong") if attrs.get("class") == "verdict"]
    assert len(verdicts) > 24  # of both rows, equal repeats as one
    states = {"correct", "wrong", "unparseable", "timed out", "judge failed"}
    assert {text.split(" ", 1)[1] for text in verdicts} <= states


def test_the_most_credited_tokens_are_underlined_and_not_only_coloured():
    assert re.search(r"\.top \{[^}]*text-decoration: underline", STYLE)


def test_focus_is_visible_on_everything_that_takes_it():
    [rule] = re.findall(r"([^{}]*):focus-visible \{ outline: 2px solid", STYLE)
    for selector in ("a:focus-visible", "summary:focus-visible", ".scroll"):
        assert selector in rule + ":focus-visible"
    assert "outline: none" not in STYLE
    assert "outline: 0" not in STYLE


def themes() -> list[dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE.split("@media print")[0], re.DOTALL)
    return [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def contrast(one: str, two: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_by_hand():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # famous for being just too little


def test_text_has_enough_contrast_in_both_themes():
    """WCAG AA asks for 4.5 : 1 of text, every ink on every ground it can stand on, credit's shades included."""
    light, dark = themes()
    assert set(light) == set(dark)
    for theme in (light, dark):
        for ground in ("page", "band", "best", "grey"):
            for ink in ("ink", "soft", "up", "down", "link"):
                assert contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)
        shades = [f"{side}-{level}" for side in ("credit", "less") for level in range(1, LEVELS + 1)]
        for ground in ("warn", *shades):
            assert contrast(theme["ink"], theme[ground]) >= 4.5, ground


def test_the_shades_of_credit_can_be_told_from_each_other_and_get_stronger():
    for theme, side in product(themes(), ("credit", "less")):
        steps = [contrast(theme[f"{side}-{level}"], theme["band"]) for level in range(1, LEVELS + 1)]
        assert steps == sorted(steps)
        assert steps[-1] > 1.5

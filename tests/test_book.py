"""The pages as a book: few enough to read, all in the navigation, and what the README found is on the page it names."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Written by `report` from measurements: they grow with the tables, and nobody reads them from end to end.
GENERATED = {"example_report", "worlds_report"}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in GENERATED]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FINDINGS = re.findall(r"^- (.*?\(\[[^\]]+\]\(([^)]+)\)\))\.$", README.partition("## What it found\n")[2], re.M | re.S)


def own_words(page: Path) -> list[str]:
    """Return the words of a page but for the tables that a test computes anew."""
    return re.sub(r"<!-- \w+ -->.*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).split()


def numbers(text: str) -> set[str]:
    """Return the decimals and percentages of a text, as they are written."""
    return set(re.findall(r"[+−]?\d+\.\d+", text))


def test_the_book_is_short_enough_to_be_read():
    assert len(PAGES) <= 25
    assert sum(len(own_words(page)) for page in PAGES) <= 25_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_is_read_in_one_sitting(page):
    assert len(own_words(page)) <= 1_500


def test_the_readme_is_read_in_three_minutes():
    assert len(README.splitlines()) <= 100


def test_the_readme_begins_with_two_commands():
    first, second = re.findall(r"^pip install (.+?) +#", README, re.M)
    assert (first, second) == (". && atrl-bench run-table main_7b", "tox && tox")


@pytest.mark.parametrize(("finding", "page"), FINDINGS[:4], ids=[page for _, page in FINDINGS[:4]])
def test_each_number_that_the_readme_found_is_on_the_page_it_names(finding, page):
    assert numbers(finding)
    assert numbers(finding) <= numbers((ROOT / page).read_text(encoding="utf-8"))


def test_every_page_is_in_the_navigation():
    named = re.findall(
        r"[\w/]+\.md", yaml.safe_dump(yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)["nav"])
    )
    assert {page.relative_to(DOCS).as_posix() for page in PAGES} <= set(named)


def test_a_record_of_a_decision_has_at_most_120_words():
    for record in (DOCS / "decisions.md").read_text(encoding="utf-8").split("\n### ")[1:]:
        assert len(record.partition("\n")[2].split()) <= 120, record.partition("\n")[0]

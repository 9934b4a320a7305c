"""Every link in the documentation and in the example report leads to a file that is there, and to nothing outside."""

import html
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "example_report"
TEXTS = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
TEXTS += [page for folder in ("docs", "examples") for page in sorted((ROOT / folder).rglob("*.md"))]
TEXTS = [path for path in TEXTS if not path.is_relative_to(EXAMPLE)]


def broken(page: Path, addresses: list[str]) -> list[str]:
    """Return the addresses that lead to no file; those of the web are not looked at."""
    local = [unquote(address.partition("#")[0]) for address in addresses if not re.match(r"[a-z]+:", address)]
    return [address for address in local if address and not (page.parent / address).exists()]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(path):
    addresses = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    assert broken(path, addresses) == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_test_that_a_page_names_is_there(path):
    named = re.findall(r"`(tests/[\w/]+\.py)", path.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_links_of_the_example_report_lead_somewhere_and_stay_inside():
    pages = sorted(EXAMPLE.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        addresses = [html.unescape(found) for found in re.findall(r'(?:href|src)="([^"]*)"', page.read_text("utf-8"))]
        assert broken(page, addresses) == [], page
        assert not [address for address in addresses if re.match(r"(https?|file):|/", address)], page


def test_the_example_report_names_no_folder_of_the_machine_it_was_made_on():
    for path in EXAMPLE.rglob("*"):
        if path.suffix in {".html", ".json", ".csv", ".md", ".tex", ".svg"}:
            assert not re.search(r"(?<![\w.])/(tmp|home|root|work|mnt|Users)/", path.read_text("utf-8")), path


def test_the_example_report_is_a_small_one():
    assert sum(path.stat().st_size for path in EXAMPLE.rglob("*") if path.is_file()) < 2_000_000

"""The figure of docs/performance.md shows the numbers that the page has."""

import importlib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_figure_shows_what_the_page_and_the_gpu_s_record_say(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("performance_figure")
    drawn = module.figure()
    assert drawn.description.startswith("whole rows: 60 / 490 / 1684 ms; sketch, with the search: 25.5 / 174 / 565 ms")
    assert [round(sum(parts.values()), 6) for parts in module.shares().values()] == [100] * 4
    kept = (ROOT / "docs" / "images" / "performance.svg").read_text(encoding="utf-8")
    assert f">{escape(drawn.description)}</desc>" in kept, "python benchmarks/performance_figure.py"

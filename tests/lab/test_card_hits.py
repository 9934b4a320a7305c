"""The hit rate of the credit card as pages print it, from the figures that were kept."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmark():
    return runpy.run_path(str(ROOT / "benchmarks" / "card_hits.py"))


@pytest.fixture(scope="module")
def bases(benchmark):
    return benchmark["read_csv"](ROOT / "docs" / "worlds_report" / "card_hits.csv")


def test_pages_print_what_the_kept_figures_come_to(benchmark, bases):
    card, readme, worlds = (
        (ROOT / name).read_text() for name in ("docs/signal.md", "README.md", "docs/results/worlds.md")
    )
    said = {n: benchmark["sentences"]([base for base in bases if base.prompts == n]) for n in (96, 256)}
    assert said[96][:2] == ["2 of 8 cards commit themselves.", "Right: 2 of 2, 16 to 100 % (exact, 95 %)."]
    assert said[256][:2] == ["6 of 8 cards commit themselves.", "Right: 5 of 6, 36 to 100 % (exact, 95 %)."]
    for printed in ("2 of 8 commit", "2 of 2 are right (16 to 100 %)", "6 of 8 do, and 5 of 6 are right (36 to 100 %)"):
        assert printed in " ".join(card.split())
    for lines in said.values():
        assert lines[4].removeprefix("Factor and difference rank alike: ").removesuffix(".") in card
        for line in lines[2:4]:  # the trainings are the same
            number = line.split(": ")[1].removesuffix(" points.").replace("-", "−")
            assert number in readme
            assert number in worlds
    (miss,) = [base for base in bases if base.is_hit is False]
    assert (miss.card, f"{miss.difference:.1f}") == ("no credit", "1.1")


def test_a_hit_is_what_the_card_says(bases):
    base = replace(bases[0], uniform=(50.0, 60.0), connectivity=(51.0, 61.0))
    hits = [replace(base, card=kind).is_hit for kind in ("this rule", "no credit", "cannot tell")]
    assert hits == [True, False, None]


def test_bases_are_drawn_by_their_seed_alone(benchmark, bases):
    for seed, kept in zip(benchmark["BASE_SEEDS"], bases, strict=False):
        world, name = benchmark["drawn"](seed)
        base = world.bases[name]
        assert (kept.base, kept.mistakes, kept.start_from) == (name, world.mistakes, base.start_from)
        assert kept.wrong_digits == "".join(map(str, base.wrong_digits))
        assert kept.wrong_fraction == base.wrong_fraction

"""What the trainings of the worlds' experiment come to: made-up ones, and those that have run."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from atrl_bench.results.statistics.means import seed_spread

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def experiment(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("worlds_experiment")


def trainings(experiment, rule, areas, *, late=0.6, last=0.6, base=100):
    """One training a rate and seed; `areas` are those of the rates, to which seed s adds s points."""
    return [
        experiment.Training(base, rule, rate, seed, late + area / 100, 0.3, last, area + seed / 100)
        for rate, area in areas.items()
        for seed in (0, 1)
    ]


def test_all_of_it_has_as_many_trainings_as_its_page_says(experiment):
    assert experiment.NUM_TRAININGS == 4_032
    assert "All of it is 4,032 trainings" in experiment.__doc__


def test_a_rule_is_compared_at_its_own_best_rate_seed_by_seed(experiment):
    uniform = trainings(experiment, "uniform", {1.0: 0.50, 2.0: 0.40})
    rule = trainings(experiment, "raw_attention", {1.0: 0.45, 2.0: 0.56})
    lines = list(map(str, experiment.differences([*uniform, *rule])))
    # 56 - 50 points at either seed, so nothing varies.
    [told] = [line for line in lines if not line.endswith(": not run.")]
    assert told.startswith("perception, raw_attention - uniform: +6.0 ± 0.0 points, 1 of 3 bases, 2 seeds;")
    assert len(lines) == 12


def test_the_front_page_has_a_speed_in_bold_only_where_its_hypothesis_is_shown(experiment):
    def world(base, oracle, gains):
        uniform = trainings(experiment, "uniform", {1.0: 0.50}, base=base)
        rule = trainings(experiment, "raw_attention", {1.0: 0.50}, base=base)
        knows = trainings(experiment, oracle, {1.0: 0.50}, base=base, last=0.62)
        return [*uniform, *knows, *(replace(one, area=one.area + gain) for one, gain in zip(rule, gains, strict=True))]

    # Two seeds, one degree of freedom: -5.0 and -5.1 points are told from 0 (p = 0.006), 1 and 9 points are not.
    reading = world(100, "oracle_perception@0", (0.01, 0.09))
    said = experiment.front_page([*reading, *world(101, "oracle_reasoning@0", (-0.05, -0.051))])
    assert said.splitlines()[2:] == [
        "| connectivity | +5.0 ± 50.8 | +0.0 ± 0.0 | **−5.0 ± 0.6** | +0.0 ± 0.0 |",
        "| an oracle, which knows where credit belongs | +0.0 ± 0.0 | +2.0 ± 0.0 | +0.0 ± 0.0 | +2.0 ± 0.0 |",
    ]


def test_the_front_page_and_the_page_of_the_worlds_say_what_the_kept_trainings_come_to(experiment):
    kept = experiment.read_csv(ROOT / "docs" / "worlds_report" / "experiment.csv")
    said = experiment.front_page(kept)
    assert "**" not in said  # both pages say that no difference in speed is shown
    for page in ("README.md", "docs/results/worlds.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert said in text
        assert "no difference in speed is shown" in text
    at_speed, at_the_end = (
        [f"{one.points} points".replace("-", "−") for one in experiment.differences(kept, of) if one.rule == "atrl"]
        for of in ("area", "last")
    )
    worlds = (ROOT / "docs" / "results" / "worlds.md").read_text(encoding="utf-8")
    assert "by {} in reading and {} in reasoning".format(*at_speed) in worlds
    assert "at the end by {} and {}".format(*at_the_end) in worlds


def test_where_credit_matters_is_what_its_table_measured():
    measured = (ROOT / "docs" / "worlds_report" / "credit_placement.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "results" / "mini.md").read_text(encoding="utf-8")
    page = page.partition("## Does it matter where")[2].partition("On [six other bases]")[0]
    assert len(said := re.findall(r"[+−]?\d+\.\d+", page)) >= 12
    assert [number for number in said if number not in measured] == []


def test_the_page_of_the_mini_world_says_where_the_controls_end(experiment):
    shards = [ROOT / "docs" / "worlds_report" / name for name in ("controls.csv", "experiment.csv")]
    at_one_rate = [one for path in shards for one in experiment.read_csv(path) if one.rate == 1 and one.seed < 3]
    page = (ROOT / "docs" / "results" / "mini.md").read_text(encoding="utf-8")

    def ends(rule: str) -> list[float]:
        """In percent, of each seed, over the six bases."""
        by_seed = [[one.last for one in at_one_rate if (one.rule, one.seed) == (rule, seed)] for seed in range(3)]
        assert [len(of_seed) for of_seed in by_seed] == [6, 6, 6]
        return [100 * sum(of_seed) / 6 for of_seed in by_seed]

    names = {"random": "at random", "bottom": "those that look least", "entropy": "those of lowest entropy"}
    for rule, name in {**names, "latest": "the last"}.items():
        assert f"{name} at {sum(ends(f'{rule}_truncation')) / 3:.0f} %" in page
    assert f"all tokens alike end at {sum(ends('uniform')) / 3:.0f} %" in page
    pairs = zip(ends("bottom_truncation"), ends("random_truncation"), strict=True)
    change = seed_spread([least - random for least, random in pairs]).estimate()
    assert f"{change.mean:.0f} ± {change.half_width():.0f} points from those at random".replace("-", "−") in page


def test_an_oracle_is_judged_at_the_share_that_the_other_seeds_pick(experiment):
    hard = trainings(experiment, "oracle_perception@0", {1.0: 0.7}, late=0.3)
    soft = trainings(experiment, "oracle_perception@0.5", {1.0: 0.6}, late=0.5)
    assert experiment.areas_of([*hard, *soft], 100, "oracle") == {0: 0.6, 1: 0.61}


def test_a_rate_at_which_a_training_broke_is_out_and_a_row_without_any_is_not_compared(experiment):
    fast = trainings(experiment, "uniform", {2.0: 0.8}, last=0.1)
    slow = trainings(experiment, "uniform", {1.0: 0.5})
    assert experiment.areas_of([*fast, *slow], 100, "uniform") == {0: 0.5, 1: 0.51}
    assert experiment.areas_of(fast, 100, "uniform") == {}


def test_a_seed_that_lacks_a_rate_waits_for_it(experiment):
    *most, _ = trainings(experiment, "uniform", {1.0: 0.5, 2.0: 0.4})  # of the last, seed 1 at the second rate
    assert experiment.areas_of(most, 100, "uniform") == {0: 0.5}


def test_a_training_that_the_figures_have_is_not_done_again(experiment, tmp_path, monkeypatch):
    kept = trainings(experiment, "uniform", {1.0: 0.5})
    experiment.write_csv(kept, tmp_path / "shard.csv")
    asked = []
    monkeypatch.setattr(experiment, "trained", lambda *cell: asked.append(cell[:4]) or kept[0])
    command = f"- --out {tmp_path} --bases 100 --seeds 0,1 --rules uniform --rates 0.5,1,2 --csv {tmp_path}/shard.csv"
    monkeypatch.setattr("sys.argv", command.split())
    experiment.main()
    assert asked == [
        (100, "uniform", 0.5, 0),
        (100, "uniform", 2.0, 0),
        (100, "uniform", 0.5, 1),
        (100, "uniform", 2.0, 1),
    ]


def test_shards_are_read_as_they_were_written(experiment, tmp_path):
    kept = trainings(experiment, "atrl", {0.25: 0.125})
    experiment.write_csv(kept, tmp_path / "shard.csv")
    assert experiment.read_csv(tmp_path / "shard.csv") == kept

"""A signal is measured once: the store has it under a key of contents, and `status` knows of it."""

import json
import math
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from atrl_bench.cli import app
from atrl_bench.cli.printing import text_of
from atrl_bench.digests import spec_key
from atrl_bench.experiments.progress import read_status
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal import measure as measuring
from atrl_bench.lab.signal.efficiency import Efficiency
from atrl_bench.lab.signal.record import RuleSignal, Signal, StepGain
from atrl_bench.lab.signal.request import SignalRequest
from atrl_bench.lab.signal.stored import read_signal, signal_spec, stored_signal
from atrl_bench.plugins import plugins
from atrl_bench.profiles import load_profile
from atrl_bench.results.statistics.means import Estimate

REQUEST = SignalRequest("mini", "grpo", "virl39k", ("uniform", "random"), 9, 0, 0)
GAIN = Estimate(1.5, 0.5, 3.0, 4, 4)
RULES = [
    RuleSignal("uniform", Efficiency(1, 1, 1), Efficiency(1, 1, 1), 0.15, math.nan, 0.5, StepGain(3.0, GAIN, GAIN)),
    RuleSignal("random", Efficiency(0.8, 0.7, math.inf), Efficiency(0.9, 0.8, 1.1), 0.2, 0.1, math.nan, None),
]


@pytest.fixture
def run_dir(tmp_path):
    return RunDir.at(tmp_path, load_profile("smoke"))


def signal():
    return Signal("mini", "virl39k", 9, 72, 1000, 0.3, RULES)


def test_what_was_measured_is_read_back_and_never_measured_again(run_dir):
    calls = []

    def measured(tell):
        calls.append(tell(4, 9))
        return signal()

    told = []
    first = stored_signal(REQUEST, run_dir, measured, on_prompt=lambda *beat: told.append(beat))
    again = stored_signal(REQUEST, run_dir, measured, on_prompt=lambda *beat: told.append(beat))
    assert len(calls) == 1
    assert told == [(4, 9)]
    assert again.rules[0].step == StepGain(3.0, GAIN, GAIN)
    assert math.isnan(again.rules[0].reliability)
    assert repr(again) == repr(first)
    assert "0.80 [0.70, ∞]" in text_of(again)  # the end is stored as null
    item = read_status(run_dir).items[0]
    assert (item.name, item.state) == ("signal of mini on virl39k, seed 0", "done")


@pytest.mark.parametrize(
    "change",
    [
        {"rules": ("uniform", "atrl")},
        {"prompts": 10},
        {"seed": 1},
        {"recipe": "dapo"},
        {"held_out": 2},
        {"data": "geometry3k"},
    ],
)
def test_another_rule_recipe_seed_or_number_of_problems_is_another_signal(run_dir, change):
    assert spec_key(signal_spec(replace(REQUEST, **change), run_dir)) != spec_key(signal_spec(REQUEST, run_dir))


def test_a_rule_of_another_package_is_another_rule_once_its_code_is(run_dir, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(plugins("rules"), "mine", EntryPoint("mine", "rule_of_mine:rule", "atrl_bench.rules"))
    asked, specs = replace(REQUEST, rules=("uniform", "mine:num_neighbours=2")), []
    for credit in ("ones", "twos"):
        (tmp_path / "rule_of_mine.py").write_text(f"rule = {credit!r}")
        specs.append(signal_spec(asked, run_dir))
    assert {name for name in specs[0] if specs[0][name] != specs[1][name]} == {"credit_code"}
    assert "credit_code" not in signal_spec(REQUEST, run_dir)


def test_a_signal_that_failed_says_why_and_is_measured_by_the_next_command(run_dir):
    def fail(_):
        raise RuntimeError("no memory left")

    with pytest.raises(RuntimeError):
        stored_signal(REQUEST, run_dir, fail, on_prompt=lambda *_: None)
    assert read_status(run_dir).items[0].reason == "RuntimeError: no memory left"
    stored_signal(REQUEST, run_dir, lambda _: signal(), on_prompt=lambda *_: None)
    with run_dir.open_store(read_only=True) as store:
        assert read_signal(store, spec_key(signal_spec(REQUEST, run_dir))).responses == 72
        assert store.runs() == []  # it is no training


def test_the_command_reads_what_is_stored(run_dir, monkeypatch):
    stored_signal(REQUEST, run_dir, lambda _: signal(), on_prompt=lambda *_: None)
    monkeypatch.setattr(measuring, "_measure", None)
    options = ["--profile", "smoke", "--out", str(run_dir.root), "--rules", "random", "--prompts", "9"]
    result = CliRunner().invoke(app(), ["signal", *options, "--held-out", "0", "--json"])
    assert result.exit_code == 0, result.output
    assert [one["rule"] for one in json.loads(result.stdout)["rules"]] == ["uniform", "random"]

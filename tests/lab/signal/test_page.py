"""Tables of signals: built from stored measurements alone, in every form, and open where a base is not measured."""

import csv
import io
import json
import math
import subprocess
from dataclasses import asdict

import needs
import pytest
from typer.testing import CliRunner

from atrl_bench.cli import app
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.efficiency import Efficiency
from atrl_bench.lab.signal.page import price_of_signals, render_signals, signal_table
from atrl_bench.lab.signal.record import RuleSignal, Signal, StepGain
from atrl_bench.lab.signal.stored import signal_columns, signal_spec
from atrl_bench.lab.signal.tables import load_signal_table
from atrl_bench.profiles import load_profile
from atrl_bench.report.charts import draw
from atrl_bench.results.statistics.means import Estimate

GAIN = Estimate(1.25, 0.5, 3.0, 4, 4)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A folder in which the base of `strategy` is measured: AT-RL is worth less than uniform credit."""
    run_dir = RunDir.at(tmp_path_factory.mktemp("signals"), load_profile("smoke"))
    column = signal_columns(load_signal_table("signal"), run_dir)[0]
    known = {"atrl": Efficiency(0.5, 0.4, 0.6), "oracle_perception": Efficiency(4.0, 2.0, math.inf)}
    rules = [
        RuleSignal(
            rule,
            (efficiency := known.get(rule, Efficiency(1.0, 0.8, 1.2))),
            efficiency,
            *(0.2, 0.7, 0.9, StepGain(3.0, GAIN, GAIN), (0.6, 0.8), (0.85, 0.95)),
        )
        for rule in column.request.rules
    ]
    with run_dir.open_store() as store:
        key = store.add_run(signal_spec(column.request, run_dir))
        record = Signal("mini", "virl39k", 9, 72, 1000, 0.3, rules)
        store.finish_run(key, summary=asdict(record), seconds=1.0)
    return run_dir


def cells_of(page, grid, column):
    return {name: cells[page.grids[grid].columns.index(column)] for name, cells in page.grids[grid].rows}


def test_an_efficiency_whose_interval_leaves_one_out_is_marked_and_told_first(run_dir):
    page = signal_table(load_signal_table("signal"), run_dir)
    cells = cells_of(page, 0, "strategy: mini")
    assert (cells["atrl"].text, cells["atrl"].verdict) == ("0.50 [0.40, 0.60]", "down")
    assert (cells["oracle_perception"].text, cells["oracle_perception"].verdict) == ("4.00 [2.00, ∞]", "up")
    assert cells["random"].verdict == ""
    assert "strategy: mini: above 1 oracle_perception 4.00; below 1 atrl 0.50." in page.says


def test_a_gain_stands_with_its_interval_and_its_power(run_dir):
    cell = cells_of(signal_table(load_signal_table("signal"), run_dir), 2, "strategy: mini")["atrl"]
    # Three degrees: 3.182 x 0.5 = 1.6; noncentrality 4.256 x sqrt(3 / 2.366, the median of chi squared) x 0.5 = 2.4.
    assert (cell.text, cell.seen, cell.verdict) == ("+1.2 ±1.6", "(2.4)", "")


def test_a_rule_whose_tokens_a_world_does_not_know_and_a_base_that_is_not_measured_say_so(run_dir):
    page = signal_table(load_signal_table("signal"), run_dir)
    assert "does not say which tokens" in cells_of(page, 0, "strategy: mini")["oracle_reasoning"].reason
    assert cells_of(page, 0, "perception: mini-perception")["atrl"].text == "not run"
    assert any(note.startswith("perception: mini-perception: ") for note in page.notes)


def test_the_reliability_is_read_from_the_same_measurements(run_dir):
    page = signal_table(load_signal_table("reliability"), run_dir)
    assert cells_of(page, 0, "strategy: mini")["atrl"].text == "0.70 [0.60, 0.80]"
    assert cells_of(page, 1, "strategy: mini")["atrl"].verdict == "up"
    assert price_of_signals("reliability", run_dir).costs[0].state == "done"


def test_every_rule_with_a_number_is_drawn_and_said_to_those_who_do_not_see_it(run_dir):
    drawn = draw(signal_table(load_signal_table("signal"), run_dir))
    assert set(drawn) == {"grid 1", "grid 3"}
    assert "strategy: mini: " in drawn["grid 1"].description
    assert "atrl 0.50 [0.40, 0.60]" in drawn["grid 1"].description
    assert "oracle_perception" in drawn["grid 1"].svg


def test_every_form_has_the_numbers_and_the_same_store_gives_the_same_bytes(run_dir):
    files = {path.name: path.read_text() for path in render_signals("signal", run_dir).files}
    records = list(csv.DictReader(io.StringIO(files["signal.csv"])))
    efficiency = next(one for one in records if one["row"] == "atrl" and one["value"])
    assert (efficiency["value"], efficiency["low"], efficiency["high"]) == ("0.5", "0.4", "0.6")
    for name in ("signal.html", "signal.md", "signal_1.tex", "signal_document.tex", "signal.svg"):
        assert "0.50 [0.40, 0.60]" in files[name].replace("\\[", "[").replace("\\]", "]"), name
    assert json.loads(files["signal.json"])["id"] == "signal"
    assert files == {path.name: path.read_text() for path in render_signals("signal", run_dir).files}
    assert "signal.html" in files["index.html"]


@needs.pdflatex
@pytest.mark.parametrize("table", ["signal", "reliability"])
def test_the_latex_compiles(run_dir, tmp_path, table):
    render_signals(table, run_dir)
    source = run_dir.reports / "latex" / f"{table}_document.tex"
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", str(source)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout[-1500:]
    assert "Overfull" not in result.stdout


def test_the_commands_know_the_tables_of_signals(run_dir):
    options = ["--profile", "smoke", "--out", str(run_dir.root)]
    run = CliRunner().invoke(app(), ["report", "signal", *options])
    assert run.exit_code == 0, run.output
    assert "0.50 [0.40, 0.60]*" in run.output
    refused = CliRunner().invoke(app(), ["run-table", "signal", *options, "--rows", "atrl"])
    assert refused.exit_code == 2
    assert "atrl-bench signal" in refused.output + str(refused.exception)
    assert "What a credit rule is worth" in CliRunner().invoke(app(), ["list", "tables"]).output

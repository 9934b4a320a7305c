"""`run-table all`: one table after the other, whatever becomes of one of them."""

import dataclasses

import pytest

from atrl_bench.cli import table_runs
from atrl_bench.cli.printing import text_of
from atrl_bench.cli.table_runs import report_all, run_all
from atrl_bench.engines.devices import ONE_PROCESS
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.definition import list_tables
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.table_run import TableRun

SMOKE = RunDir.at(None, load_profile("smoke"))


@pytest.fixture
def faked(monkeypatch, table, tmp_path):
    """Return a function that replaces running: these tables fail, the others end as the synthetic one."""

    def fake(failing: dict[str, Exception], failures: dict[str, str]) -> list[str]:
        asked = []

        def run_table(plan, machine, **_):
            asked.append(plan)
            if plan in failing:
                raise failing[plan]
            renamed = dataclasses.replace(table, id=plan)
            return TableRun(renamed, (tmp_path / f"{plan}.html", tmp_path / f"{plan}.tex"), 1, failures)

        monkeypatch.setattr(table_runs, "plan_table", lambda name, run_dir, **_: name)
        monkeypatch.setattr(table_runs, "run_table", run_table)
        return asked

    return fake


def test_every_table_is_run_the_main_one_first(faked, capsys):
    asked = faked({}, {})
    result = run_all(SMOKE, ONE_PROCESS)
    assert asked == ["main_7b", *(name for name in list_tables("at_rl") if name != "main_7b")]
    assert capsys.readouterr().out.startswith(f"Table 1 of {len(list_tables('at_rl'))}: main_7b\n")
    assert not result.has_failures
    assert [table.table for table in result.tables] == asked


def test_a_table_that_fails_does_not_stop_the_others_and_is_named(faked):
    faked({"main_7b": MissingDataError("No GeoQA here.", next_step="fetch it"), "video": ValueError("odd")}, {})
    result = run_all(SMOKE, ONE_PROCESS)
    assert {table.table for table in result.tables} == set(list_tables("at_rl"))
    errors = [table.failures for table in result.tables if table.report is None]
    assert errors == [{"main_7b": "No GeoQA here."}, {"video": "ValueError: odd"}]
    text = text_of(result)
    assert "Failed: main_7b: No GeoQA here." in text
    assert "The same command again does what is missing." in text


def test_the_summary_counts_the_cells_of_each_table_and_says_where_the_pages_are(faked, tmp_path):
    faked({}, {"grpo seed 0": "out of memory"})
    result = run_all(SMOKE, ONE_PROCESS, tables=["grouping"])
    # Thirteen rows of five columns, of which two rows of the synthetic table cannot be measured.
    assert result.document()[0]["cells"] == {"measured": 55, "not measured": 10}
    assert result.document()[0]["report"] == str(tmp_path / "grouping.html")
    lines = text_of(result).splitlines()
    assert lines[0].startswith("grouping ")
    assert lines[0].endswith("55 measured, 10 not measured")
    assert "Failed: grouping: grpo seed 0: out of memory" in lines
    assert " ".join(map(str.strip, lines)).endswith(f"Reports: {tmp_path}")
    assert result.has_failures


def test_a_report_of_everything_keeps_the_seeds_of_each_table(make_report, tmp_path, monkeypatch):
    """The table there was made with seeds 0 and 1; those that were never rendered have their own."""
    run_dir = make_report(tmp_path, seeds=2, rows=("zero_shot",), columns=("geoqa_test",))
    asked = {}

    def plan_table(name, run_dir, *, seeds):
        asked[name] = seeds
        raise MissingDataError("Enough is known.")

    monkeypatch.setattr(table_runs, "list_tables", lambda: ["main_7b"])
    monkeypatch.setattr(table_runs, "plan_table", plan_table)
    with pytest.raises(MissingDataError, match="Enough"):
        report_all(run_dir)
    monkeypatch.setattr(table_runs, "list_tables", lambda: ["video"])
    with pytest.raises(MissingDataError, match="Enough"):
        report_all(run_dir)
    assert asked == {"main_7b": (0, 1), "video": None}

"""Explain tells everything that a number was made of, from the store alone."""

import json
from dataclasses import replace

import pytest
from stored import fill_table

from atrl_bench.cli.printing import text_of
from atrl_bench.errors import UnknownNameError
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.templates import TEMPLATES, choose_template
from atrl_bench.profiles import load_profile
from atrl_bench.report.explain import explain
from atrl_bench.report.table_run import render
from atrl_bench.results.store import Store

pytestmark = pytest.mark.full

SMOKE = load_profile("smoke")
COLUMNS = ["mathvista_testmini", "geoqa_test"]
RIGHT = {"zero_shot": 4, "grpo": 9, "grpo_atrl": 10}


@pytest.fixture(scope="module")
def plan(tmp_path_factory, mini_world):
    """A plan of three rows and two columns whose store is filled: twelve problems, so many of them right."""
    made = plan_table(
        "main_7b", RunDir.at(tmp_path_factory.mktemp("run"), SMOKE, mini_world), rows=list(RIGHT), columns=COLUMNS
    )
    fill_table(
        made, lambda job: ["+" * (right := RIGHT[job.row.id]) + "-" * (11 - right) + "?"] * 2, summary={"last kl": 0.02}
    )
    with made.run_dir.open_store() as store:
        for cell in store.cells():
            store.add_skipped(cell.key, "bad", "the image does not decode")
    return made


def test_the_number_its_interval_its_counts_and_its_test_are_told(plan):
    record = explain(plan, "grpo_atrl", "mathvista_testmini").document()
    cell = record["cell"]
    assert (cell["estimate"]["mean"], cell["state"]) == (pytest.approx(10 / 12), "measured")
    assert cell["counts"]["correct"] == 20
    assert cell["counts"]["unparseable"] == 2
    assert cell["skipped"] == [["bad", "the image does not decode"]]
    assert "clustered by problem group" in record["how"]
    # Six problems won and none lost: exact McNemar, 2 / 2^6.
    assert cell["difference"]["estimate"]["mean"] == pytest.approx(0.5)
    assert cell["difference"]["p_value"] == pytest.approx(2 / 64)
    assert record["against"] == "zero_shot"
    # Six pairs of rows and columns with averages are corrected together: no smaller than the plain p-value.
    assert cell["q_value"] >= cell["difference"]["p_value"]


def test_training_and_evaluation_are_told_with_their_digests_and_seeds(plan):
    record = explain(plan, "grpo_atrl", "mathvista_testmini").document()
    (run,) = record["training"]
    assert (run["seed"], run["digest"], run["seconds"]) == (0, plan.jobs[2].run_key, 75.0)
    assert run["recipe"]["credit"]["rule"] == "atrl"
    assert run["base_digest"]
    assert run["data_digest"]
    (cell,) = record["evaluation"]["mathvista_testmini"]
    assert cell["decoding"]["temperature"] == 0.1
    assert (cell["answers"], cell["graded"]) == (24, 24)
    assert record["files"][-1].endswith("recipe.yaml")


def test_the_three_templates_are_shown_with_how_often_each_was_drawn(plan):
    prompts = explain(plan, "zero_shot", "mathvista_testmini").document()["prompts"]
    assert [prompt["template"] for prompt in prompts] == [text.replace("{{}}", "{}") for text in TEMPLATES]
    drawn = [choose_template(0, f"p{i}") for i in range(12)]
    assert [prompt["problems"] for prompt in prompts] == [drawn.count(number) for number in range(3)]


def test_the_published_number_stands_beside_with_the_reason_why_they_do_not_compare(plan):
    published = explain(plan, "grpo_atrl", "mathvista_testmini").document()["published"]
    assert (published["score"], published["difference"]) == ("66.70", "5.60")
    assert published["comparable"] is False
    assert "not comparable" in published["why"]
    assert any("multiples of 1/1000" in note for note in published["notes"])


def test_an_average_is_explained_by_its_columns(plan):
    record = explain(plan, "grpo", "average").document()
    assert list(record["evaluation"]) == sorted(COLUMNS)
    assert record["cell"]["estimate"]["mean"] == pytest.approx(0.75)
    assert record["how"].startswith("unweighted mean of geoqa_test, mathvista_testmini")


def test_the_number_of_a_column_without_a_metric_is_called_as_its_benchmark_calls_it(plan):
    columns = tuple(one.model_copy(update={"metric": "headline@1"}) for one in plan.definition.columns)
    without = replace(plan, definition=plan.definition.model_copy(update={"columns": columns}))
    assert "33.33 % (acc@1)" in text_of(explain(without, "zero_shot", "mathvista_testmini"))


def test_a_row_that_was_not_run_is_explained_by_its_settings_and_the_command_that_fills_it(mini_world, tmp_path):
    planned = plan_table("main_7b", RunDir.at(tmp_path, SMOKE, mini_world))
    record = explain(planned, "sapo_atrl", "geoqa_test").document()
    assert record["cell"]["state"] == "missing"
    assert record["row_settings"]["recipe"] == "sapo"
    command = f"atrl-bench run-table main_7b --rows sapo_atrl --columns geoqa_test {planned.run_dir.options}"
    assert record["commands"] == [command]
    seeds = plan_table("main_7b", RunDir.at(tmp_path, SMOKE, mini_world), seeds=[1, 2])
    command = command.replace(" --profile", " --seeds 1,2 --profile")
    explanation = explain(seeds, "sapo_atrl", "geoqa_test")
    assert explanation.commands == [command]
    assert text_of(explanation)


def test_the_text_is_eighty_columns_wide_and_its_commands_can_be_pasted(plan):
    record = explain(plan, "grpo_atrl", "mathvista_testmini")
    lines = text_of(record).splitlines()
    # A path is not broken: nobody could open it.
    assert max(len(line) for line in lines if "/" not in line) <= 80
    pasted = " ".join(line.strip().removesuffix("\\") for line in lines[lines.index("Again") + 1 :])
    for command in record.commands:
        assert command.split() == pasted.split()[: len(command.split())]
        pasted = " ".join(pasted.split()[len(command.split()) :])
    json.dumps(record.document())


def test_hostile_text_in_the_store_cannot_move_the_cursor(mini_world, tmp_path):
    planned = plan_table("main_7b", RunDir.at(tmp_path, SMOKE, mini_world), rows=["zero_shot", "grpo"])
    with planned.run_dir.open_store() as store:
        store.fail_run(store.add_run(planned.jobs[1].run_spec), "\x1b[2Jgone")
    explanation = explain(planned, "grpo", "geoqa_test")
    assert explanation.document()["cell"]["reason"] == "\x1b[2Jgone"
    text = text_of(explanation)
    assert "\x1b" not in text
    assert "<U+001B>[2Jgone" in text


def test_an_unknown_row_or_column_names_the_nearest(plan):
    with pytest.raises(UnknownNameError, match="grpo_atrl"):
        explain(plan, "grpo_atlr", "geoqa_test")
    with pytest.raises(UnknownNameError, match="geoqa_test"):
        explain(plan, "grpo", "geoqa")
    with pytest.raises(UnknownNameError, match="Did you mean average"):
        explain(plan, "grpo", "averge")


def test_a_report_of_what_has_not_changed_writes_no_file(plan):
    written = render(plan)
    files = {path: path.stat().st_ino for path in plan.run_dir.reports.rglob("*") if path.is_file()}
    assert render(plan).files == written.files
    assert {path: path.stat().st_ino for path in files} == files
    changed = plan.run_dir.reports / "main_7b.md"
    changed.write_text("another hand was here")
    assert render(plan).files == written.files  # all forms of the table anew, and the front page that links to them
    assert "another hand" not in changed.read_text()
    assert {path.stat().st_ino == inode for path, inode in files.items() if path.parent.name == "main_7b"} == {True}


def test_a_rendered_table_is_explained_without_reading_a_verdict_until_one_changes(plan, monkeypatch):
    """The last test of this file: it changes one of ten right answers of GRPO + AT-RL on GeoQA to a wrong one."""
    computed = explain(plan, "grpo_atrl", "geoqa_test")
    render(plan)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "scores", lambda *_: pytest.fail("verdicts were read"))
        read = explain(plan, "grpo_atrl", "geoqa_test")
    assert (read.table, read.cell, text_of(read)) == (computed.table, computed.cell, text_of(computed))
    with plan.run_dir.open_store() as store:
        key = computed.evaluation["geoqa_test"][0].key
        right = next(s for s in store.samples(key) if s.score == 1.0 and s.response.repeat == 0)
        store.add_verdicts(key, {(right.problem.problem_id, 0): right.verdict._replace(state="wrong")})
    assert explain(plan, "grpo_atrl", "geoqa_test").cell.counts.correct == computed.cell.counts.correct - 1

"""The judge of a run folder: chosen once, then part of the key of every cell that its tables look for."""

import json
from dataclasses import replace

import pytest

from atrl_bench.cli.printing import text_of
from atrl_bench.cli.table_runs import run_table
from atrl_bench.engines.devices import Machine
from atrl_bench.errors import EndpointError, InvalidFileError
from atrl_bench.experiments import judge_choice
from atrl_bench.experiments.evaluate_command import EvaluationOptions, evaluate_model
from atrl_bench.experiments.plan import evaluation_keys, plan_table
from atrl_bench.experiments.price import price_of
from atrl_bench.experiments.run_dir import SETTINGS_FILE, RunDir
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.profiles import load_profile
from atrl_bench.report.figures.sources import Source, chosen

SMOKE = load_profile("smoke")


def generous(messages):
    """What a judge says that finds everything right."""
    return "Correct"


def run_dir(folder, world=None):
    return RunDir.at(folder, SMOKE, world)


def said(folder):
    text = text_of(judge_choice.folder_judge(run_dir(folder)))
    assert max(len(line) for line in text.splitlines() if str(folder) not in line) <= 80
    return " ".join(text.split())


def keys(folder, world):
    planned = plan_table("main_7b", run_dir(folder, world), rows=["zero_shot"])
    with planned.run_dir.open_store() as store:
        return set(evaluation_keys(planned.jobs[0], planned, store).values())


def test_a_folder_has_no_judge_until_one_is_chosen_and_none_after_it_is_dropped(serve, fit, tmp_path):
    assert run_dir(tmp_path).judge is None
    config = serve(answer=fit(generous)).config(scope="open")
    record = judge_choice.choose_judge(run_dir(tmp_path), config).document()
    assert (record["calibration"]["right"], record["calibration"]["objections"]) == ({"passed": 15, "total": 15}, [])
    assert run_dir(tmp_path).judge == config
    text = said(tmp_path)
    assert f"qwen at {config.base_url}" in text
    assert "every answer but option letters" in text
    assert "known right 15 of 15, known wrong 15 of 15, attempts to talk it round 18 of 18" in text
    judge_choice.drop_judge(run_dir(tmp_path))
    assert run_dir(tmp_path).judge is None
    text = said(tmp_path)
    assert text == f"No judge in {tmp_path}: the rule grader alone decides."


def test_a_judge_may_be_told_in_ones_own_words_what_is_equal_and_is_another_judge_then(serve, fit, tmp_path):
    server = serve(answer=fit(generous))
    strict = server.config(criteria="Units matter: 5 cm is not 5.")
    judge_choice.choose_judge(run_dir(tmp_path), strict)
    [words] = {request["messages"][0]["content"].partition("\n")[0] for request in server.requests}
    assert words == "Units matter: 5 cm is not 5."
    assert all("with the mark" in request["messages"][0]["content"] for request in server.requests)
    assert strict.identity == {**server.config().identity, "criteria": "Units matter: 5 cm is not 5."}
    assert "in the user's own words what is equal: Units matter: 5 cm is not 5." in said(tmp_path)
    assert "known right 15 of 15" in said(tmp_path)
    assert run_dir(tmp_path).judge == strict


def test_the_key_of_a_judge_is_nowhere_in_the_folder(serve, fit, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    judge_choice.choose_judge(run_dir(tmp_path), serve(answer=fit(generous)).config(api_key_variable="MY_KEY"))
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert contents
    assert not any(b"sk-very-secret" in content for content in contents)


def test_a_judge_that_is_not_fit_or_does_not_answer_is_not_chosen(serve, tmp_path):
    with pytest.raises(EndpointError, match="fails on answers whose verdict is known"):
        judge_choice.choose_judge(run_dir(tmp_path), serve("Correct").config())
    assert run_dir(tmp_path).judge is None
    with pytest.raises(EndpointError):
        judge_choice.choose_judge(
            run_dir(tmp_path), JudgeConfig("http://127.0.0.1:9/v1", "m", num_attempts=2, first_wait=0.01)
        )
    assert run_dir(tmp_path).judge is None


def test_a_judge_that_is_chosen_is_asked_at_its_address_though_one_of_its_name_answered_before(serve, fit, tmp_path):
    known = serve(answer=fit(generous)).config()
    judge_choice.choose_judge(run_dir(tmp_path), known)
    nobody = replace(known, base_url="http://127.0.0.1:9/v1", num_attempts=2, first_wait=0.01)
    with pytest.raises(EndpointError):
        judge_choice.choose_judge(run_dir(tmp_path), nobody)
    with pytest.raises(EndpointError, match="fails on answers whose verdict is known"):
        judge_choice.choose_judge(run_dir(tmp_path), serve("Correct").config())
    assert run_dir(tmp_path).judge == known
    other = serve(answer=fit(generous))
    judge_choice.choose_judge(run_dir(tmp_path), other.config())
    assert len(other.requests) == 48  # 15 right, 15 wrong, 18 that talk
    assert run_dir(tmp_path).judge == other.config()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("not json", "Invalid JSON"),
        ("", "Invalid JSON"),
        ("[1, 2]", "object"),
        ('{"judge": {"base_url": "http://x/v1"}}', "model"),
        ('{"judge": {"base_url": "http://x/v1", "model": "m", "colour": "red"}}', "colour"),
        ('{"judge": {"base_url": "http://x/v1", "model": "m", "scope": "some"}}', "scope"),
        ('{"engine": {"name": "vllm"}}', "engine.version"),
        ('{"colour": "red"}', "colour"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, content, why):
    (tmp_path / SETTINGS_FILE).write_text(content)
    with pytest.raises(InvalidFileError, match=rf"run\.json(.|\n)*{why}(.|\n)*atrl-bench judge URL --out {tmp_path}"):
        run_dir(tmp_path)


def test_who_judges_changes_the_keys_of_a_tables_cells_and_where_it_is_served_does_not(tmp_path, mini_world):
    config = JudgeConfig("http://one/v1", "qwen")
    found = [keys(tmp_path, mini_world)]
    for judge in (config, replace(config, base_url="http://two/v1"), replace(config, model="other")):
        (tmp_path / SETTINGS_FILE).write_text(json.dumps({"judge": {"base_url": judge.base_url, "model": judge.model}}))
        found.append(keys(tmp_path, mini_world))
    (tmp_path / SETTINGS_FILE).unlink()
    assert keys(tmp_path, mini_world) == found[0]
    assert found[1] == found[2]
    assert not found[0] & found[1]
    assert not found[1] & found[3]


def test_a_plan_says_who_judges(tmp_path, mini_world):
    def line():
        planned = plan_table("main_7b", run_dir(tmp_path, mini_world), rows=["grpo"])
        return next(line for line in text_of(price_of(planned)).splitlines() if "judge: " in line)

    assert line() == "  judge: none: the rule grader alone decides"
    (tmp_path / SETTINGS_FILE).write_text('{"judge": {"base_url": "http://x/v1", "model": "qwen"}}')
    assert line() == "  judge: qwen at http://x/v1"


@pytest.fixture
def judged_endpoint(serve, fit, tmp_path):
    """A model behind an endpoint that says 7 to everything, in a folder whose judge finds that right."""
    model, judge = serve("It says \\boxed{7}."), serve(answer=fit(generous))

    def ask():
        return evaluate_model(
            "seven",
            ["geoqa_test"],
            EvaluationOptions(repeats=1, limit=8, endpoint=EndpointConfig(model.url, "seven")),
            run_dir(tmp_path),
            quiet=True,
        ).scores[0]

    return ask, model, judge


def test_an_evaluation_asks_the_folders_judge_and_takes_its_own_answers_over(judged_endpoint, tmp_path):
    ask, model, judge = judged_endpoint
    by_rules = ask()
    num_answers = len(model.requests)
    judge_choice.choose_judge(run_dir(tmp_path), judge.config())
    judged = ask()
    assert len(model.requests) == num_answers  # no answer is generated twice
    assert by_rules.scores["acc@1"].mean < 1 == judged.scores["acc@1"].mean
    assert judged.judge.asked > 0
    judge_choice.drop_judge(run_dir(tmp_path))
    assert ask() == by_rules


def test_figures_and_exports_count_answers_that_were_graded_twice_once(judged_endpoint, tmp_path):
    ask, _, judge = judged_endpoint
    by_rules = ask().cell
    judge_choice.choose_judge(run_dir(tmp_path), judge.config())
    judged = ask().cell
    with run_dir(tmp_path).open_store() as store:
        cells = store.cells(kind="evaluation", state="done")
        assert {cell.key for cell in cells} == {by_rules, judged}
        drawn = chosen(Source(run_dir(tmp_path), task="geoqa_test"), store)
        assert [one.cell.key for one in drawn] == [judged]
        judge_choice.drop_judge(run_dir(tmp_path))
        drawn = chosen(Source(run_dir(tmp_path), task="geoqa_test"), store)
        assert [one.cell.key for one in drawn] == [by_rules]
        # Of other judges than the folder's, the newest.
        other = JudgeConfig("http://x/v1", "another")
        assert [cell.key for cell in judge_choice.of_one_judge(cells, other)] == [judged]


@pytest.mark.slow
def test_a_table_is_judged_by_the_folders_judge_and_goes_back_to_the_rules_without_work(
    serve, fit, tmp_path, mini_world
):
    selection = {"rows": ["zero_shot"], "columns": ["geoqa_test"]}

    def table():
        return run_table(plan_table("main_7b", run_dir(tmp_path, mini_world), **selection), Machine(), quiet=True)

    def score(outcome):
        return outcome.table.rows[0].cells[0].estimate.mean

    by_rules = table()
    assert any("No judge model was used" in note for note in by_rules.table.notes)
    server = serve(answer=fit(generous))
    judge_choice.choose_judge(run_dir(tmp_path), server.config())
    judged = table()
    assert judged.failures == {}
    assert score(by_rules) < score(judged)
    assert any("decided by a judge, qwen" in note for note in judged.table.notes)
    page = next((tmp_path / "reports" / "samples").rglob("*.html")).read_text()
    assert "judge qwen:" in page
    asked = len(server.requests)
    assert table().num_done_now == 0
    assert len(server.requests) == asked
    judge_choice.drop_judge(run_dir(tmp_path))
    again = table()
    assert again.num_done_now == 0
    assert score(again) == score(by_rules)

"""A profile of four lines, and the same by options: every command takes them, and says them again."""

import inspect
import json

import pytest
from typer.testing import CliRunner

from atrl_bench.cli import VERBS, app, verb

WARMER = "base: paper\nname: warmer\nevaluation:\n  temperature: 0.7\n"
# Every command that takes a profile, with its arguments and, where it would work for long, --dry-run.
COMMANDS = {
    "run-table": ("main_7b", "--dry-run"),
    "ablate": ("grouping", "--dry-run"),
    "plan": ("main_7b",),
    "design": ("main_7b", "--effect", "5"),
    "fetch": ("geoqa_test",),
    "report": ("main_7b",),
    "explain": ("main_7b", "grpo", "geoqa_test"),
    "judge": (),
    "train": ("grpo", "--dry-run"),
    "signal": ("--dry-run",),
    "evaluate": ("mini", "--tasks", "geoqa_test", "--dry-run"),
    "doctor": (),
    "status": (),
    "export": ("scores",),
    "verify": (),
}
ELSEWHERE = {
    "key-steps",
    "serve",
    "compare",
    "overlap",
    "overhead",
    "mismatch",
    "figure",
    "audit",
    "push",
}  # need more than a folder
OPTIONS = ("--temperature", "0.7", "--top-p", "0.9", "--top-k", "20", "--max-tokens", "9", "--repeats", "3")
PROMPT = ("--template", "think-then-box", "--system", "Be brief.")


def run(*words: str) -> str:
    result = CliRunner().invoke(app(), list(words))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "warmer.yaml").write_text(WARMER)
    (tmp_path / "small.yaml").write_text(WARMER.replace("paper", "smoke").replace("warmer", "small"))
    return tmp_path


def test_every_command_takes_a_profile_of_four_lines(here) -> None:
    takes_one = {name for name in VERBS if "profile" in inspect.signature(verb(name)).parameters}
    assert takes_one - ELSEWHERE == set(COMMANDS)
    for name, words in COMMANDS.items():
        run(name, *words, "--profile", "small.yaml")
    assert [path.name for path in (here / "runs").iterdir()] == ["small"]


def test_options_say_how_answers_are_drawn_in_every_command_that_needs_it(here) -> None:
    said = run("plan", "main_7b", "--profile", "smoke", *OPTIONS, *PROMPT)
    again = " ".join(OPTIONS) + " --template think-then-box --system 'Be brief.'"
    assert f"--profile smoke {again}" in " ".join(said.replace("\\\n", " ").split())


def test_a_model_evaluated_twice_is_compared_by_the_evaluation_that_is_named(here) -> None:
    task = ("--tasks", "geoqa_test", "--profile", "smoke", "--limit", "3", "--repeats", "1")
    for extra in ((), ("--temperature", "0.9"), PROMPT):
        run("evaluate", "mini", *task, *extra)
    compare = ("compare", "mini", "mini", "--task", "geoqa_test", "--profile", "smoke", "--json")
    for extra, name, value in (
        (("--temperature", "0.9"), "decoding.temperature", "0.9"),
        (PROMPT, "prompt.system", "Be brief."),
    ):
        table = json.loads(run(*compare, *extra))
        for row in table["rows"]:
            assert dict(row["cells"][0]["provenance"])[name] == value
    run("export", "scores", "--profile", "smoke")
    lines = json.loads((here / "runs" / "smoke" / "exports" / "scores.json").read_text())
    assert [(line["temperature"], line["repeats"], line["system"]) for line in lines] == [
        (0.1, 1, None),
        (0.9, 1, None),
        (0.1, 1, "Be brief."),
    ]

"""What a verb has loaded when it has answered: from files and the store it answers without what trains or draws."""

from pathlib import Path

import pytest
from programs import ended
from stored import fill_table

from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.report.table_run import render

MODELS = {"torch", "transformers", "trl", "lmms_eval", "datasets", "peft", "accelerate", "matplotlib", "sklearn", "av"}
TABLES = {"pandas", "pyarrow", "PIL"}
ARRAYS = {"numpy", "scipy", *TABLES}
GRADER = {"atrl_bench.grading.grade", "atrl_bench.grading.answer_parser", "rapidfuzz", "sympy", "math_verify"}
SETTINGS = {"pydantic", "yaml", "rich"}

FOLDER = ("--profile", "smoke", "--out", "RUN", "--data-dir", "WORLD")
# A verb with its arguments, and what it may not have loaded when it has answered.
LEAVES_OUT = {
    ("--help",): MODELS | ARRAYS | GRADER | SETTINGS,
    ("plan", "--help"): MODELS | ARRAYS | GRADER,
    ("list", "tables"): MODELS | ARRAYS | GRADER,
    ("list", "tasks"): MODELS | ARRAYS | GRADER,
    ("list", "recipes"): MODELS | ARRAYS | GRADER,
    ("list", "rows", "main_7b"): MODELS | ARRAYS | GRADER,
    ("list", "rules"): MODELS | TABLES | GRADER,
    ("list",): MODELS | TABLES | GRADER,
    ("status", *FOLDER[:4]): MODELS | ARRAYS | GRADER,
    ("plan", "main_7b", *FOLDER): MODELS | GRADER | {"scipy", "pandas", "PIL"},
    ("plan", "main_7b", "--profile", "paper", "--out", "NEW"): MODELS | ARRAYS | GRADER,
    ("explain", "main_7b", "grpo_atrl", "geoqa_test", *FOLDER): MODELS | GRADER | {"pandas", "PIL", "scipy"},
    # The pages show the rows' pictures; figures of what has not changed since are not drawn again.
    ("report", "main_7b", *FOLDER): (MODELS | GRADER | {"scipy"}) - {"datasets"},
    ("compare", "main_7b:grpo", "main_7b:grpo_atrl", "--task", "geoqa_test", *FOLDER): MODELS | {"PIL"},
    ("export", "jsonl", *FOLDER): MODELS,
    ("export", "scores", *FOLDER): MODELS,
    ("verify", *FOLDER): MODELS | TABLES,
    ("audit", *FOLDER[:4]): MODELS,  # papers are held against each other as frames
    ("train", "dapo", "--dry-run", "--profile", "paper", "--out", "NEW"): MODELS | {"pandas", "scipy", "PIL"},
}
PROGRAM = """
import sys
from atrl_bench import cli
sys.argv = ["atrl-bench", *sys.argv[1:]]
try:
    cli.main()
finally:
    print("LOADED", *sys.modules)
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory, mini_world):
    """A run folder in which one column of two rows is answered, six problems once, and the whole table was rendered."""
    run = tmp_path_factory.mktemp("run")
    plan = plan_table("main_7b", RunDir.at(run, SMOKE, mini_world), rows=["grpo", "grpo_atrl"], columns=["geoqa_test"])
    fill_table(plan, lambda _: ["+-+-+-"])
    render(plan_table("main_7b", plan.run_dir))
    return run


SMOKE = load_profile("smoke")


@pytest.mark.parametrize("arguments", LEAVES_OUT, ids=lambda arguments: " ".join(arguments[:2]))
def test_a_verb_that_reads_files_and_the_store_loads_nothing_heavy(arguments, run_dir, mini_world, tmp_path):
    paths = {"RUN": str(run_dir), "WORLD": str(mini_world), "NEW": str(tmp_path / "new")}
    answered, loaded = answer([paths.get(word, word) for word in arguments], tmp_path)
    assert answered == 0 or arguments[0] == "verify"  # no checkpoint is whole here
    assert loaded & LEAVES_OUT[arguments] == set()


def test_a_served_model_is_asked_questions_that_are_generated_first_without_what_runs_one_here(serve, tmp_path):
    server = serve("\\boxed{7}")
    words = ["evaluate", "served", "--base-url", server.url, "--tasks", "geoqa_test", "--limit", "2"]
    answered, loaded = answer([*words, "--profile", "smoke", "--out", str(tmp_path / "run")], tmp_path)
    assert answered == 0
    assert len(server.requests) >= 2
    assert loaded & MODELS - {"datasets"} == set()  # the rows are a `datasets.Dataset`: a task's code takes no other


def test_a_served_model_is_asked_under_a_profile_that_is_named(atrl_bench):
    words = ("evaluate", "served", "--base-url", "http://127.0.0.1:9/v1", "--tasks", "geoqa_test", "--limit", "2")
    assert "give --profile paper" in atrl_bench(*words).err


def answer(words: list[str], folder: Path) -> tuple[int, set[str]]:
    """Return the exit code of a command and the modules that it has loaded by then."""
    done = ended("-c", PROGRAM, *words, cwd=folder)
    text, _, loaded = done.stdout.rpartition("LOADED ")
    assert text.strip(), done.stderr
    return done.returncode, set(loaded.split())

"""The command line as its user meets it: quick help, near names for wrong ones, exit codes, one error text."""

import json
import subprocess
import sys

import pytest

from atrl_bench import __version__


def atrl_bench(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "atrl_bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_help_imports_nothing_heavy():
    program = (
        "import sys, atrl_bench.cli as cli\n"
        "try: cli.app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pandas', 'transformers', 'pydantic', 'rich', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "run-table" in result.stdout


def test_version_is_printed():
    assert atrl_bench("--version").stdout.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("run-table", "main_7"), "main_7b"),
        (("run-table", "main_7b", "--rows", "grppo"), "grpo"),
        (("run-table", "main_7b", "--columns", "geoqa"), "geoqa_test"),
        (("train", "gpro", "--dry-run"), "grpo"),
        (("train", "grpo", "--credit", "atlr", "--dry-run"), "atrl"),
        (("evaluate", "mini", "--tasks", "mathvison_testmini"), "mathvision_testmini"),
        (("list", "recipies"), "recipes"),
        (("plan", "main_7b", "--profile", "minni"), "mini"),
    ],
)
def test_an_unknown_name_answers_with_the_nearest_and_exit_code_2(arguments, near, tmp_path):
    result = atrl_bench(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert near in result.stderr
    assert "Next: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run-table",),
        ("run-table", "main_7b", "--seeds", "one"),
        ("run-table", "all", "--columns", "geoqa_test"),
        ("plan", "all", "--rows", "grpo"),
        ("report", "all", "--seeds", "1"),
        ("judge", "http://127.0.0.1:9/v1", "--none"),
        ("export", "jsonl", "--check"),
        ("fly",),
        ("--fly",),
    ],
)
def test_wrong_usage_ends_with_exit_code_2_and_no_traceback(arguments, tmp_path):
    result = atrl_bench(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_a_folder_is_compared_with_its_manifest_and_the_exit_code_tells(tmp_path):
    (tmp_path / "note.txt").write_text("one")
    (tmp_path / "store.sqlite").touch()
    assert atrl_bench("export", "manifest", "--out", tmp_path).returncode == 0
    same = atrl_bench("export", "manifest", "--check", "--out", tmp_path)
    assert (same.returncode, same.stdout) == (0, f"{tmp_path} is what its manifest says.\n")
    (tmp_path / "note.txt").write_text("two")
    changed = atrl_bench("export", "manifest", "--check", "--out", tmp_path)
    assert (changed.returncode, changed.stdout) == (1, "note.txt has changed\n")


def test_status_of_a_folder_without_a_store_says_how_to_make_one(tmp_path):
    result = atrl_bench("status", "--out", tmp_path)
    assert result.returncode == 1
    assert "Next: atrl-bench run-table main_7b" in result.stderr


def test_list_as_json_names_everything_that_can_be_run():
    known = json.loads(atrl_bench("list", "--json").stdout)
    assert set(known) == {"tables", "ablations", "figures", "recipes", "sweeps", "tasks", "credit", "profiles"}
    assert "main_7b" in known["tables"]
    assert "hard_truncation" in known["ablations"]
    assert {"grpo", "dapo", "gspo", "sapo", "ft_rl"} <= set(known["recipes"])
    assert {"atrl", "uniform"} <= set(known["credit"])


def test_the_papers_run_is_resolved_without_gpu_network_or_model(tmp_path):
    result = atrl_bench(
        "train", "recipes/sapo.yaml", "--credit", "atrl", "--profile", "paper", "--dry-run", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    for expected in ("loss_type: sapo", "learning_rate: 1.0e-06", "Qwen/Qwen2.5-VL-7B-Instruct", "num_generations: 8"):
        assert expected in result.stdout

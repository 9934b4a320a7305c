"""The command line as its user meets it: quick help, near names for wrong ones, exit codes, one error text."""

import json
import os
import signal
import subprocess
import sys

import pytest
import typer
from programs import command, ended

from atrl_bench import __version__, cli
from atrl_bench.cli import options
from atrl_bench.engines import stop
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile
from atrl_bench.sandbox.isolation import PERMISSION, is_permitted


def test_version_is_printed():
    assert command("--version").strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("run-table", "main_7"), "main_7b"),
        (("run-table", "main_7b", "--rows", "grppo"), "grpo"),
        (("run-table", "main_7b", "--columns", "geoqa"), "geoqa_test"),
        (("train", "gpro", "--dry-run"), "grpo"),
        (("train", "grpo", "--credit", "atlr", "--dry-run"), "atrl"),
        (("evaluate", "mini", "--tasks", "mathvison_testmini"), "mathvision_testmini"),
        (("signal", "--profile", "smoke", "--rules", "atlr"), "Did you mean atrl?"),
        (("list", "recipies"), "recipes"),
        (("list", "rowz"), "rows"),
        (("fetch", "mathverse_testmin", "--profile", "paper"), "mathverse_testmini"),
        (("plan", "main_7b", "--profile", "minni"), "mini"),
    ],
)
def test_an_unknown_name_answers_with_the_nearest_and_exit_code_2(atrl_bench, arguments, near):
    result = atrl_bench(*arguments)
    assert result.code == 2, result.err
    assert near in result.err
    assert "Next: " in result.err
    assert "Traceback" not in result.err


TABLE = """
{title: T, caption: C, source: S, label: "tab:t", baseline: plain, average: false, data: virl39k, schedule: strict,
 columns: [{id: geoqa, label: GeoQA, task: geoqa_test}],
 rows: [{id: plain, label: GRPO, recipe: grpo}, {id: mine, label: Mine, recipe: grpo, credit: atlr}]}
"""


@pytest.mark.parametrize(("verb", "paper"), [("plan", "mine"), ("run-table", "mine"), ("plan", "at_rl")])
def test_a_table_of_ones_own_with_an_unknown_rule_is_refused_before_it_is_priced(atrl_bench, verb, paper, tmp_path):
    (tmp_path / paper / "tables").mkdir(parents=True)
    (tmp_path / paper / "paper.yaml").write_text("title: Mine")
    (tmp_path / paper / "tables" / "main.yaml").write_text(TABLE)
    result = atrl_bench(verb, f"{paper}:main", "--paper", paper, "--profile", "paper")
    assert (result.code, result.out) == (2, "")
    assert result.err == "Error: Unknown credit rule 'atlr'.\nDid you mean atrl?\nNext: atrl-bench list rules\n"


@pytest.mark.parametrize(
    ("arguments", "verb"),
    [
        (("plan", "mine:main"), "run-table"),
        (("explain", "mine:main", "plain", "geoqa"), "run-table"),
        (("design", "mine:main", "--effect", "5"), "list rows"),
        (("report", "mine:main"), "run-table"),
        (("report", "mine:main", "--rows", "nobody"), "list rows"),
        (("fetch", "mine:main", "--dry-run"), "run-table"),
        (("push", "mine:main:plain", "me/plain"), "run-table"),
        (("compare", "mine:main:plain", "mine:main:mine"), "run-table"),
        (("compare", "mine:main:nobody", "mini"), "list rows"),
    ],
)
def test_the_next_command_of_a_papers_folder_names_it_on_pages_too(atrl_bench, arguments, verb, tmp_path):
    with RunDir.at(tmp_path / "runs" / "smoke", load_profile("smoke")).open_store():
        pass
    (tmp_path / "mine" / "tables").mkdir(parents=True)
    (tmp_path / "mine" / "paper.yaml").write_text("title: Mine")
    (tmp_path / "mine" / "tables" / "main.yaml").write_text(TABLE.replace("atlr", "atrl"))
    result = atrl_bench(*arguments, "--paper", "mine", "--profile", "smoke")
    pages = [path.read_text() for path in tmp_path.rglob("*.html")]
    text = " ".join("".join([result.out, result.err, *pages]).replace("\\\n", "").split())  # a command is one line
    assert text.count(f"{verb} mine:main") == text.count(f"{verb} mine:main --paper {tmp_path / 'mine'}") > 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("run-table",),
        ("run-table", "main_7b", "--seeds", "one"),
        ("report", "main_7b", "--rows", ","),
        ("report", "main_7b", "--columns", ""),
        ("train", "grpo", "--seed", "-1", "--dry-run"),
        ("run-table", "all", "--columns", "geoqa_test"),
        ("plan", "all", "--rows", "grpo"),
        ("report", "all", "--seeds", "1"),
        ("judge", "http://127.0.0.1:9/v1", "--none"),
        ("export", "jsonl", "--check"),
        ("fly",),
        ("--fly",),
    ],
)
def test_wrong_usage_ends_with_exit_code_2_and_no_traceback(atrl_bench, arguments, tmp_path):
    result = atrl_bench(*arguments)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("text", "numbers"), [("0", [0]), ("2,0,1", [2, 0, 1]), (" 3 , 4", [3, 4]), (None, None)])
def test_seeds_are_different_whole_numbers(text, numbers):
    assert options.seeds_of(text) == numbers


@pytest.mark.parametrize("text", ["0,0", "-1", "1,-1", "", ",", "0,,1", "1.5"])
def test_seeds_that_would_count_answers_twice_or_are_none_are_refused(text):
    with pytest.raises(typer.BadParameter, match="no list of whole numbers, each once: 0,1,2"):
        options.seeds_of(text)


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_a_list_of_names_has_a_name_in_it(text):
    assert options.names_of(None) is None
    assert options.names_of("grpo, dapo,") == ["grpo", "dapo"]
    with pytest.raises(typer.BadParameter, match="names nothing"):
        options.names_of(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ("judge", "--none"),
        ("report", "main_7b"),
        ("overlap", "geoqa_8k", "geoqa_test"),
        ("figure", "all"),
    ],
)
def test_a_run_folder_that_cannot_be_one_is_named_without_a_traceback(atrl_bench, arguments, tmp_path):
    (tmp_path / "notes.txt").write_text("no folder")
    result = atrl_bench(*arguments, "--profile", "smoke", "--out", "notes.txt")
    assert result.code == 1
    what, why, next_step = result.err.splitlines()
    assert what.startswith("Error: Cannot read or write notes.txt/")
    assert why == "Not a directory."
    assert next_step == "Next: check that path, or use a folder you can write to with --out"


@pytest.mark.parametrize(
    "words",
    [
        ("report", "main_7b"),
        ("report", "all"),
        ("report", "signal"),
        ("explain", "main_7b", "grpo", "geoqa_test"),
        ("figure", "all"),
        ("compare", "main_7b:grpo", "main_7b:dapo"),
        ("export", "scores"),
    ],
    ids=" ".join,
)
def test_a_verb_that_reads_a_run_folder_makes_none_of_a_misspelt_name(words, atrl_bench, tmp_path):
    result = atrl_bench(*words, "--out", "tpyo")
    assert result.code == 1
    assert "There is no run folder tpyo." in result.err
    assert "atrl-bench run-table main_7b --out tpyo" in result.err
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_system_that_names_no_file_is_not_explained_away(monkeypatch):
    def fail(*_):
        raise OSError("a mistake in the program")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(OSError, match="a mistake in the program"):
        cli.main()


def test_list_as_json_names_everything_that_can_be_run(atrl_bench):
    known = json.loads(atrl_bench("list", "--json").out)
    assert set(known) == {"tables", "ablations", "figures", "recipes", "tasks", "rules", "profiles", "papers"}
    assert "main_7b" in known["tables"]
    assert "hard_truncation" in known["ablations"]
    assert {"grpo", "dapo", "gspo", "sapo", "ft_rl"} <= set(known["recipes"])
    assert {"atrl", "uniform"} <= set(known["rules"])


@pytest.mark.parametrize("name", ["main_7b", "geometry3k", "mathverse_testmini", "all"])
def test_profiles_that_generate_their_data_need_nothing_to_be_fetched(atrl_bench, name):
    for profile in ("mini", "smoke"):
        result = atrl_bench("fetch", name, "--profile", profile)
        assert result.code == 0, result.err
        assert "nothing is to be fetched" in result.out


def test_the_papers_run_is_resolved_without_gpu_network_or_model(atrl_bench):
    result = atrl_bench("train", "recipes/sapo.yaml", "--credit", "atrl", "--profile", "paper", "--dry-run")
    assert result.code == 0, result.err
    for expected in ("objective: sapo", "learning_rate: 1.0e-06", "Qwen/Qwen2.5-VL-7B-Instruct", "group_size: 8"):
        assert expected in result.out


def test_a_dry_run_of_a_shipped_base_says_where_it_would_be_and_trains_nothing(atrl_bench, tmp_path):
    result = atrl_bench("train", "mini-perception", "--dry-run", "--json", "--out", tmp_path / "base")
    assert json.loads(result.out) == {"checkpoint": str(tmp_path / "base")}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("run-table", "main_7"),
        ("evaluate", "mini", "--tasks", "xyzzy"),
        ("list", "tables", "--profile", "smoke"),
        ("plan", "main_7b", "--profile", "paper"),
        ("plan", "scale_32b", "--profile", "paper"),
        ("plan", "all", "--profile", "paper", "--seeds", "0,1,2"),
        ("run-table", "scale_32b", "--profile", "smoke", "--allow-code", "--dry-run"),
        ("ablate", "hard_truncation", "--profile", "smoke", "--allow-code", "--dry-run"),
        ("train", "sapo", "--profile", "paper", "--credit", "atrl", "--dry-run"),
        ("judge", "--profile", "smoke"),
    ],
)
def test_what_is_printed_fits_eighty_columns_and_breaks_no_name(atrl_bench, arguments):
    result = atrl_bench(*arguments)
    for line in (result.out + result.err).splitlines():
        # A list of names without a space in it, as in a command, is not broken: nobody could paste it.
        assert len(line) <= 80 or max(map(len, line.split())) > 40, line


def test_programs_of_models_may_run_in_the_processes_of_a_command_that_says_so(monkeypatch):
    monkeypatch.setenv(PERMISSION, "0")

    def verb(options: options.Options) -> None: ...

    allowing = options.with_options("allow_code")(verb)
    allowing(allow_code=False)
    assert not is_permitted()
    allowing(allow_code=True)
    assert is_permitted()


def test_rows_of_a_table_are_listed_and_each_verb_has_a_short_help(atrl_bench):
    listed = atrl_bench("list", "rows", "main_7b").out
    assert "grpo_atrl" in listed
    assert "recipe grpo, credit atrl" in listed
    assert "list rows main_7b" in " ".join(atrl_bench("list", "rows").err.split())
    assert atrl_bench("compare", "-h").out == atrl_bench("compare", "--help").out


def test_a_shell_completes_tables_rows_tasks_and_profiles():
    assert "main_7b" in options.complete_tables("main_7")
    assert "main_7b:grpo_atrl" in options.complete_row_models("main_7b:grpo_a")
    assert "geoqa_test,mathvision_testmini" in options.complete_tasks("geoqa_test,mathvision_t")
    assert options.complete_profiles("sm") == ["smoke"]
    assert "hard_truncation" in options.complete_ablations("hard")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("run-table main_7b --rows zero_shot,grpo_a", "zero_shot,grpo_atrl"),
        ("explain main_7b grpo_a", "grpo_atrl"),
        ("explain main_7b grpo geoqa", "geoqa_test"),
    ],
)
def test_a_shell_completes_what_the_table_on_the_line_has(line, offered):
    environment = {"_ATRL_BENCH_COMPLETE": "complete_bash", "COMP_CWORD": str(len(line.split()))}
    environment["COMP_WORDS"] = f"atrl-bench {line}"
    program = "from atrl_bench.cli import app; app()(prog_name='atrl-bench')"
    done = ended("-c", program, env=os.environ | environment)
    assert offered in done.stdout.split(), done.stderr


@pytest.mark.parametrize("number", stop.SIGNALS)
def test_a_command_that_a_scheduler_ends_says_how_to_go_on_whatever_it_does(number, monkeypatch, capsys):
    before = {each: signal.signal(each, signal.SIG_IGN) for each in stop.SIGNALS}
    monkeypatch.setattr(sys, "argv", ["atrl-bench", "evaluate", "mini"])
    monkeypatch.setattr(cli, "app", lambda *_: signal.raise_signal(number))
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert ended.value.code == 75
    assert capsys.readouterr().err.endswith("Next, to go on: atrl-bench evaluate mini\n")


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path):
    words = [sys.executable, "-m", "atrl_bench", "run-table", "main_7b", "--profile", "smoke", "--rows", "grpo"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        process.stderr.readline()  # the first line of progress
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "Stopped. Every stored answer is kept" in said
    assert "Next, to go on: atrl-bench run-table main_7b --profile smoke --rows grpo" in said
    assert "Traceback" not in said

"""Models behind servers that a command starts and stops: a stand-in for vLLM, in a process found through the path."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import vllm_stand_in
from programs import command

from atrl_bench.cli.table_runs import run_table
from atrl_bench.engines.devices import ONE_PROCESS, Devices
from atrl_bench.errors import EndpointError, InvalidFileError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import Engine, EvaluationOptions, cell_spec
from atrl_bench.experiments.evaluate_command import evaluate_model
from atrl_bench.experiments.plan import plan_table
from atrl_bench.experiments.run_dir import RunDir, read_settings
from atrl_bench.experiments.serving import installed_engine, require_engine, serving
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.models.prompt import Prompt, Sampling
from atrl_bench.models.served import EndpointModel
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

TASK = "mathverse_testmini"


@pytest.fixture
def profile_file(tmp_path) -> Path:
    """The smoke profile, greedy."""
    (tmp_path / "greedy.yaml").write_text("base: smoke\nevaluation: {temperature: 0.0}\n")
    return tmp_path / "greedy.yaml"


@pytest.fixture
def diary(tmp_path, monkeypatch) -> Path:
    """Where the stand-in, which is on the path now, writes what it was started with."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {vllm_stand_in.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_DIARY", str(tmp_path / "diary"))
    return tmp_path / "diary"


def answers(store: Store, key: str) -> dict[tuple[str, int], tuple[str, int, bool]]:
    return {name: (one.text, one.num_tokens, one.truncated) for name, one in store.responses(key).items()}


@pytest.mark.slow
def test_a_table_s_trained_row_is_answered_by_a_server_of_its_own_as_this_process_would(tmp_path, diary, profile_file):
    out, selection = tmp_path / "out", ["--rows", "grpo_atrl", "--columns", TASK, "--profile", profile_file]
    command("run-table", "main_7b", *selection, "--out", out, "--serve")
    [checkpoint] = (out / "checkpoints").iterdir()
    assert diary.read_text().splitlines() == [f"start {checkpoint.name}", f"stop {checkpoint.name}"]
    assert read_settings(out).engine == Engine("vllm", vllm_stand_in.VERSION)

    run_dir = RunDir.at(out, load_profile(str(profile_file)))
    with run_dir.open_store() as store:
        [served] = store.cells(state="done")
        assert served.spec["engine"] == {"name": "vllm", "version": vllm_stand_in.VERSION}
        where = {"profile": run_dir.profile, "data_dir": run_dir.data_dir("mathverse")}
        here = evaluate(checkpoint, TASK, store=store, **where)
        assert answers(store, here) == answers(store, served.key)
        assert store.cell(here).num_responses == served.num_responses >= 20
        # Nothing else is in the keys, and neither takes the other's answers for its own.
        content = store.cell(here).spec
        assert {name: value for name, value in served.spec.items() if name != "engine"} == content

    # The folder remembers who answers: nothing is left to do, and the page has the same numbers.
    plan = plan_table("main_7b", run_dir, rows=["grpo_atrl"], columns=[TASK])
    again = run_table(plan, ONE_PROCESS, quiet=True)
    assert again.num_done_now == 0
    assert f"Answered by vllm {vllm_stand_in.VERSION}" in "".join(again.table.notes)
    assert len(diary.read_text().splitlines()) == 2
    replace(run_dir, engine=None).keep_choices()  # as `--no-serve` does
    assert read_settings(out).engine is None


def test_the_keys_of_this_process_and_of_endpoints_have_no_engine_and_a_video_is_never_served(tmp_path):
    run_dir = RunDir.at(tmp_path, load_profile("smoke"))
    vllm = EvaluationOptions(engine=Engine("vllm", "0.31.0"))

    def spec(task: str, options: EvaluationOptions = EvaluationOptions()):  # noqa: B008
        data_dir = run_dir.provide("mathverse" if task == TASK else "mmvu")
        return cell_spec("mini", task, options, profile=run_dir.profile, data_dir=data_dir)

    assert "engine" not in spec(TASK).as_dict()
    assert spec(TASK, vllm).as_dict() == {**spec(TASK).as_dict(), "engine": {"name": "vllm", "version": "0.31.0"}}
    assert spec("mmvu_val", vllm).key == spec("mmvu_val").key


def test_evaluate_answers_through_a_server_and_says_so_in_the_record(tmp_path, diary):
    run_dir = RunDir(tmp_path / "out", load_profile("smoke"), engine=installed_engine())
    options = EvaluationOptions(limit=3)
    [scores] = evaluate_model("mini", [TASK], options, run_dir, ONE_PROCESS, quiet=True).scores
    with run_dir.open_store() as store:
        assert store.cell(scores.cell).spec["engine"]["version"] == vllm_stand_in.VERSION
        assert store.cell(scores.cell).num_responses == 6  # two repeats, one request each time: the server knows `n`
    assert diary.read_text().splitlines() == ["start mini", "stop mini"]
    evaluate_model("mini", [TASK], options, run_dir, ONE_PROCESS, quiet=True)
    assert len(diary.read_text().splitlines()) == 2, "a finished cell starts no server"


def test_a_server_that_reads_images_otherwise_is_refused_before_it_answers(tmp_path, diary, monkeypatch):
    monkeypatch.setenv("STAND_IN", "forgets pixels")
    run_dir = RunDir(tmp_path / "out", load_profile("smoke"))
    with (
        pytest.raises(EndpointError, match=r"tokens as 999(.|\n)*pixels of an image"),
        serving("mini", run_dir, Devices(), "probe"),
    ):
        pass


@pytest.mark.parametrize(
    ("wrong", "said"), [("does not start", "no room for the KV cache"), ("dies", "the engine has died")]
)
def test_where_the_server_dies_the_error_has_its_last_words_and_the_rest_stays_pending(
    tmp_path, diary, monkeypatch, wrong, said
):
    monkeypatch.setenv("STAND_IN", wrong)
    run_dir = RunDir(tmp_path / "out", load_profile("smoke"), engine=installed_engine())
    with pytest.raises(EndpointError, match=rf"The model server died(.|\n)*{said}"):
        evaluate_model("mini", [TASK], EvaluationOptions(limit=3), run_dir, ONE_PROCESS, quiet=True)
    with run_dir.open_store() as store:
        assert [cell.state for cell in store.cells()] == ["pending"] * (wrong == "dies")


def test_answers_of_two_versions_are_not_mixed(tmp_path, diary):
    run_dir = RunDir(tmp_path, load_profile("smoke"), engine=Engine("vllm", "0.22.0"))
    with pytest.raises(InvalidFileError, match=r"vllm 0.22.0, and vLLM 0.30.9 is installed(.|\n)*vllm==0.22.0"):
        require_engine(run_dir)


def test_serve_says_where_it_listens_and_stops_at_ctrl_c(tmp_path, diary):
    words = ["-m", "atrl_bench", "serve", "mini", "--profile", "smoke", "--json", "--out", tmp_path / "out"]
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
    endpoint = EndpointConfig(ready["base_url"], ready["model"])
    with closing(EndpointModel(endpoint)) as model:
        prompt = Prompt("a", [{"role": "user", "content": [{"type": "text", "text": "How many?"}]}], [])
        [[answer]] = model.generate([prompt], [[0]], Sampling(4, temperature=0.0))
    assert 0 < answer.num_tokens <= 5
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "Stopped serving mini.\n")
    assert diary.read_text().splitlines() == ["start mini", "stop mini"]

"""Doctor names what a profile lacks on this machine, and the command that mends it."""

import importlib.metadata
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from http_servers import ChatServer, hung_up

from atrl_bench.cli.printing import text_of
from atrl_bench.engines.model_server import Vllm
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.experiments import doctor as module
from atrl_bench.experiments.doctor import Diagnosis, ask_judge, data, disk, disk_gb, doctor, gpu, native, packages, vllm
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.profiles import load_profile

SMOKE, PAPER = load_profile("smoke"), load_profile("paper")


def by_name(checks):
    return {check.name: check for check in checks}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The checks of a healthy smoke profile, and the seconds they took."""
    started = time.monotonic()
    diagnosis = doctor(RunDir.at(tmp_path_factory.mktemp("run"), SMOKE))
    return diagnosis, time.monotonic() - started


def test_a_machine_that_passes_these_tests_can_run_the_smoke_profile(here):
    diagnosis, seconds = here
    assert diagnosis.is_healthy, text_of(diagnosis)
    assert by_name(diagnosis.checks)["METIS"].state == "ok"
    assert by_name(diagnosis.checks)["decord"].state == "ok"
    assert seconds < 20  # five on a machine that has nothing else to do


def test_the_text_is_eighty_columns_wide_and_ends_with_the_next_command(here):
    checks = here[0].checks
    text = text_of(Diagnosis(RunDir.at(None, SMOKE), checks))
    # A path is not broken, however long it is.
    assert all(len(line) <= 80 or len(line.split()[-1]) > 45 for line in text.splitlines())
    assert text.endswith("Next: atrl-bench run-table main_7b --profile smoke")
    elsewhere = text_of(Diagnosis(RunDir.at(Path("elsewhere"), SMOKE), checks))
    assert elsewhere.endswith("\nNext: atrl-bench run-table main_7b --profile smoke --out elsewhere")
    record = json.loads(json.dumps(here[0].document()))
    assert record["healthy"] is True
    assert {check["state"] for check in record["checks"]} <= {"ok", "note", "missing"}


def test_the_papers_profile_misses_a_gpu_where_there_is_none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (check,) = gpu(PAPER)
    assert (check.state, check.fix) == ("missing", "use a machine with GPUs, or --profile mini")
    (check,) = gpu(SMOKE)
    assert (check.state, check.fix) == ("ok", "")


def test_a_package_that_is_absent_or_too_old_is_named_with_the_pip_command(monkeypatch, run_dir):
    wanted = ["torch>=999", "surely-not-installed>=1", "pytest>=999; extra == 'test'", "numpy>=2"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    check = by_name(packages(run_dir))["packages"]
    assert check.state == "missing"
    assert "surely-not-installed is not installed" in check.found
    assert check.fix == "pip install 'torch>=999' 'surely-not-installed>=1'"


VERSIONS = {"vllm": "0.31.0+cpu", "torch": "2.13.0", "transformers": "5.17.2", "trl": "1.16.0"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"vllm": "0.33.0"}, "vllm 0.33.0 is not <=0.31,>=0.22, which TRL 1.16.0 supports"),
        ({"transformers": "5.23.0"}, "transformers 5.23.0 is not <5.18.0,>=5.10.4, which vLLM 0.31.0+cpu wants"),
        ({"torch": "2.12.1"}, "torch 2.12.1 is not ==2.13.0, which vLLM 0.31.0+cpu wants"),
    ],
)
def test_a_vllm_that_does_not_go_with_trl_torch_or_transformers_is_named_with_the_command(
    monkeypatch, run_dir, changed, said
):
    requires = {
        "atrl-bench": ["torch>=2.9", "vllm<=0.31,>=0.22; extra == 'vllm'"],
        "vllm": ["torch==2.13.0+cpu", "transformers<5.18.0,>=5.10.4", "numpy"],
    }
    versions = VERSIONS | changed
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(importlib.metadata, "requires", requires.__getitem__)
    monkeypatch.setattr(module, "find_vllm", lambda: Vllm(Path("bin/vllm"), versions["vllm"]))
    answered = replace(run_dir, engine=Engine("vllm", versions["vllm"]))
    check, needed = vllm(run_dir), vllm(answered)
    if said is None:
        assert (check.state, check.found) == ("ok", "0.31.0+cpu, with transformers 5.17.2 and trl 1.16.0")
    else:
        assert (check.state, check.found, check.fix) == ("note", said, "pip install 'atrl-bench[vllm]'")
        assert needed.state == "missing"  # its tables cannot be gone on with
    other = vllm(replace(run_dir, engine=Engine("vllm", "0.29.0")))
    assert (other.state, other.fix) == ("missing", "pip install vllm==0.29.0, or --serve to answer anew")


def test_a_native_library_that_crashes_is_reported_and_does_not_take_doctor_with_it():
    check = native("library", "import os; os.abort()", "reinstall it")
    assert (check.state, check.fix) == ("missing", "reinstall it")
    check = native("library", "import surely_not_installed", "install it")
    assert check.found == "ModuleNotFoundError: No module named 'surely_not_installed'"


def test_a_full_disk_is_missing_space_for_what_the_profile_takes(monkeypatch, tmp_path):
    usage = type("Usage", (), {"free": 5e8, "total": 1e12})()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    check = by_name(disk(RunDir.at(tmp_path / "later", SMOKE)))["disk"]
    assert check.state == "missing"
    wanted, why = disk_gb(PAPER)
    assert wanted > 100  # weights in float32 with two moments, for eight billion parameters
    assert PAPER.model in why


def test_a_store_that_is_no_store_is_missing_and_one_with_cells_is_counted(run_dir):
    with run_dir.open_store() as store:
        store.add_cell({"task": "a"})
    check = by_name(disk(run_dir))["result store"]
    assert check.found.startswith("1 evaluation, 0 trainings")
    run_dir.store_path.write_bytes(b"something else" * 100)
    check = by_name(disk(run_dir))["result store"]
    assert check.state == "missing"


def test_a_model_that_has_to_be_fetched_is_a_note_online_and_missing_offline(monkeypatch, tmp_path):
    absent = SMOKE.model_copy(update={"model": "nobody/nothing-of-this-name"})
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    check = by_name(data(RunDir.at(tmp_path, absent)))["base model"]
    assert (check.state, check.fix) == ("note", "atrl-bench fetch nobody/nothing-of-this-name")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check = by_name(data(RunDir.at(tmp_path, absent)))["base model"]
    assert check.state == "missing"


def test_a_data_folder_without_the_benchmarks_names_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checks = by_name(data(RunDir.at(tmp_path / "run", PAPER, tmp_path)))
    assert "mathvista_testmini" in checks["datasets"].found
    assert "geoqa_test" in checks["datasets in archives"].found
    assert "vsi_bench" in checks["datasets in archives"].found
    assert "geoqa_8k" in checks["datasets"].found
    assert (checks["datasets in archives"].state, checks["datasets in archives"].fix) == (
        "missing",
        "atrl-bench fetch virl39k --profile paper",  # under mini nothing is fetched
    )


def test_a_judge_is_asked_for_its_models():
    with ChatServer() as server:
        server.expect_request("/v1/models").respond_with_json({"data": [{"id": "a-judge"}]})
        (served,) = ask_judge(JudgeConfig(server.url, "a-judge"))
        (other,) = ask_judge(JudgeConfig(server.url, "another"))
    assert (served.state, other.state) == ("ok", "missing")
    assert "serves a-judge, not another" in other.found
    (down,) = ask_judge(JudgeConfig(server.url, "a-judge"))
    assert down.state == "missing"
    assert "JUDGE_API_KEY" in down.fix


def test_a_judge_whose_list_drips_is_waited_for_no_longer_than_its_limit_and_its_key_is_not_shown(monkeypatch):
    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        for _ in range(30):
            connection.sendall(b" ")
            time.sleep(0.2)

    monkeypatch.setattr(module, "SECONDS", 1)
    monkeypatch.setenv("JUDGE_API_KEY", "sk-0123456789abcdef")
    with ChatServer() as server:
        server.expect_oneshot_request("/v1/models").respond_with_handler(lambda request: hung_up(request, drip))
        server.expect_request("/v1/models").respond_with_json({"data": [{"id": "sk-0123456789abcdef"}]})
        started = time.monotonic()
        (slow,) = ask_judge(JudgeConfig(server.url, "a-judge"))
        assert time.monotonic() - started < 3
        (echo,) = ask_judge(JudgeConfig(server.url, "a-judge"))
    assert (slow.state, echo.state) == ("missing", "missing")
    assert "serves $JUDGE_API_KEY, not a-judge" in echo.found


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(monkeypatch, run_dir):
    def broken():
        raise OSError("no such device")
        yield

    monkeypatch.setattr(module, "gpu", lambda profile: broken())
    monkeypatch.setattr(module, "NATIVE", {})
    checks = by_name(doctor(run_dir).checks)
    assert checks["GPU"].found == "could not be looked at: no such device"
    assert checks["base model"].state == "ok"

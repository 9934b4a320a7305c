"""Doctor names what a profile lacks on this machine, and the command that mends it."""

import importlib.metadata
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from http_servers import ChatServer

from atrl_bench.cli.printing import text_of
from atrl_bench.engines.model_server import Vllm
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.experiments import memory_check
from atrl_bench.experiments.doctor import doctor, inputs, libraries, machine, network, storage
from atrl_bench.experiments.doctor.diagnosis import Diagnosis
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
    assert by_name(diagnosis.checks)["METIS partitions a graph"].state == "ok"
    assert by_name(diagnosis.checks)["decord decodes an MP4"].state == "ok"
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


def test_the_papers_profile_misses_a_gpu_where_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.Path, "exists", lambda path: False if "nvidia" in str(path) else path.is_dir())
    (check,) = machine.gpu(PAPER)
    assert (check.state, check.fix) == ("missing", "use a machine with GPUs, or --profile mini")
    (check,) = machine.gpu(SMOKE)
    assert (check.state, check.fix) == ("ok", "")


def test_a_package_that_is_absent_or_too_old_is_named_with_the_pip_command(monkeypatch):
    wanted = ["torch>=999", "surely-not-installed>=1", "pytest>=999; extra == 'test'", "numpy>=2"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    (check,) = machine.packages()
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
    monkeypatch, tmp_path, changed, said
):
    requires = {
        "atrl-bench": ["torch>=2.9", "vllm<=0.31,>=0.22; extra == 'vllm'"],
        "vllm": ["torch==2.13.0+cpu", "transformers<5.18.0,>=5.10.4", "numpy"],
    }
    versions = VERSIONS | changed
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(importlib.metadata, "requires", requires.__getitem__)
    monkeypatch.setattr(machine, "find_vllm", lambda: Vllm(Path("bin/vllm"), versions["vllm"]))
    plain = RunDir.at(tmp_path, SMOKE)
    answered = replace(plain, engine=Engine("vllm", versions["vllm"]))
    [check], [needed] = machine.vllm(plain), machine.vllm(answered)
    if said is None:
        assert (check.state, check.found) == ("ok", "0.31.0+cpu, with transformers 5.17.2 and trl 1.16.0")
    else:
        assert (check.state, check.found, check.fix) == ("note", said, "pip install 'atrl-bench[vllm]'")
        assert needed.state == "missing"  # its tables cannot be gone on with
    [other] = machine.vllm(replace(plain, engine=Engine("vllm", "0.29.0")))
    assert (other.state, other.fix) == ("missing", "pip install vllm==0.29.0, or --serve to answer anew")


def test_a_native_library_that_crashes_is_reported_and_does_not_take_doctor_with_it():
    (check,) = libraries.native("import os; os.abort()", "reinstall it")
    assert (check.state, check.fix) == ("missing", "reinstall it")
    (check,) = libraries.native("import surely_not_installed", "install it")
    assert check.found == "ModuleNotFoundError: No module named 'surely_not_installed'"


def test_a_full_disk_is_missing_space_for_what_the_profile_takes(monkeypatch, tmp_path):
    usage = type("Usage", (), {"free": 5e8, "total": 1e12})()
    monkeypatch.setattr(memory_check.shutil, "disk_usage", lambda path: usage)
    (check,) = storage.disk(RunDir.at(tmp_path / "later", SMOKE))
    assert check.state == "missing"
    wanted, why = storage.disk_gb(PAPER)
    assert wanted > 100  # weights in float32 with two moments, for eight billion parameters
    assert PAPER.model in why


def test_a_store_that_is_no_store_is_missing_and_one_with_cells_is_counted(tmp_path):
    run_dir = RunDir.at(tmp_path, SMOKE)
    with run_dir.open_store() as store:
        store.add_cell({"task": "a"})
    (check,) = storage.store(run_dir)
    assert check.found.startswith("1 evaluation, 0 trainings")
    run_dir.store_path.write_bytes(b"something else" * 100)
    (check,) = storage.store(run_dir)
    assert check.state == "missing"


def test_a_model_that_has_to_be_fetched_is_a_note_online_and_missing_offline(monkeypatch):
    absent = PAPER.model_copy(update={"model": "nobody/nothing-of-this-name"})
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    (check,) = inputs.model(absent)
    assert (check.state, check.fix) == ("note", "atrl-bench fetch nobody/nothing-of-this-name")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (check,) = inputs.model(absent)
    assert check.state == "missing"


def test_a_data_folder_without_the_benchmarks_names_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checks = by_name(inputs.data(RunDir.at(tmp_path / "run", PAPER, tmp_path)))
    assert "mathvista_testmini" in checks["datasets"].found
    assert "geoqa_test" in checks["datasets in archives"].found
    assert "vsi_bench" in checks["datasets in archives"].found
    assert checks["datasets in archives"].fix == "atrl-bench fetch geoqa_test"
    assert checks["training set virl39k"].state == "missing"
    assert checks["training set virl39k"].fix == "atrl-bench fetch virl39k"


def test_no_check_asks_a_network_unless_told_to(monkeypatch, here):
    assert by_name(here[0].checks)["hub"].found == "not asked (--online asks it)"


def test_a_judge_is_asked_for_its_models():
    with ChatServer() as server:
        server.expect_request("/v1/models").respond_with_json({"data": [{"id": "a-judge"}]})
        (served,) = network.judge(JudgeConfig(server.url, "a-judge"))
        (other,) = network.judge(JudgeConfig(server.url, "another"))
    assert (served.state, other.state) == ("ok", "missing")
    assert "serves a-judge, not another" in other.found
    (down,) = network.judge(JudgeConfig(server.url, "a-judge"))
    assert down.state == "missing"
    assert "JUDGE_API_KEY" in down.fix


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(monkeypatch, tmp_path):
    def broken():
        raise OSError("no such device")
        yield

    monkeypatch.setattr(machine, "cpu", broken)
    monkeypatch.setattr(libraries, "native", lambda code, fix: iter(()))
    checks = by_name(doctor(RunDir.at(tmp_path, SMOKE)).checks)
    assert checks["CPU"].found == "could not be looked at: no such device"
    assert checks["base model"].state == "ok"

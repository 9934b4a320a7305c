"""One row over two processes of the CPU, as `run-table --processes 2` runs it: launched, killed, resumed, evaluated."""

import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atrl_bench.engines import launch
from atrl_bench.engines.devices import Devices
from atrl_bench.engines.launch import LaunchError
from atrl_bench.errors import AtrlBenchError
from atrl_bench.results.store import Store

COMMAND = [sys.executable, "-m", "atrl_bench", "run-table", "main_7b", "--profile", "smoke"]
COMMAND += ["--rows", "grpo_atrl", "--columns", "mathverse_testmini"]
FAILING = """
import sys
from pathlib import Path
from atrl_bench.engines.launch import rank
from atrl_bench.errors import MissingDataError

def work():
    raise MissingDataError("There is no such thing.", why="It is a test.", next_step="atrl-bench list")

if __name__ == "__main__":
    rank(work, Path(sys.argv[1]).with_suffix(".error"), lambda: 3)
"""


def processes_on(folder: Path) -> list[int]:
    """Return the processes that name a folder in their command, and those that these started, by their numbers."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in (path / "cmdline").read_text():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def answers(folder: Path) -> dict[tuple, tuple]:
    with Store.open(folder / "store.sqlite") as store:
        return {
            (cell.spec["task"], sample.problem.problem_id, sample.response.repeat): (
                sample.response.text,
                sample.verdict,
            )
            for cell in store.cells()
            for sample in store.samples(cell.key)
        }


@pytest.mark.slow
def test_two_processes_survive_a_kill_and_end_with_the_answers_of_one(tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    subprocess.run([*COMMAND, "--out", alone], check=True, capture_output=True, timeout=300)
    command = [*COMMAND, "--processes", "2", "--out", together]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 200
    while not list(together.glob("checkpoints/*/resume/checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(processes_on(together)) >= 4, "the command, the launcher and two processes"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(2)
    assert processes_on(together) == []
    last = subprocess.run(command, check=False, capture_output=True, text=True, timeout=400)
    assert last.returncode == 0, last.stderr
    [checkpoint] = together.glob("checkpoints/*")
    assert [checkpoint.name] == [folder.name for folder in alone.glob("checkpoints/*")], "one key on one process or two"
    # The weights differ in their last digits, which may turn an answer.
    ours, theirs = answers(together), answers(alone)
    assert ours.keys() == theirs.keys()
    assert sum(ours[key] == theirs[key] for key in ours) >= 0.9 * len(ours)
    again = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200)
    assert "Everything was in the store" in again.stdout


@pytest.fixture
def failing(tmp_path, monkeypatch):
    (tmp_path / "failing_module.py").write_text(FAILING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(launch.__file__).parents[2])]))
    return tmp_path


def test_the_error_of_a_process_is_that_of_the_launch_and_names_its_log(failing):
    log = failing / "logs" / "job.log"
    with pytest.raises(LaunchError, match="There is no such thing") as raised:
        launch.run("failing_module", failing / "order.json", "cpu", Devices(), log)
    assert raised.value.what == f"There is no such thing. Log: {log}"
    assert (raised.value.why, raised.value.next_step, raised.value.progress) == ("It is a test.", "atrl-bench list", 3)
    assert "MissingDataError" in log.read_text()
    # It crosses from a worker to the command as it is.
    assert vars(pickle.loads(pickle.dumps(raised.value))) == vars(raised.value)


def test_a_process_that_dies_without_a_word_is_begun_again_and_is_a_failure_in_the_end(failing):
    (failing / "failing_module.py").write_text("import os; print('begun', flush=True); os.kill(os.getpid(), 9)")
    with pytest.raises(AtrlBenchError, match=r"was killed by signal 9 \(SIGKILL"):
        launch.run("failing_module", failing / "order.json", "cpu", Devices(), failing / "job.log")
    assert (failing / "job.log").read_text() == "begun\n" * 3


@pytest.fixture
def largest_file():
    """A function that lets no file grow beyond so many bytes, here and in processes that are started."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_a_full_disk_has_no_room_for_the_reason_that_is_said_after_the_first_attempt(failing, largest_file):
    begun = "print('begun', flush=True)\n"
    (failing / "failing_module.py").write_text(begun + FAILING.replace("It is a test.", "why " * 25))
    largest_file(100)
    with pytest.raises(OSError, match="File too large"):
        launch.run("failing_module", failing / "order.json", "cpu", Devices(), failing / "job.log")
    assert (failing / "job.log").read_text().count("begun\n") == 1


def test_a_process_whose_log_cannot_grow_says_why_it_failed(failing, largest_file):
    largest_file(200)
    with pytest.raises(LaunchError, match="There is no such thing"):
        launch.run("failing_module", failing / "order.json", "cpu", Devices(), failing / "job.log")
    assert (failing / "job.log").stat().st_size == 200


def test_the_folder_of_a_process_beside_the_main_one_is_gone_however_that_ends(failing, monkeypatch):
    (failing / "failing_module.py").write_text(
        "import os; from pathlib import Path; from atrl_bench.engines.processes import Processes\n"
        "with Processes(1, 2).own_folder(Path()) as folder: print(folder.is_dir(), flush=True), os.kill(os.getpid(), 9)"
    )
    (failing / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(failing / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)  # read anew, here too
    with pytest.raises(LaunchError):
        launch.run("failing_module", failing / "order.json", "cpu", Devices(), failing / "job.log")
    assert (failing / "job.log").read_text() == "True\n" * 3
    assert list((failing / "temporary").iterdir()) == []


def test_a_process_that_is_killed_while_it_says_why_leaves_no_half_of_it(failing):
    half = 'file.write(\'{"what": "There\'), file.flush(), os.kill(os.getpid(), 9)'
    killed = f"import json, os\njson.dump = lambda _, file: ({half})\n"
    (failing / "failing_module.py").write_text(killed + FAILING)
    with pytest.raises(LaunchError, match=r"was killed by signal 9 \(SIGKILL"):
        launch.run("failing_module", failing / "order.json", "cpu", Devices(), failing / "job.log")


@pytest.mark.parametrize("name", ["fsdp2", "ddp", "cpu"])
def test_accelerate_reads_the_shipped_configurations(name):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    from atrl_bench.training.sharding import SHARED

    arguments = launch.launch_command("some.module", ["order.json"], name, Devices(processes=8))
    parsed, _, _ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    assert (parsed.num_processes, parsed.num_machines, parsed.mixed_precision) == (8, 1, "no")
    assert parsed.use_fsdp == (name == "fsdp2")
    assert parsed.multi_gpu == (name != "fsdp2")
    if name == "fsdp2":
        assert parsed.fsdp_version == 2
        # What says to a training that its processes share a model.
        assert prepare_multi_gpu_env(parsed)[SHARED] == "true"

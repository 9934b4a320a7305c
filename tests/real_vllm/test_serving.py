"""Trained rows of a table behind a real vLLM, which `run-table --serve` starts and stops for each of them."""

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import needs
import pytest

from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.experiments.definition import load_table
from atrl_bench.experiments.jobs import answer_task
from atrl_bench.experiments.plan import evaluations_of
from atrl_bench.experiments.run_dir import RunDir, read_settings
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

pytestmark = needs.vllm
COMMAND = [sys.executable, "-m", "atrl_bench"]
TRAINED = [row.id for row in load_table("main_7b").rows if row.recipe]


def greedy_profile(folder: Path) -> Path:
    """Return the file of a smoke profile of temperature 0."""
    (folder / "greedy.yaml").write_text("base: smoke\nevaluation: {temperature: 0.0}\n")
    return folder / "greedy.yaml"


def answers(store: Store, key: str) -> dict[tuple[str, int], tuple[str, int, bool]]:
    return {name: (one.text, one.num_tokens, one.truncated) for name, one in store.responses(key).items()}


@pytest.mark.parametrize(
    ("table", "rows"),
    [("main_7b", ["grpo_atrl"]), ("looking", ["mini_grpo"]), pytest.param("main_7b", TRAINED, marks=pytest.mark.large)],
    ids=["one", "pictures withheld", "all"],
)
def test_trained_rows_answer_through_servers_of_their_own_as_this_process_does(tmp_path, table, rows) -> None:
    profile, out = greedy_profile(tmp_path), tmp_path / "out"
    definition = load_table(table).select(rows=rows)
    words = ["run-table", table, "--rows", ",".join(rows), "--seeds", "0", "--profile", str(profile)]
    done = subprocess.run([*COMMAND, *words, "--out", str(out), "--serve"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert processes(f"serve\0{out}") == []
    assert {path.name for path in (out / "logs").glob("*.vllm.log")} == {f"{row}-seed-0.vllm.log" for row in rows}
    engine = read_settings(out).engine
    assert engine == Engine("vllm", version("vllm"))

    run_dir, num_compared = RunDir.at(out, load_profile(str(profile))), 0
    here = RunDir(out, run_dir.profile)  # without the engine
    with run_dir.open_store() as store:
        trained = [run for run in store.runs() if run.state == "done"]
        assert len(trained) == len(rows)
        for run in trained:
            for task, options in evaluations_of(*definition.columns):
                model = out / run.checkpoint
                served = answer_task(store, model, task, options, run_dir)  # stored: nothing is running any more
                local_key = answer_task(store, model, task, options, here)
                assert store.cell(served).spec["engine"] == {"name": "vllm", "version": version("vllm")}
                assert answers(store, served) == answers(store, local_key)
                num_compared += store.cell(served).num_responses
    print(f"{num_compared} answers of {len(rows)} rows equal")
    assert num_compared >= 200 * len(rows)


def test_serve_ends_with_all_that_vllm_started_when_its_own_process_is_killed(tmp_path) -> None:
    out = tmp_path / "out"
    words = [*COMMAND, "serve", "mini", "--profile", "smoke", "--out", str(out), "--port", "8765"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        groups = groups_of_server(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 60
    while any(group_of(number) in groups for number in processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [number for number in processes() if group_of(number) in groups] == []


def groups_of_server(process: subprocess.Popen[str]) -> set[int]:
    """Wait for the server and return the groups of its processes: the command's, the guard's and vLLM's."""
    assert process.stdout is not None
    with process.stdout as lines:
        assert any("Serving mini at http://127.0.0.1:8765/v1" in line for line in lines)
    groups = {os.getpgid(number) for number in processes("--port\0008765\0")}
    assert len(groups) == 3
    assert len([number for number in processes() if group_of(number) in groups]) >= 5  # vLLM starts some of its own
    return groups


def processes(words: str = "") -> list[int]:
    """Return the numbers of the processes whose command has these words."""
    numbers = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_text():
                numbers.append(int(path.parent.name))
        except OSError:
            continue
    return numbers


def group_of(number: int) -> int:
    try:
        return os.getpgid(number)
    except ProcessLookupError:
        return 0

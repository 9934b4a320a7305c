"""docs/reproducing.md: its commands run up to where a GPU is needed, with a hub and servers of this machine."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import needs
import pytest
from local_hub import FIRST, NOBODY, LocalHub, Machine
from programs import command

from atrl_bench import resources
from atrl_bench.engines.model_server import serve_command
from atrl_bench.models.bases import base_folder
from atrl_bench.models.vllm_flags import vllm_flags
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

PAGE = Path(__file__).parents[1] / "docs" / "reproducing.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", TEXT, re.S | re.M)
LINES = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]
LINES = [" ".join(line.split()) for line in LINES if line]
INLINE = [words.removeprefix("atrl-bench ") for words in re.findall(r"`(atrl-bench \w[^`]+)`", TEXT)]
TYPED = [line.removeprefix("atrl-bench ") for line in LINES if line.startswith("atrl-bench ")]

# Which test below runs which commands.
UNDER_PAPER = [line for line in TYPED if "--profile paper" in line]
BY_VLLM = [line for line in UNDER_PAPER if re.search("--serve|^serve", line)]
BY_ENDPOINT = [line for line in UNDER_PAPER if re.search(r"http|^judge", line)]
BY_HUB = [line for line in UNDER_PAPER if line.startswith("fetch")]
WITH_TRACKERS = [line for line in TYPED if "--report-to" in line]
OVER_PROCESSES = [line for line in TYPED if "--processes" in line]
SERVED_MINI = [line for line in TYPED if "FOLDER" in line]
[LAUNCH] = [line for line in LINES if line.startswith("accelerate launch")]
# What this machine is not asked to do: installing, serving a 7B model, showing pages, and what sets a variable.
OTHERS = ("python -m venv", "vllm serve", "serving/bin/", "pip install", "export ")
SHOWING = ("trackio show", "tensorboard")
JUDGE_URL = "http://localhost:8001/v1"
SMALL = ("--columns", "geoqa_test")


def test_every_command_of_the_page_is_run_by_a_test_or_is_another_program_s() -> None:
    run = [*UNDER_PAPER, *WITH_TRACKERS, *OVER_PROCESSES, *SERVED_MINI]
    assert sorted(TYPED) == sorted(run)
    others = [line for line in LINES if not line.startswith("atrl-bench ") and line != LAUNCH]
    assert [line for line in others if not line.startswith((*OTHERS, *SHOWING))] == []
    assert len(BY_HUB) == 3
    assert len(BY_ENDPOINT) == 5
    assert len(BY_VLLM) == 5


def test_the_vllm_command_and_the_flags_of_the_page_are_the_ones_that_a_server_gets(tmp_path) -> None:
    [line] = [line for line in LINES if line.startswith("vllm serve")]
    config = {"vision_config": {}, "text_config": {"max_position_embeddings": 128_000}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    name, flags = "Qwen/Qwen2.5-VL-7B-Instruct", vllm_flags(tmp_path, load_profile("paper").evaluation, num_gpus=4)
    assert shlex.split(line) == serve_command("vllm", name, name, flags, 8000)
    explained = re.findall(r"^\| `(--[\w-]+)", TEXT, re.M)
    assert len(explained) == 5
    assert {*explained} < {word for word in flags if word.startswith("--")}


# Under paper -----------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(published_world: LocalHub, checkout) -> Machine:
    """A machine without a GPU whose hub has everything that the page names."""
    published_world.add("model", "Qwen/Qwen2.5-VL-7B-Instruct", base_folder("mini")).commits[FIRST]["README.md"] = (
        b"not asked for"
    )
    return Machine(checkout.folder, published_world, checkout.root)


@pytest.mark.slow
def test_the_commands_under_paper_run_one_after_the_other_up_to_where_a_gpu_is_needed(machine, serve, fit) -> None:
    model, judge = serve("It is \\boxed{7}."), serve(answer=fit(lambda _: "Incorrect"))
    secrets = {name: f"{name}-of-mine" for name in re.findall(r"export (\w+)=", TEXT)}

    def typed(line: str) -> tuple[int, str]:
        line = line.replace(JUDGE_URL, judge.url)
        line = re.sub(r"http://localhost:8000/v1|https://[\w./-]+", model.url, line)
        done = machine.type(*shlex.split(line), CUDA_VISIBLE_DEVICES="", **secrets)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    for line in BY_HUB:
        code, text = typed(line)
        assert code == 0, text
        assert re.search("are here.* Next: atrl-bench", text), text
    assert typed("fetch mmvu_val --profile paper")[0] == 0  # videos are fetched first, as the page says
    machine.endpoint = NOBODY  # from now on nothing is downloaded
    for line in UNDER_PAPER:
        if line in BY_HUB:
            continue
        if line in BY_VLLM:
            code, text = typed(line)
            assert code in (1, 2), (line, text)
            assert re.search("vLLM is not installed here|: 0 GPUs can be used here", text), (line, text)
        elif line in BY_ENDPOINT:
            code, text = typed(line if line.startswith("judge") else f"{line} --yes")
            assert code == 0, (line, text)
        elif line.startswith("evaluate"):  # the price is shown, and nothing is started
            code, text = typed(line)
            assert code == 2, (line, text)
            assert re.search(f"GPU-hours.*{re.escape(line)} --yes", text), (line, text)
        else:
            code, text = typed(f"{line} --yes")
            assert code in (1, 2), (line, text)
            assert re.search("does not fit here.*none .*here|: 0 GPUs can be used here", text), (line, text)

    run_folder = machine.folder / "runs" / "paper"
    assert not (run_folder / "checkpoints").exists()
    with Store.open(run_folder / "store.sqlite", read_only=True) as store:
        cells = store.cells(state="done")
    assert {cell.spec["model_name"] for cell in cells} == {line.split()[1] for line in BY_ENDPOINT} - {JUDGE_URL}
    assert {f"Bearer {secret}" for secret in secrets.values()} <= {
        request.headers.get("Authorization") for request, _ in model.log
    }
    assert judge.requests
    assert "judge: Qwen/Qwen2.5-72B-Instruct" in typed("plan main_7b --profile paper")[1]


@pytest.mark.parametrize("line", [line for line in INLINE if re.match(r"plan |judge$", line)])
def test_what_the_text_says_to_ask_is_answered(line, tmp_path, local_hub) -> None:
    if line == "plan scale_32b":
        line += " --columns mathvista_testmini"  # the benchmarks of a column are generated first
    done = Machine(tmp_path, local_hub).type(*shlex.split(line))
    assert done.returncode == 0, done.stderr
    assert done.stdout


# On processes of the CPU -----------------------------------------------------------------------------------------


def run(folder: Path, *arguments: str) -> str:
    """Return what a command of ours prints in this folder; it must succeed."""
    folder.mkdir(exist_ok=True)
    return command(*arguments, cwd=folder)


def keys(folder: Path) -> list[str]:
    """Return the keys of the trainings in the smoke run below this folder."""
    return [path.name for path in (folder / "runs" / "smoke" / "checkpoints").iterdir()]


@pytest.mark.slow
def test_several_processes_train_what_the_table_then_finds(tmp_path) -> None:
    train, table = (line.replace("--processes 4", "--processes 2") for line in OVER_PROCESSES)  # each loads torch
    run(tmp_path, *shlex.split(train))
    [key] = keys(tmp_path)
    assert "GRPO + AT-RL" in run(tmp_path, *shlex.split(table), "--rows", "grpo_atrl", *SMALL)
    assert keys(tmp_path) == [key]


@pytest.mark.slow
def test_two_machines_train_together_and_the_first_one_s_table_finds_the_checkpoint(tmp_path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    changes = {
        "recipes/launch/fsdp2.yaml": str(resources.folder("recipes") / "launch" / "cpu.yaml"),
        "--num_machines 4": "--num_machines 2",
        "--num_processes 32": "--num_processes 2",
        "10.0.0.1": "127.0.0.1",
        "29500": str(port),
        "--profile paper": "--profile smoke",
    }
    launch = LAUNCH.replace("accelerate launch", "-m accelerate.commands.launch")
    for theirs, ours in changes.items():
        assert theirs in launch
        launch = launch.replace(theirs, ours)
    processes = []
    for rank in (0, 1):
        folder = tmp_path / f"machine-{rank}"
        folder.mkdir()
        words = shlex.split(launch.replace("--machine_rank 0", f"--machine_rank {rank}"))
        environment = os.environ | {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
        with (folder / "log").open("w") as log:
            processes.append(
                subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, stdout=log, stderr=log)
            )
    codes = [process.wait(timeout=400) for process in processes]
    assert codes == [0, 0], [(tmp_path / f"machine-{rank}" / "log").read_text()[-3000:] for rank in (0, 1)]
    first, second = tmp_path / "machine-0", tmp_path / "machine-1"
    [key] = keys(first)
    made = {path.name for path in (second / "runs" / "smoke").iterdir()}
    assert made == {"data"}, "what is generated is generated on each machine, and nothing else is left there"
    [line] = [line for line in UNDER_PAPER if "--rows" in line]
    assert "GRPO + AT-RL" in run(first, *shlex.split(line.replace("paper", "smoke")), *SMALL)
    assert keys(first) == [key]


@needs.trackio
@pytest.mark.slow
def test_what_trackers_were_told_is_where_the_page_says(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    train, table = WITH_TRACKERS
    run(tmp_path, *shlex.split(table), "--profile", "smoke", "--rows", "grpo_atrl", *SMALL)
    [key] = keys(tmp_path)
    run(tmp_path, *shlex.split(train))
    assert keys(tmp_path) == [key]
    [show] = [line for line in LINES if line.startswith("trackio show")]
    words = shlex.split(show.replace("trackio show", "trackio list runs"))
    tools = Path(sys.executable).parent
    listed = subprocess.run([tools / words[0], *words[1:]], capture_output=True, text=True, check=True)
    assert f"grpo+atrl-seed0-{key}" in listed.stdout
    [board] = [line for line in LINES if line.startswith("tensorboard")]
    words = shlex.split(board.replace("runs/mini", "runs/smoke"))
    inspected = subprocess.run(
        [tools / words[0], *words[1:], "--inspect"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "train/loss" in inspected.stdout


@pytest.mark.slow
def test_a_served_model_answers_generated_benchmarks(tmp_path, serve) -> None:
    [line] = SERVED_MINI
    server = serve("It is \\boxed{7}.")
    folder = shutil.copytree(base_folder("mini"), tmp_path / "FOLDER")
    words = shlex.split(line.replace("http://127.0.0.1:8000/v1", server.url))
    printed = run(tmp_path, *words)
    assert re.search("geoqa_test.*mmmu_val", printed, re.S)
    assert {body["model"] for body in server.requests} == {folder.name}

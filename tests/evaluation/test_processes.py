"""Several processes on one evaluation, started by `accelerate launch` as on a machine with several GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atrl_bench.engines.processes import Processes, launched
from atrl_bench.mini.world import write_world
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

# What each process does; it writes down how many answers its own model gave.
PROGRAM = """
import json, os, sys
from pathlib import Path
from atrl_bench.models import local
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

num_answers, generate = 0, local.LocalModel.generate

def counted(self, prompts, repeats, sampling):
    global num_answers
    num_answers += sum(map(len, repeats))
    return generate(self, prompts, repeats, sampling)

if __name__ == "__main__":
    folder, data = Path(sys.argv[1]), Path(sys.argv[2])
    local.LocalModel.generate = counted
    profile = load_profile("smoke")
    sizes = profile.evaluation.model_copy(update={"batch_size": 3, "temperature": 1.0})
    profile = profile.model_copy(update={"evaluation": sizes})
    with Store.open(folder / "store.sqlite") as store:
        options = EvaluationOptions(limit=15)
        key = evaluate("mini", "geoqa_test", options, store=store, profile=profile, data_dir=data)
        report = {"state": store.cell(key).state, "num_answers": num_answers}
    (folder / f"process-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(report))
"""
LAUNCH = ["--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
LAUNCH += ["--main_process_port", "0"]  # any that is free


def content(path: Path) -> list:
    with Store.open(path) as store:
        (cell,) = store.cells()
        samples = store.samples(cell.key)
        return [cell.key, cell.expected] + [
            (s.problem, s.response.repeat, s.response.text, s.response.prompt_hash, s.verdict) for s in samples
        ]


@pytest.mark.slow
def test_two_processes_share_the_answers_and_end_like_one(tmp_path) -> None:
    data = write_world(tmp_path, load_profile("smoke"), ["geoqa"])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    launchers = {
        "one": [sys.executable],
        "two": [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", *LAUNCH],
    }
    reports = {}
    for name, launcher in launchers.items():
        folder = tmp_path / name
        folder.mkdir()
        command = [*launcher, str(program), str(folder), str(data)]
        subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True, timeout=300)
        reports[name] = [json.loads(path.read_text()) for path in sorted(folder.glob("process-*.json"))]
    assert content(tmp_path / "one" / "store.sqlite") == content(tmp_path / "two" / "store.sqlite")
    assert reports["one"] == [{"state": "done", "num_answers": 30}]
    # Five batches of three problems with two repeats each: the first, third and fifth, and the two between.
    assert reports["two"] == [{"state": "done", "num_answers": 18}, {"state": "done", "num_answers": 12}]


def test_a_process_that_was_not_launched_is_the_only_one(monkeypatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # some clusters say so of every job
    launched.cache_clear()
    alone = launched()
    assert (alone, alone.is_main) == (Processes(0, 1), True)
    assert alone.agree("as it is") == alone.main_first(lambda: "as it is") == "as it is"

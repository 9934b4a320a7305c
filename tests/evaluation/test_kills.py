"""An evaluation killed again and again at random moments ends with the answers and scores of one left alone."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from atrl_bench.mini import write_world
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

# Everything is imported once; each child is a fork that is killed at its own moment, so fifty kills take a minute.
PROGRAM = """
import json, os, random, signal, sys, time
import torch
import atrl_bench.evaluation.lmms, atrl_bench.models.local
from pathlib import Path
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.profiles import load_profile
from atrl_bench.results.store import Store

torch.set_num_threads(1)
profile = load_profile("mini")
profile = profile.model_copy(update={"evaluation": profile.evaluation.model_copy(
    update={"num_repeats": 4, "batch_size": 4, "temperature": 0.5})})

def run(path):
    with Store.open(path) as store:
        return evaluate("mini", "mathvision_testmini", store=store, profile=profile, data_dir=Path(sys.argv[1]))

def num_stored(path):
    with Store.open(path) as store:
        return sum(cell.num_responses for cell in store.cells())

def kill_at_random(path, rng):
    child = os.fork()
    if child == 0:
        os.setsid()
        run(path)
        os._exit(0)
    # Half of them at any moment, start-up included, the others some answers later than the one before.
    wanted = num_stored(path) + rng.randint(1, 20)
    deadline = time.monotonic() + (rng.uniform(0.05, 1.5) if rng.random() < 0.5 else 20)
    while time.monotonic() < deadline and num_stored(path) < wanted:
        time.sleep(rng.uniform(0.001, 0.02))
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
    os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

if __name__ == "__main__":
    rng, stored, exits, counts = random.Random(0), {}, [], []
    for _ in range(50):
        exits.append(kill_at_random(sys.argv[2], rng))
        with Store.open(sys.argv[2]) as store:
            for cell in store.cells():
                for sample, response in store.responses(cell.key).items():
                    assert stored.setdefault(sample, response) == response, sample
                counts.append(len(store.responses(cell.key)))
                assert counts[-1] == len(stored), "an answer was lost"
    run(sys.argv[2])
    run(sys.argv[3])
    print(json.dumps({"exits": exits, "counts": counts}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks with torch loaded")
def test_fifty_kills_lose_no_answer_and_change_no_score(tmp_path):
    world = write_world(tmp_path, load_profile("mini"), ["mathvision"])
    killed, alone = tmp_path / "killed.sqlite", tmp_path / "alone.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(world), str(killed), str(alone)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["exits"]) == 50
    assert report["exits"].count(-9) > 25, report["exits"]
    assert len(set(report["counts"])) > 10, "the kills should fall into the middle of the work"
    with Store.open(killed) as first, Store.open(alone) as second:
        [cell] = first.cells()
        assert cell.state == "done"
        with_kills, without = first.samples(cell.key), second.samples(cell.key)
    assert [(s.response.text, s.response.repeat, s.verdict.state) for s in with_kills] == [
        (s.response.text, s.response.repeat, s.verdict.state) for s in without
    ]

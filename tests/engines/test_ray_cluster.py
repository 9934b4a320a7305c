"""Three Ray nodes on this machine: what fails is told, what dies is begun again, and a table fills as it does alone."""

import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT

import psutil
import pytest
from stored import records
from worker_functions import call, die, die_once, name_nothing, write

from atrl_bench.engines.local import DeadWorkerError
from atrl_bench.errors import UnknownNameError

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "atrl_bench", "run-table", "main_7b", "--profile", "smoke"]
SELECTION = ["--rows", "zero_shot,grpo,grpo_atrl", "--columns", "geoqa_test"]
NODES = ("node-a", "node-b", "node-c")
LEADER = NODES[0]  # a cluster outlives any other of its nodes
SECONDS = 3600  # that the whole table may take
# Where a client's process on the head dies as it begins, Ray waits this long for it; then it is asked anew.
CLIENT_SECONDS = ("RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S", "100")  # 30 by default, too few on a busy machine
LOGGED_BY_RAY = ["ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"]


@pytest.fixture(scope="module")
def client_port():
    """The port of the cluster's Ray client server, that of `ray://`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def nodes(client_port):
    """A cluster of three nodes by name, that of `RAY_ADDRESS`; the first leads it and has no core for work."""
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    os.environ.update([CLIENT_SECONDS])
    cluster = Cluster()
    options = {"object_store_memory": 80 * 2**20, "include_dashboard": False, "include_log_monitor": False}
    kinds = {LEADER: {"num_cpus": 0, "ray_client_server_port": client_port}}
    nodes = {name: cluster.add_node(**kinds.get(name, {"num_cpus": 1}), node_name=name, **options) for name in NODES}
    os.environ["RAY_ADDRESS"] = cluster.address
    yield cluster, nodes
    import ray

    ray.shutdown()
    cluster.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.filterwarnings(*LOGGED_BY_RAY)
def test_what_fails_is_told_what_dies_is_begun_three_times_and_others_go_on(nodes, tmp_path):
    from atrl_bench.engines.ray_cluster import ClusterJob, RayCluster, Resources

    def job(name, function, *then):
        return ClusterJob((function, name), name, Resources(), then)

    died, after = tmp_path / "died", tmp_path / "after"
    jobs = [
        job("fails", partial(name_nothing, "atlr"), job("never begins", partial(write, str(tmp_path / "never")))),
        job("dies", partial(die, str(died))),
        job("dies once", partial(die_once, str(tmp_path / "once")), job("follows", partial(write, str(after)))),
    ]
    errors = {each.name: error for each, error in RayCluster.at().run(call, jobs, {"ATRL_BENCH_SAID": "x"})}
    assert errors.keys() == {"fails", "dies", "dies once", "follows"}
    assert isinstance(errors["fails"], UnknownNameError)
    assert "atrl" in errors["fails"].why
    assert isinstance(errors["dies"], DeadWorkerError)
    assert died.read_text() == "begun\n" * 3
    assert errors["dies once"] is errors["follows"] is None
    place, said = after.read_text().split()
    assert place in NODES
    assert said == "x"


def test_a_training_and_an_evaluation_by_ray_client_end_as_they_do_on_this_machine(nodes, client_port, alone, tmp_path):
    verbs = {
        "train": ["train", "grpo", "--on", "ray"],
        "evaluate": ["evaluate", "mini", "--tasks", "geoqa_test", "--on", f"ray://127.0.0.1:{client_port}"],
    }
    commands = {
        name: [*COMMAND[:3], *verb, "--profile", "smoke", "--out", tmp_path / name] for name, verb in verbs.items()
    }
    with ExitStack() as stack:
        begun = {
            name: stack.enter_context(subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, text=True))
            for name, command in commands.items()
        }
        outputs = {name: process.communicate(timeout=SECONDS)[0] for name, process in begun.items()}
    assert [process.returncode for process in begun.values()] == [0, 0], outputs
    ours = {name: records(tmp_path / name / "store.sqlite") for name in verbs}
    theirs = records(alone / "store.sqlite")
    for name, table, count in [("train", "runs", 1), ("evaluate", "responses", 48), ("evaluate", "grades", 48)]:
        of_table = {key: row for key, row in ours[name].items() if key.startswith(table)}
        assert len(of_table) == count
        assert of_table.items() <= theirs.items()
    for name in verbs:
        assert places(tmp_path / name) <= set(NODES), "this process did nothing itself"


def test_a_table_with_a_node_killed_on_the_way_ends_as_it_does_on_this_machine(nodes, alone):
    fill_with_a_node_killed(nodes, alone, SELECTION)


def test_a_training_over_two_nodes_of_which_one_is_killed_is_that_of_as_many_processes_here(nodes, tmp_path):
    """Four processes over two of three nodes; the third takes the place of the one that dies."""
    cluster, _ = nodes
    options = {"object_store_memory": 80 * 2**20, "include_dashboard": False, "include_log_monitor": False}
    large = [cluster.add_node(num_cpus=2, node_name=f"large-{name}", **options) for name in "abc"]
    names = {f"large-{name}": node for name, node in zip("abc", large, strict=True)}
    train = [*COMMAND[:3], "train", "grpo", "--profile", "smoke", "--json"]
    try:
        here = [*train, "--processes", "4", "--out", tmp_path / "here"]
        alone = subprocess.run(here, check=True, stdout=PIPE, text=True).stdout
        over = [*train, "--on", "ray", "--nodes", "2", "--out", tmp_path / "over"]
        with subprocess.Popen(over, stdout=PIPE, text=True) as process:
            place = wait_for_rollout(tmp_path / "over")
            machines = {words[words.index("--machine_rank") + 1]: words for words in launchers(tmp_path / "over")}
            import ray

            ray.shutdown()  # of this process, which may be connected to that very node
            cluster.remove_node(names.pop(place), allow_graceful=False)
            output, _ = process.communicate(timeout=SECONDS)
    finally:
        for node in names.values():
            cluster.remove_node(node)
    assert machines.keys() == {"0", "1"}
    assert all(words[words.index("--num_processes") + 1] == "4" for words in machines.values())
    assert json.loads(output)["digest"] == json.loads(alone)["digest"]
    assert place not in places(tmp_path / "over"), "what ran there ran again elsewhere"


@pytest.mark.large
def test_the_whole_table_with_a_node_killed_on_the_way_ends_as_it_does_on_this_machine(nodes, tmp_path):
    fill_with_a_node_killed(nodes, filled_alone(tmp_path, []), [])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return filled_alone(tmp_path_factory.mktemp("table"), SELECTION)


def filled_alone(parent: Path, selection: list[str]) -> Path:
    """Return a run folder that was filled without a cluster."""
    folder = parent / "run"
    subprocess.run([*COMMAND, *selection, "--out", folder], check=True, capture_output=True, timeout=SECONDS)
    return folder.rename(parent / "alone")  # pages may show the name


def fill_with_a_node_killed(nodes, alone: Path, selection: list[str]) -> None:
    import ray

    cluster, by_name = nodes
    folder = alone.parent / "run"
    command = [*COMMAND, *selection, "--on", "ray", "--out", str(folder)]
    status = [*COMMAND[:3], "status", "--profile", "smoke", "--out", folder]
    ray.shutdown()  # of this process, which may be connected to the node that dies
    with subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, text=True) as process:
        place = wait_for_rollout(folder)
        cluster.remove_node(by_name[place], allow_graceful=False)  # at once: a training here takes seconds
        while not re.search(r"running on node-[bc] +train", said := subprocess.check_output(status, text=True)):
            assert process.poll() is None, said
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    assert place not in {where for where, *_ in progress(folder)}, "what ran there ran again elsewhere"
    ours, theirs = contents(folder), contents(alone)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert sum(name.startswith("responses") for name in ours) > 50


def launchers(folder: Path) -> list[list[str]]:
    """Return the words of each command that starts one machine's processes of a training in `folder`."""
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [words for words in commands if "--machine_rank" in words and words[-1].startswith(str(folder))]


def wait_for_rollout(folder: Path) -> str:
    """Return the node of a training as soon as it has come through a rollout."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        with contextlib.suppress(sqlite3.Error):
            begun = [place for place, done, total in progress(folder) if 0 < done < total]
            if begun:
                return begun[0]
        time.sleep(0.05)
    raise AssertionError("no training has begun")


def progress(folder: Path) -> list[tuple[str, int, int]]:
    with contextlib.closing(sqlite3.connect(f"file:{folder / 'store.sqlite'}?mode=ro", uri=True)) as store:
        return store.execute("SELECT place, done, total FROM progress WHERE kind = 'run'").fetchall()


def places(folder: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(folder / "store.sqlite")) as store:
        return {place for (place,) in store.execute("SELECT place FROM progress")}


def contents(folder: Path) -> dict[str, object]:
    """Return pages, credit and records, without the time that each training took, which the front page says."""
    pages = {
        str(path.relative_to(folder)): path.read_bytes()
        for name in ("reports", "credit")
        for path in sorted((folder / name).rglob("*"))
        if path.is_file()
    }
    pages["reports/index.html"] = re.sub(rb"<td>[\d minsh]*</td>", b"", pages["reports/index.html"])
    return pages | records(folder / "store.sqlite")

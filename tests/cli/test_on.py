"""`--on`: what cannot be had is said before anything starts, with the command that mends it."""

import socket
import sys
import time

import pytest


@pytest.fixture
def refused(atrl_bench, tmp_path):
    """Return a function that gives the command on a cluster, and returns its exit code and what it said."""

    def run(name: str, *options: str) -> tuple[int, str]:
        ended = atrl_bench("run-table", "main_7b", "--profile", "smoke", "--on", name, *options)
        return ended.code, " ".join(ended.err.split())

    yield run
    assert not list(tmp_path.rglob("checkpoints")), "nothing has begun"


def test_an_unknown_cluster_has_its_near_names(refused):
    code, said = refused("rya")
    assert code == 2
    assert "Unknown cluster 'rya'. Did you mean ray?" in said


@pytest.mark.parametrize("name", ["ray://", "ray://head", "ray:head:10001", "head:6379", "slurm:gpu", "slurm:0"])
def test_an_address_or_a_number_of_nodes_that_is_none_is_refused_with_the_forms_to_write(name, refused):
    code, said = refused(name)
    assert code == 2
    assert f"Unknown cluster '{name}'." in said
    forms = "--on ray on a machine of the cluster, --on ray://HOST:10001 from another one, or --on slurm:NODES"
    assert f"Next: {forms}" in said


def test_ray_that_is_not_installed_is_named_with_its_extra(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, said = refused("ray")
    assert code == 1
    assert "Ray is not installed here. Next: pip install 'atrl-bench[ray]'" in said


@pytest.mark.parametrize("option", ["--jobs", "--gpus", "--processes"])
def test_what_a_clusters_scheduler_decides_is_not_said_beside_it(option, refused):
    code, said = refused("ray", option, "2")
    assert code == 2
    assert "leave out --jobs, --gpus and --processes" in said


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_that_is_not_there_is_named_with_the_command_that_starts_one(refused, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # Nor one that runs here for something else, or that somebody left behind: its nodes might never do the work.
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", lambda *_: set())
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda *_: None)
    code, said = refused("ray")
    assert code == 1
    assert "There is no Ray cluster: this machine is part of none." in said
    assert "ray start --head" in said


@pytest.mark.parametrize("is_client", [True, False])
def test_an_address_where_nothing_listens_is_named_at_once(is_client, refused, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    name = f"ray://{address}" if is_client else "ray"
    begun = time.monotonic()
    code, said = refused(name)
    assert time.monotonic() - begun < 25, "Ray itself goes on asking for longer"
    assert code == 1
    assert f"There is no Ray cluster: none answers at {name if is_client else address}." in said
    assert "refused" in said


def test_a_client_whose_process_on_the_head_dies_is_begun_three_times_and_the_cause_is_said(refused, monkeypatch):
    """Ray's client server begins a process for each client, and sends back the whole traceback where that fails."""
    begun = []

    def begin(address, **_):
        begun.append(address)
        raise ConnectionAbortedError("Initialization failure from server:\nTraceback:\nRuntimeError: it was killed")

    monkeypatch.setattr("ray.init", begin)
    monkeypatch.setattr("atrl_bench.engines.ray_cluster.SECONDS_BETWEEN_LOOKS", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"ray://127.0.0.1:{server.getsockname()[1]}"
        code, said = refused(name)
    assert code == 1
    assert begun == [name] * 3
    assert "RuntimeError: it was killed Next: ray start --head" in said

"""A Ray cluster: jobs go out as tasks, which Ray places, and begins again where their worker or node died.

What one node does not hold is a placement group of whole nodes, with a task on each; it begins again as one.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from atrl_bench.engines.devices import Cluster, Devices, Machines
from atrl_bench.engines.local import NUM_ATTEMPTS, DeadWorkerError, limit_threads, portable
from atrl_bench.errors import EndpointError, MachineTooSmallError, MissingDataError, reason_of

ItemT = TypeVar("ItemT")
HERE = "ray"  # the cluster that this machine belongs to, or RAY_ADDRESS names
AUTO = "auto"  # how Ray calls that
SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_TO_ANSWER = 10.0
SECONDS_TO_MISS_A_NODE = 60.0  # from the first error of those that wait for it to Ray's word that it is gone
LEADER = "node:__internal_head__"  # Ray's own name of the node that leads a cluster
CPUS_PER_GPU = 2  # a process, and the credit that is computed beside it
SENT_PREFIXES = ("ATRL_BENCH_", "HF_", "AWS_", "FSSPEC_")  # of the variables that a command passes on


@dataclass(frozen=True)
class Resources:
    """What a job asks for, all of it on one machine, or on each of several; without GPUs a process for each core."""

    gpus: int = 0
    cpus: int = 1
    memory_gb: float = 0.0  # 0 where the estimate says nothing
    nodes: int = 1


@dataclass(frozen=True)
class ClusterJob(Generic[ItemT]):
    """One job under its name, and the jobs that begin once it has succeeded."""

    item: ItemT
    name: str
    resources: Resources
    then: tuple[ClusterJob[ItemT], ...] = ()

    def all_jobs(self) -> Iterator[ClusterJob[ItemT]]:
        yield self
        for job in self.then:
            yield from job.all_jobs()


@dataclass(frozen=True)
class RayCluster(Cluster):
    """A cluster whose nodes reach this machine at `host`; `ray` is the module, connected to it."""

    host: str = ""
    ray: Any = None
    cpus_per_node: int = 1

    @classmethod
    def at(cls, name: str = HERE, nodes_per_training: int | None = None) -> RayCluster:
        """The cluster at `ray://HOST:PORT` of a Ray client server, else that which this machine is part of."""
        address = AUTO if name == HERE else name
        ray = _connected(address)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        # Of one and the same node: a job asks for no more than that has, or it would wait for ever.
        largest = max(nodes, key=lambda node: [node.get(kind, 0) for kind in ("GPU", "CPU", "memory")])
        gpus, cpus, memory = (largest.get(kind, 0) for kind in ("GPU", "CPU", "memory"))
        alike = sum(node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= cpus for node in nodes)
        host, memory_gb = _host(address), int(memory) / 1e9
        return cls(int(gpus), memory_gb, alike, nodes_per_training, host=host, ray=ray, cpus_per_node=int(cpus))

    def run(
        self, work: Callable[[ItemT, Devices], None], jobs: Sequence[ClusterJob[ItemT]], variables: Mapping[str, str]
    ) -> Iterator[tuple[ClusterJob[ItemT], BaseException | None]]:
        """Each job when it has ended, with its error; what comes after one that failed never begins.

        Whoever stops waiting stops the work. A job that fits no node, which would wait for ever, is refused at once.
        """
        for job in (each for first in jobs for each in first.all_jobs()):
            self._require_node(job)
        passed = {name: value for name, value in os.environ.items() if name.startswith(SENT_PREFIXES)}
        passed["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")  # as on one machine, whatever Ray would set
        passed.update(variables)
        running = {self._submit(work, job, passed): job for job in jobs}
        try:
            while running:
                # In turns, so that an interrupt comes through. What Ray says of dead nodes it prints among our results.
                with redirect_stdout(sys.stderr):
                    ended, _ = self.ray.wait(list(running), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
                for task in ended:
                    job, error = running.pop(task), self._error(task)
                    if error is None:
                        running |= {self._submit(work, after, passed): after for after in job.then}
                    yield job, error
        finally:
            for task in running:
                self.ray.cancel(task, force=True)

    def _require_node(self, job: ClusterJob[Any]) -> None:
        needs, largest = job.resources.gpus, self.gpus_per_node
        if job.resources.nodes > self.nodes:
            raise MachineTooSmallError(
                f"The cluster has too few nodes for a job: {job.name}.",
                why=f"It needs {job.resources.nodes} of the size of the largest; there are {self.nodes}.",
                next_step="the same command once more nodes have joined, or with --nodes",
            )
        if needs > largest:
            raise MachineTooSmallError(
                f"No node of the cluster has the GPUs for a job: {job.name}.",
                why=f"It needs {needs} on one node; the largest has {largest or 'none'}.",
                next_step="the same command on a cluster with such a node, or without --on to use this machine",
            )

    def _submit(self, work: Callable[[ItemT, Devices], None], job: ClusterJob[ItemT], variables: dict[str, str]) -> Any:
        resources = job.resources
        options: dict[str, Any] = {
            "name": job.name,
            "num_cpus": min(resources.cpus, self.cpus_per_node),
            "num_gpus": resources.gpus,
            "max_retries": NUM_ATTEMPTS - 1,  # of workers and nodes that die: what fails says so as a result
        }
        if resources.memory_gb:
            options["memory"] = int(min(resources.memory_gb, self.memory_gb) * 1e9)
        if resources.gpus:
            options["max_calls"] = 1  # they are free when the process that used them is gone
        # The work is read once the variables are set: what it imports looks at them.
        payload = pickle.dumps((work, job.item))
        if resources.nodes > 1:
            # It outlives every node but that without which there is no cluster.
            leader = {"name": job.name, "num_cpus": 0, "resources": {LEADER: 0.001}, "max_retries": NUM_ATTEMPTS - 1}
            each = replace(resources, cpus=self.cpus_per_node, memory_gb=min(resources.memory_gb, self.memory_gb))
            return self.ray.remote(**leader)(_run_on_nodes).remote(payload, os.getcwd(), variables, each)
        return self.ray.remote(**options)(_run_on_node).remote(payload, os.getcwd(), variables, resources.cpus)

    def _error(self, task: Any) -> BaseException | None:
        try:
            error: Exception | None = self.ray.get(task)
        except self.ray.exceptions.RayError as death:
            how = f"or its node died ({type(death).__name__})"
            return DeadWorkerError(how, "ray logs, and more memory for its nodes if that ran out")
        return error


def _run_on_nodes(payload: bytes, folder: str, variables: Mapping[str, str], each: Resources) -> Exception | None:
    """Do a job on so many whole nodes, and again on others where one died; return its error if it failed."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    size = {"num_cpus": each.cpus, "num_gpus": each.gpus, "memory": int(each.memory_gb * 1e9) or None}
    bundle = {"CPU": each.cpus, "GPU": each.gpus, "memory": size["memory"]}
    for _ in range(NUM_ATTEMPTS):
        group = placement_group([{kind: n for kind, n in bundle.items() if n}] * each.nodes, strategy="STRICT_SPREAD")

        def place(index: int, work: Callable[..., Any], *values: Any, group: Any = group) -> Any:
            where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            return ray.remote(**size, scheduling_strategy=where, max_retries=0)(work).remote(*values)

        tasks = []
        try:
            host, port = ray.get(place(0, _meeting_place))
            over = [Machines(each.nodes, index, host, port) for index in range(each.nodes)]
            tasks = [place(one.index, _run_on_node, payload, folder, variables, each.cpus, one) for one in over]
            return _first_error(tasks)
        except ray.exceptions.RayError as death:
            reason = type(death).__name__
        finally:
            for task in tasks:
                ray.cancel(task, force=True)
            remove_placement_group(group)
    return DeadWorkerError(f"or one of its {each.nodes} nodes died ({reason})", "ray logs, and what else its nodes run")


def _first_error(tasks: Sequence[Any]) -> Exception | None:
    """What the first of these tasks failed with, if any; where one died, which is why others fail, Ray's error."""
    import ray

    errors, left, deadline = [], list(tasks), float("inf")
    while left and time.monotonic() < deadline:
        ended, left = ray.wait(left, num_returns=1, timeout=1.0)
        errors += [error for error in ray.get(ended) if error is not None]
        if errors:  # a dead node is noticed later than by those who wait for it
            deadline = min(deadline, time.monotonic() + SECONDS_TO_MISS_A_NODE)
    return errors[0] if errors else None


def _meeting_place() -> tuple[str, int]:
    import ray.util

    with socket.create_server(("", 0)) as server:
        return str(ray.util.get_node_ip_address()), int(server.getsockname()[1])


def _run_on_node(
    payload: bytes, folder: str, variables: Mapping[str, str], cpus: int, machines: Machines | None = None
) -> Exception | None:
    """Do a job on the GPUs that Ray gives this task, else in so many processes; return its error if it failed."""
    import ray

    try:
        names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
        node = str(names.get(ray.get_runtime_context().get_node_id(), socket.gethostname()))
        gpus = [str(gpu) for gpu in ray.get_gpu_ids()]
        os.environ.update({**variables, "ATRL_BENCH_PLACE": node})
        limit_threads()
        if not Path(folder).is_dir():
            then = "give the command in a folder that all machines share"
            raise MissingDataError(f"{node} has no folder {folder}, where the command was given.", next_step=then)
        os.chdir(folder)  # which names everything else
        work, item = pickle.loads(payload)
        work(item, Devices(tuple(gpus), 1 if gpus else cpus, machines))
    except Exception as error:
        return portable(error)
    return None


def _connected(address: str) -> Any:
    # What Ray holds back of the same words of several nodes it would print when this command has printed its results.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingDataError("Ray is not installed here.", next_step="pip install 'atrl-bench[ray]'") from None
    if not ray.is_initialized():
        named = os.environ.get("RAY_ADDRESS", AUTO) if address == AUTO else address
        try:
            parts = urlsplit(named if "://" in named else f"//{named}")
            if parts.hostname and parts.port:  # where nothing listens Ray would ask for minutes
                socket.create_connection((parts.hostname, parts.port), SECONDS_TO_ANSWER).close()
            _begin(ray, address)
        except Exception as error:  # of many kinds, each after Ray has asked for a while
            where = "this machine is part of none" if named == AUTO else f"none answers at {named}"
            raise EndpointError(
                f"There is no Ray cluster: {where}.",
                why=_cause(error),
                next_step="ray start --head, on the others ray start --address=HEAD:6379, then the same command",
            ) from None
    return ray


def _begin(ray: Any, address: str) -> None:
    for left in reversed(range(NUM_ATTEMPTS)):
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            return
        except ConnectionAbortedError:  # of the process that `ray://` begins for each client: on a busy head it may die
            if not left:
                raise
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _cause(error: Exception) -> str:
    """The last line: what comes from the head is a whole traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1] if len(lines) > 1 else reason_of(error)


def _host(address: str) -> str:
    """The address by which a cluster's nodes reach this machine; `ATRL_BENCH_HOST` names a better one."""
    if address == AUTO:
        import ray.util

        return str(ray.util.get_node_ip_address())
    if named := os.environ.get("ATRL_BENCH_HOST"):
        return named
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing: it only chooses a way there
        try:
            probe.connect((urlsplit(address).hostname, 1))
        except OSError:  # a machine without a network has itself
            return "127.0.0.1"
        return str(probe.getsockname()[0])

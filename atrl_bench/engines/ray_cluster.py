"""A Ray cluster: each errand is a task, which Ray places, begins again where its worker or node died, and counts."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from atrl_bench.engines.cluster import Errand, address_towards
from atrl_bench.engines.local import NUM_ATTEMPTS, DeadWorkerError
from atrl_bench.errors import EndpointError, MissingDataError, reason_of

HERE = "auto"  # the cluster that this machine belongs to, or RAY_ADDRESS names
SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_TO_ANSWER = 10.0


class RayCluster:
    """The cluster at an address: `ray://HOST:PORT` of a Ray client server, else that which this machine is part of."""

    def __init__(self, address: str = HERE, *, new_processes: bool = True) -> None:
        self._ray = ray = _connected(address)
        self.host = _host(address)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        # Of one and the same node: a job asks for no more than that has, or it would wait for ever.
        largest = max(nodes, key=lambda node: [node.get(kind, 0) for kind in ("GPU", "CPU", "memory")])
        self.gpus_per_node = int(largest.get("GPU", 0))
        self._cpus_per_node = int(largest.get("CPU", 0))
        self._bytes_per_node = int(largest.get("memory", 0))
        self.memory_gb = self._bytes_per_node / 1e9
        self._task = self._gpu_task = ray.remote(_do)
        if new_processes:
            self._gpu_task = ray.remote(max_calls=1)(_do)  # GPUs are free when the process that used them is gone

    def submit(self, errand: Errand) -> Any:
        """Return the reference to a task."""
        resources = errand.resources
        options = {
            "name": errand.name,
            "num_cpus": min(resources.cpus, self._cpus_per_node),
            "num_gpus": resources.gpus,
            "max_retries": NUM_ATTEMPTS - 1,  # of workers and nodes that die: what fails says so as a result
        }
        if resources.memory_gb:
            options["memory"] = min(int(resources.memory_gb * 1e9), self._bytes_per_node)
        task = self._gpu_task if resources.gpus else self._task
        return task.options(**options).remote(errand)

    def ended(self, sent: Collection[Any]) -> list[tuple[Any, BaseException | None]]:
        """Return the tasks of these that have ended, with their errors."""
        done: list[Any] = []
        while not done:  # in turns, so that an interrupt comes through
            done, _ = self._ray.wait(list(sent), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
        return [(task, self._error(task)) for task in done]

    def _error(self, task: Any) -> BaseException | None:
        try:
            error: Exception | None = self._ray.get(task)
        except self._ray.exceptions.RayError as death:
            return DeadWorkerError(
                f"or its node died ({type(death).__name__})", "ray logs, and more memory for its nodes if that ran out"
            )
        return error

    def cancel(self, sent: Collection[Any]) -> None:
        """Stop these tasks at once."""
        for task in sent:
            self._ray.cancel(task, force=True)


def _do(errand: Errand) -> Exception | None:
    import ray

    context = ray.get_runtime_context()
    names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    gpus = [str(gpu) for gpu in ray.get_gpu_ids()]
    return errand.do(gpus, str(names.get(context.get_node_id(), socket.gethostname())))


def _connected(address: str) -> Any:
    """Return ray, connected to the cluster at this address."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingDataError(
            "--on ray needs Ray, which is not installed here.", next_step="pip install 'atrl-bench[ray]'"
        ) from None
    if not ray.is_initialized():
        named = os.environ.get("RAY_ADDRESS", HERE) if address == HERE else address
        try:
            _require_answer(named)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # of many kinds, each after Ray has asked for a while
            where = "this machine is part of none" if named == HERE else f"none answers at {named}"
            raise EndpointError(
                f"There is no Ray cluster: {where}.",
                why=reason_of(error),
                next_step="ray start --head, on the others ray start --address=HEAD:6379, then the same command",
            ) from None
    return ray


def _require_answer(address: str) -> None:
    """Raise `OSError` at once where nothing listens at an address, which Ray would ask for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    if parts.hostname and parts.port:
        socket.create_connection((parts.hostname, parts.port), SECONDS_TO_ANSWER).close()


def _host(address: str) -> str:
    """Return the address by which a cluster's nodes reach this machine."""
    if address == HERE:
        import ray.util

        return str(ray.util.get_node_ip_address())
    return address_towards(urlsplit(address).hostname)

"""What `--on` names."""

from __future__ import annotations

from atrl_bench.engines.devices import Machine
from atrl_bench.engines.ray_cluster import HERE, RayCluster
from atrl_bench.errors import UnknownNameError

NAMES = ("ray", "ray://HOST:PORT")


def cluster_machine(name: str) -> Machine:
    """Return the cluster that `--on` names as what work may run on: the GPUs of its largest node."""
    if name != "ray" and not name.startswith("ray://"):
        raise UnknownNameError("cluster", name, NAMES, next_step="--on ray, on a machine of the cluster")
    cluster = RayCluster(HERE if name == "ray" else name)
    return Machine(tuple(map(str, range(cluster.gpus_per_node))), cluster=cluster)

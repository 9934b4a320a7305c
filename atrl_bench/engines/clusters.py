"""What `--on` names."""

from __future__ import annotations

from atrl_bench.engines.cluster import Cluster
from atrl_bench.engines.devices import Machine
from atrl_bench.engines.ray_cluster import HERE, RayCluster
from atrl_bench.engines.slurm import SlurmCluster
from atrl_bench.errors import UnknownNameError

NAMES = ("ray", "ray://HOST:PORT", "slurm", "slurm:PARTITION", "print")


def cluster_machine(name: str) -> Machine:
    """Return the cluster that `--on` names as what work may run on: the GPUs of its largest node."""
    kind, _, rest = name.partition(":")
    if kind not in ("ray", "slurm") or (kind == "ray" and rest and not rest.startswith("//")):
        raise UnknownNameError("cluster", name, NAMES, next_step="--on ray, on a machine of the cluster")
    cluster: Cluster = SlurmCluster(rest or None) if kind == "slurm" else RayCluster(name if rest else HERE)
    return Machine(tuple(map(str, range(cluster.gpus_per_node))), cluster=cluster)

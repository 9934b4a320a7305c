"""What `--on` names."""

from __future__ import annotations

import re

from atrl_bench.engines.cluster import Cluster
from atrl_bench.engines.devices import Machine
from atrl_bench.engines.ray_cluster import HERE, RayCluster
from atrl_bench.engines.slurm import SlurmCluster
from atrl_bench.errors import UnknownNameError

NAMES = ("ray", "ray://HOST:PORT", "slurm", "slurm:PARTITION", "print")
FORM = re.compile(r"ray|ray://[^\s/]+:\d{1,5}|slurm|slurm:[\w.,-]+")


def cluster_machine(name: str) -> Machine:
    """Return the cluster that `--on` names as what work may run on: the GPUs of its largest node."""
    if not FORM.fullmatch(name):
        forms = "--on ray on a machine of the cluster, --on ray://HOST:10001 from another one, or --on slurm:PARTITION"
        raise UnknownNameError("cluster", name, NAMES, next_step=forms)
    kind, _, rest = name.partition(":")
    cluster: Cluster = SlurmCluster(rest or None) if kind == "slurm" else RayCluster(name if rest else HERE)
    return Machine(tuple(map(str, range(cluster.gpus_per_node))), cluster=cluster)

"""How tables would go over a cluster: their real jobs under Ray's own scheduler, on GPUs that exist only as numbers.

    python benchmarks/schedule.py [--nodes 8] [--tables main_7b,video] [--seconds 300] [--failure] [--sampler local]

Needs no GPU: a cluster of nodes with eight GPUs each is started on this machine. Every training and every row's answers
of the tables under profile paper, each once, goes out as `run-table --on ray` would send it, asks for what its
estimate says, and sleeps as long as that says, scaled so that the work of all GPUs takes `--seconds`. What a training
has done is kept after each of its rollouts, as its snapshots keep it. All of them go out at once, as when each table's
command is given at the same time; `run-table all` takes one table after another. `--failure` does it once more, and
kills one node for good after a third of the ideal time. What Ray itself takes to place a job is part of the times, and
enlarged with them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from atrl_bench.digests import spec_key
from atrl_bench.engines.devices import GPUS_PER_NODE, VISIBLE
from atrl_bench.engines.ray_cluster import ClusterJob, RayCluster
from atrl_bench.evaluation.cell_spec import Engine
from atrl_bench.experiments.cluster_jobs import AnyJob, parts_of
from atrl_bench.experiments.definition import list_tables
from atrl_bench.experiments.jobs import TrainingJob, job_of_row
from atrl_bench.experiments.plan import Job, Plan, plan_table
from atrl_bench.experiments.price import price_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import load_profile

sys.path.insert(0, str(Path(__file__).parent))
from sleeping_jobs import Sleep, do


@dataclass(frozen=True)
class Interval:
    """When an attempt at a job ran, in hours since the beginning, and on which node."""

    name: str
    gpus: int
    node: str
    start: float
    end: float


@dataclass(frozen=True)
class Node:
    """A node of the cluster, and what kills it."""

    name: str
    kill: Callable[[], None]


@dataclass(frozen=True)
class Schedule:
    """What became of the jobs of some tables on so many GPUs."""

    num_gpus: int
    intervals: tuple[Interval, ...]
    hours_of_work: float  # GPU-hours
    left_out: tuple[str, ...]

    @property
    def hours(self) -> float:
        """When the last job ended."""
        return max(interval.end for interval in self.intervals)

    @property
    def last_start(self) -> float:
        """When the last job began: until then GPUs are idle only where no job fits on them."""
        return max(interval.start for interval in self.intervals)

    def idle(self, end: float) -> float:
        """Return the share of all GPUs' time before this hour in which they were idle."""
        busy = sum(each.gpus * max(0.0, min(each.end, end) - each.start) for each in self.intervals)
        return 1 - busy / (self.num_gpus * end)


def jobs_of(tables: Sequence[str], sampler: str, folder: Path) -> tuple[list[ClusterJob[Sleep]], list[str]]:
    """Return the jobs of these tables, each once and the largest first, with the names of those that no node holds."""
    run_dir = RunDir.at(folder / "paper", load_profile("paper").sampled_by(sampler))
    if sampler == "vllm":
        run_dir = replace(run_dir, engine=Engine("vllm", "0"))
    pieces: dict[tuple[str | None, str], ClusterJob[Sleep]] = {}
    left_out = []
    with run_dir.open_store() as store:
        for table in tables:
            plan = plan_table(table, run_dir)
            hours_of = estimated_hours(plan)
            for job in plan.jobs:
                at, parts = (job.run_key, job.model), parts_of(job_of_row(job, run_dir), store)
                if at in pieces or not parts or not parts[0].resources.gpus:
                    continue  # stands in another table, or is a small world's, for a CPU
                if parts[0].resources.gpus > GPUS_PER_NODE:
                    left_out.append(f"{table}: {job.name}")
                else:
                    pieces[at] = sleeping(parts[0], table, hours_of(job), folder)
    return sorted(pieces.values(), key=lambda piece: -piece.item.gpus * piece.item.hours), left_out


def estimated_hours(plan: Plan) -> Callable[[Job], tuple[float, float]]:
    """Return what says how many hours a job trains on its GPUs, and how many GPU-hours it answers."""
    cost = price_of(plan)

    def hours_of(job: Job) -> tuple[float, float]:
        row, seed = job.row_at_rate, job.seed
        trainings = [
            each
            for each in cost.trainings
            if each.seed == seed and (each.row == row or each.row.endswith(f", for {row}"))
        ]
        cells = [each for each in cost.cells if (each.row, each.seed) == (row, seed)]
        return sum(each.needs.hours for each in trainings), sum(each.needs.gpu_hours for each in cells)

    return hours_of


def sleeping(piece: ClusterJob[AnyJob], table: str, hours: tuple[float, float], folder: Path) -> ClusterJob[Sleep]:
    """Return the piece of work with its hours in place of its work."""
    training, answering = hours
    is_training, gpus = isinstance(piece.item, TrainingJob), piece.resources.gpus
    name = f"{table}: {piece.name}"
    file = folder / f"{spec_key({'name': name})}.log"
    sleep = Sleep(name, training if is_training else answering / gpus, gpus, is_training, str(file))
    then = tuple(sleeping(each, table, (0.0, answering / len(piece.then)), folder) for each in piece.then)
    return ClusterJob(sleep, name, piece.resources, then)


def simulate(
    pieces: Sequence[ClusterJob[Sleep]], num_gpus: int, seconds: float, lost: Node | None
) -> tuple[list[Interval], float]:
    """Return when each attempt ran, and the GPU-hours of all of it; `lost` dies after a third of the seconds."""
    all_pieces = [part for first in pieces for part in first.all_jobs()]
    work = sum(each.item.gpus * each.item.hours for each in all_pieces)
    if lost is not None:
        threading.Thread(target=kill_in_its_work, args=(lost, all_pieces, seconds / 3), daemon=True).start()
    started, rate = time.time(), seconds * num_gpus / work
    cluster = replace(RayCluster.at(), new_processes=False)
    for piece, error in cluster.run(partial(do, seconds_per_hour=rate), pieces, {}):
        if error is not None:
            raise RuntimeError(f"{piece.name}: {error}")
    intervals = []
    for piece in all_pieces:
        ends = {(begun, node): ended for begun, ended, node in lines_of(piece)}
        for (begun, node), ended in ends.items():
            start, end = (float(time) - started for time in (begun, ended))
            intervals.append(Interval(piece.name, piece.item.gpus, node, start / rate, end / rate))
    return intervals, work


def kill_in_its_work(node: Node, pieces: Sequence[ClusterJob[Sleep]], seconds: float) -> None:
    """Kill a node after so many seconds, or once it has done something: workers take a while to start."""
    time.sleep(seconds)
    while not any(node.name == name for piece in pieces for *_, name in lines_of(piece)):
        time.sleep(0.05)
    node.kill()


def lines_of(piece: ClusterJob[Sleep]) -> list[list[str]]:
    """Return what a job has written down: when the attempt began, when a part of it was done, and on which node."""
    path = Path(piece.item.file)
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def cluster_of(num_nodes: int) -> Iterator[Node]:
    """Start a cluster of nodes with GPUs that are numbers, and yield one of its nodes."""
    from ray.cluster_utils import Cluster

    folder = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, folder + "/..", os.environ.get("PYTHONPATH", "")])
    os.environ |= {"RAY_prestart_worker_first_driver": "0"}  # what sleeps needs no worker for each core
    os.environ.pop(VISIBLE, None)  # Ray starts no node with more GPUs than this leaves, be they only numbers
    cluster, nodes = Cluster(), []
    options = {"num_cpus": 2 * GPUS_PER_NODE, "num_gpus": GPUS_PER_NODE, "memory": 2 * 10**12}
    options |= {"object_store_memory": 80 * 2**20, "include_dashboard": False, "include_log_monitor": False}
    for number in range(num_nodes):
        try:
            nodes.append((f"node-{number}", cluster.add_node(**options, node_name=f"node-{number}")))
        except Exception as error:  # Ray waits 30 seconds for a node; on a busy machine it comes later
            if "timed out" not in str(error).lower():
                raise
    os.environ["RAY_ADDRESS"] = cluster.address
    ray = RayCluster.at().ray
    while sum(node["Alive"] for node in ray.nodes()) < num_nodes:
        time.sleep(1)
    try:
        name, node = nodes[-1]
        yield Node(name, partial(cluster.remove_node, node, allow_graceful=False))
    finally:
        ray.shutdown()
        cluster.shutdown()
        del os.environ["RAY_ADDRESS"]


def schedule(tables: Sequence[str], num_nodes: int, seconds: float, sampler: str, lost: Node | None = None) -> Schedule:
    """Return the schedule of these tables on the nodes of the cluster that is running."""
    num_gpus = num_nodes * GPUS_PER_NODE
    with tempfile.TemporaryDirectory() as folder:
        pieces, left_out = jobs_of(tables, sampler, Path(folder))
        intervals, work = simulate(pieces, num_gpus, seconds, lost)
    return Schedule(num_gpus, tuple(intervals), work, tuple(left_out))


def report(result: Schedule, title: str) -> None:
    ideal = result.hours_of_work / result.num_gpus
    longest = max(result.intervals, key=lambda each: each.end - each.start)
    print(f"\n{title}")
    print(f"{len(result.intervals)} pieces of work, {result.hours_of_work:,.0f} GPU-hours on {result.num_gpus} GPUs")
    print(f"if no GPU were ever idle: {ideal:,.1f} h; on Ray's scheduler: {result.hours:,.1f} h")
    print(f"idle: {result.idle(result.hours):.1%} of all GPU time; {result.idle(result.last_start):.1%} until the last")
    print(f"  job begins, after {result.last_start:,.1f} h")
    print(f"longest: {longest.name}, {longest.end - longest.start:,.1f} h on {longest.gpus} GPUs")
    for each in sorted(result.intervals, key=lambda each: -each.end)[:3]:
        print(f"ends late: {each.name}, from {each.start:,.1f} to {each.end:,.1f} h on {each.gpus} GPUs")
    for name in result.left_out:
        print(f"left out, for more GPUs than a node has: {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--tables", help="separated by commas; default: all")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--sampler", choices=["vllm", "local"], default="vllm")
    parser.add_argument("--failure", action="store_true")
    options = parser.parse_args()
    tables = options.tables.split(",") if options.tables else list_tables()
    with cluster_of(options.nodes) as node:
        arguments = (tables, options.nodes, options.seconds, options.sampler)
        report(schedule(*arguments), "All nodes live:")
        if options.failure:
            report(schedule(*arguments, node), "One node dies for good after a third of the ideal time:")


if __name__ == "__main__":
    main()

"""Work in pieces that go out to a cluster: what each needs, what comes after it, and how a machine there does it.

Where a piece runs, and what becomes of it when its machine dies, is the business of the cluster's own scheduler:
`ray_cluster.py` and `slurm.py` say what they are asked.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from atrl_bench.engines.devices import Devices
from atrl_bench.engines.local import be_worker, portable
from atrl_bench.errors import MachineTooSmallError, MissingDataError

ItemT = TypeVar("ItemT")
CPUS_PER_GPU = 2  # a process, and the credit that is computed beside it
NOWHERE = "192.0.2.1"  # an address that is nobody's, by RFC 5737
SENT_PREFIXES = ("ATRL_BENCH_", "HF_")  # of the variables that a command passes on


@dataclass(frozen=True)
class Resources:
    """What a piece of work asks for, all of it on one machine; without GPUs a process for each core."""

    gpus: int = 0
    cpus: int = 1
    memory_gb: float = 0.0  # 0 where the estimate says nothing


@dataclass(frozen=True)
class WorkPiece(Generic[ItemT]):
    """One piece of work under its name, and the pieces that begin once it has succeeded."""

    item: ItemT
    name: str
    resources: Resources
    then: tuple[WorkPiece[ItemT], ...] = ()

    @property
    def num_pieces(self) -> int:
        """How many pieces of work there are from this one on."""
        return len(list(self.all_pieces()))

    def all_pieces(self) -> Iterator[WorkPiece[ItemT]]:
        """Yield this piece and all that come after it."""
        yield self
        for piece in self.then:
            yield from piece.all_pieces()


@dataclass(frozen=True)
class Errand:
    """What a machine of the cluster is sent: work on an item, pickled, to be read once the variables are set."""

    name: str
    payload: bytes
    folder: str
    variables: Mapping[str, str]
    resources: Resources

    def do(self, gpus: Sequence[str], place: str) -> Exception | None:
        """Do it on these GPUs of this machine, and return its error if it failed."""
        try:
            os.environ.update({**self.variables, "ATRL_BENCH_PLACE": place})
            be_worker()
            _enter(self.folder, place)
            work, item = pickle.loads(self.payload)
            work(item, Devices(tuple(gpus)) if gpus else Devices(processes=self.resources.cpus))
        except Exception as error:
            return portable(error)
        return None


class Cluster(Protocol):
    """What schedules errands; its largest node has so many GPUs and so much memory."""

    host: str  # the address under which its nodes reach this machine
    gpus_per_node: int
    memory_gb: float

    def submit(self, errand: Errand) -> Any:
        """Return what stands for an errand that has been sent."""

    def ended(self, sent: Collection[Any]) -> list[tuple[Any, BaseException | None]]:
        """Return those of these that have ended, with their errors; waits until one has."""

    def cancel(self, sent: Collection[Any]) -> None:
        """Stop these."""


def over_cluster(
    cluster: Cluster,
    work: Callable[[ItemT, Devices], None],
    pieces: Sequence[WorkPiece[ItemT]],
    variables: Mapping[str, str],
) -> Iterator[tuple[WorkPiece[ItemT], BaseException | None]]:
    """Yield each piece when it has ended, with its error; what would have come after one that failed never begins.

    Whoever stops waiting stops the work. A piece that no node has the GPUs for is refused before any is sent: it would
    wait for ever.
    """
    for piece in (part for whole in pieces for part in whole.all_pieces()):
        _require_node(cluster, piece)
    passed = {name: value for name, value in os.environ.items() if name.startswith(SENT_PREFIXES)}
    passed["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")  # as on one machine, whatever Ray would set
    passed.update(variables)

    def send(piece: WorkPiece[ItemT]) -> Any:
        payload = pickle.dumps((work, piece.item))
        return cluster.submit(Errand(piece.name, payload, os.getcwd(), passed, piece.resources))

    running = {send(piece): piece for piece in pieces}
    try:
        while running:
            for sent, error in cluster.ended(running):
                piece = running.pop(sent)
                if error is None:
                    running |= {send(after): after for after in piece.then}
                yield piece, error
    finally:
        cluster.cancel(running)


def address_towards(other: str | None) -> str:
    """Return the address of this machine on its way to another one, or to any; `ATRL_BENCH_HOST` names a better one."""
    if named := os.environ.get("ATRL_BENCH_HOST"):
        return named
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing: it only chooses a way there
        try:
            probe.connect((other or NOWHERE, 1))
        except OSError:  # a machine without a network has itself
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _require_node(cluster: Cluster, piece: WorkPiece[Any]) -> None:
    needs, largest = piece.resources.gpus, cluster.gpus_per_node
    if needs > largest:
        raise MachineTooSmallError(
            f"No node of the cluster has the GPUs for a job: {piece.name}.",
            why=f"It needs {needs} on one node; the largest has {largest or 'none'}.",
            next_step="the same command on a cluster with such a node, or without --on to use this machine",
        )


def _enter(folder: str, place: str) -> None:
    """Go to the folder that the command was given in, which names everything else."""
    if not Path(folder).is_dir():
        raise MissingDataError(
            f"{place or 'A machine of the cluster'} has no folder {folder}.",
            why="The command was given there, and its run folder is named from there.",
            next_step="give the command in a folder that all machines share",
        )
    os.chdir(folder)

"""Which problem comes when, with which seed, and which process trains on which responses to it.

All are functions of the run's seed, so a resumed run needs no state, and the update is the same on any number of
processes. The responses of a rollout are shuffled and cut into the updates on it, as one process would do it. Those of
each update that have something to learn from are dealt out: an update sees the same responses whoever holds them. A
process keeps those that it sampled, as far as its share goes. All shares are of one size, since processes take their
passes together.

Shapes: R responses of a rollout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


def generator(*key: object) -> np.random.Generator:
    digest = hashlib.sha256(":".join(map(str, key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def rollout_seed(run_seed: int, rollout: int) -> int:
    """The seed of everything random in one rollout; it fits NumPy's 32 bits with room for process numbers."""
    return int(generator("rollout", run_seed, rollout).integers(2**31))


def problem_order(num_problems: int, count: int, run_seed: int) -> list[int]:
    """The first `count` problems of a run: pass after pass over the data, each in a new order."""
    passes = -(-count // num_problems)
    order = [generator("order", run_seed, number).permutation(num_problems) for number in range(passes)]
    return [int(row) for row in np.concatenate(order)[:count]]


def further_problems(num_problems: int, used: Sequence[int], run_seed: int, rollout: int) -> Iterator[int]:
    """Yield problems beyond those of a rollout, for dynamic sampling: unused ones first, then all again."""
    rng = generator("further", run_seed, rollout)
    fresh = np.setdiff1d(np.arange(num_problems), np.asarray(used))
    yield from map(int, rng.permutation(fresh))
    while True:
        yield from map(int, rng.permutation(num_problems))


class Share(NamedTuple):
    """The numbers of a process's responses in an update, in the order in which it trains on them."""

    numbers: list[int]
    num_idle: int = 0  # at their end: they count for nothing, and are there since others have so many more


def dealt(
    owners_R: Sequence[int], learns_R: Sequence[bool], num_processes: int, num_updates: int, seed: int
) -> list[list[Share]]:
    """The share of each process in each update. Where nothing is learned from, one response stays."""
    import torch  # without which a run is planned

    order = torch.randperm(len(owners_R), generator=torch.Generator().manual_seed(seed)).tolist()
    size = len(owners_R) // num_updates
    updates = [order[start : start + size] for start in range(0, len(order), size)]
    shares_U = []
    for update in updates:
        learning = [number for number in update if learns_R[number]] or update[:1]
        shares = even_shares(learning, owners_R, num_processes)
        most = max(map(len, shares))
        idle = [most - len(share) for share in shares]
        shares_U.append([Share([*own, *learning[:1] * i], i) for own, i in zip(shares, idle, strict=True)])
    return [list(of_process) for of_process in zip(*shares_U, strict=True)]


def held(shares: Sequence[Share]) -> list[int]:
    """The responses that a process scores, idle ones too: each process takes as many passes, also before any update."""
    return sorted(number for share in shares for number in share.numbers)


def even_shares(numbers: Sequence[int], owners_R: Sequence[int], num_processes: int) -> list[list[int]]:
    """These responses in shares of one size, or nearly: each process's own first, then what others have too many of."""
    size = -(-len(numbers) // num_processes)
    own = [[number for number in numbers if owners_R[number] == process] for process in range(num_processes)]
    rest = [number for share in own for number in share[size:]]
    shares = [share[:size] for share in own]
    for share in shares:
        while rest and len(share) < size:
            share.append(rest.pop(0))
    return shares

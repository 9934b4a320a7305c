"""Which process trains on which responses of a rollout: the same update on any number of processes.

The responses of a rollout are shuffled and cut into the updates on it, as one process would do it. Those of each update
that have something to learn from are dealt out: an update sees the same responses whoever holds them. A process keeps
those that it sampled, as far as its share goes. All shares are of one size, since processes take their passes together.

Shapes: R responses of a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Share(NamedTuple):
    """The numbers of a process's responses in an update, in the order in which it trains on them."""

    numbers: list[int]
    num_idle: int = 0  # at their end: they count for nothing, and are there since others have so many more


def dealt(
    owners_R: Sequence[int], learns_R: Sequence[bool], num_processes: int, num_updates: int, seed: int
) -> list[list[Share]]:
    """The share of each process in each update. Where nothing is learned from, one response stays."""
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

"""Which process trains on which responses of a rollout: the same update on any number of processes.

The responses of a rollout are shuffled and cut into the updates on it, as one process would do it; those of each update
are then dealt out, so that an update sees the same responses whoever holds them. A process keeps those that it sampled,
as far as its share goes.

Shapes: R responses of a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def dealt(owners_R: Sequence[int], num_processes: int, num_updates: int, seed: int) -> list[list[int]]:
    """The numbers of the responses of each process, in the order in which it trains on them."""
    order = torch.randperm(len(owners_R), generator=torch.Generator().manual_seed(seed)).tolist()
    size = len(owners_R) // num_updates
    of_processes: list[list[int]] = [[] for _ in range(num_processes)]
    for start in range(0, len(order), size):
        shares = even_shares(order[start : start + size], owners_R, num_processes)
        for own, share in zip(of_processes, shares, strict=True):
            own += share
    return of_processes


def even_shares(numbers: Sequence[int], owners_R: Sequence[int], num_processes: int) -> list[list[int]]:
    """These responses in equal shares: each process's own first, then whatever others have too many of."""
    size = len(numbers) // num_processes
    own = [[number for number in numbers if owners_R[number] == process] for process in range(num_processes)]
    rest = (number for share in own for number in share[size:])
    shares = [share[:size] for share in own]
    return [[*share, *(next(rest) for _ in range(size - len(share)))] for share in shares]

"""Which process trains on which responses of a rollout: the same update on any number of processes.

TRL shuffles the responses of a rollout and cuts them into the updates on it. Each process would shuffle its own; here
the whole rollout is shuffled as one process would do it, and the responses of each update are dealt out, so that an
update sees the same responses whoever holds them. A process keeps those that it generated, as far as its share goes.

Shapes: R responses of a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def shuffled(count: int, seed: int) -> list[int]:
    """The order in which TRL puts so many responses if torch's generator has this seed."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()


def dealt(owners_R: Sequence[int], num_processes: int, num_updates: int, seed: int) -> list[list[int]]:
    """The numbers of the responses of each process, in the order in which TRL has to be given them.

    TRL shuffles what a process is given once more, from the same seed: they are laid out so that they come out right.
    For one process that is the order of the rollout.
    """
    order, size = shuffled(len(owners_R), seed), len(owners_R) // num_updates
    of_processes: list[list[int]] = [[] for _ in range(num_processes)]
    for start in range(0, len(order), size):
        for own, share in zip(
            of_processes, even_shares(order[start : start + size], owners_R, num_processes), strict=True
        ):
            own += share
    return [_before_shuffling(numbers, seed) for numbers in of_processes]


def even_shares(numbers: Sequence[int], owners_R: Sequence[int], num_processes: int) -> list[list[int]]:
    """These responses in equal shares: each process's own first, then whatever others have too many of."""
    size = len(numbers) // num_processes
    own = [[number for number in numbers if owners_R[number] == process] for process in range(num_processes)]
    rest = (number for share in own for number in share[size:])
    shares = [share[:size] for share in own]
    return [[*share, *(next(rest) for _ in range(size - len(share)))] for share in shares]


def _before_shuffling(numbers: Sequence[int], seed: int) -> list[int]:
    before = [0] * len(numbers)
    for number, place in zip(numbers, shuffled(len(numbers), seed), strict=True):
        before[place] = number
    return before

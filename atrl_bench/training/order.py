"""Which problem comes when, and with which seed: functions of the run's seed alone, so a resumed run needs no state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

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

"""The tokens of many responses, one after the other: a number for each is one array, as if they were one response.

Short responses cost what the calls cost, not the arithmetic; so one call does for all of them. A sum over the tokens of
a response is still taken for it alone, in the order of its own tokens: no response changes what another one gets.

Shapes: B responses, T tokens of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TokenBatch:
    """The tokens of B responses; no response is empty."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = np.array(lengths)
        """How many tokens each response has."""
        self.bounds = np.concatenate([[0], np.cumsum(lengths)])
        """Where the tokens of each response start, and where the last one ends."""

    @property
    def num_tokens(self) -> int:
        """How many tokens all responses have."""
        return int(self.bounds[-1])

    @cached_property
    def response_T(self) -> NDArray[np.int64]:  # noqa: N802
        """The number of the response that each token belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def of_tokens(self, values_B: Any) -> NDArray[Any]:
        """Returns for each token the value of its response."""
        return np.repeat(values_B, self.lengths)

    def split(self, values_T: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the values of each response."""
        return [values_T[start:end] for start, end in pairwise(self.bounds.tolist())]

    def own_labels(self, label_T: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns labels that no two responses share, and where those of each response start and the last ones end."""
        num_labels_B = np.maximum.reduceat(label_T, self.bounds[:-1]) + 1
        first_B = np.concatenate([[0], np.cumsum(num_labels_B)])
        return label_T + self.of_tokens(first_B[:-1]), first_B

    def rank(self, values_T: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the place of each token in its response by ascending value; of equal ones the early one is first."""
        rank_T = np.empty(self.num_tokens, dtype=np.int64)
        rank_T[np.lexsort((values_T, self.response_T))] = np.arange(self.num_tokens) - self.of_tokens(self.bounds[:-1])
        return rank_T

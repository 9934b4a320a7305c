"""A short vector for a long one, with which inner products can be estimated: what is kept of gradients of many weights.

Shapes: D parameters, M numbers of the sketch.
"""

from __future__ import annotations

import torch
from torch import Tensor

SKETCH_SIZE = 2**18


def sketched(gradient_D: Tensor, size: int = SKETCH_SIZE) -> Tensor:
    """Return the sum of the gradient's pieces of length M, each with random signs and turned by a random offset.

    Signs and offsets are the same for every gradient. The product of two sketches then has the product of the gradients
    as its mean over these draws, and a standard deviation of at most sqrt(2 / M) of the product of their lengths: two
    coordinates fall together with the chance 1 / M, with a random sign.
    """
    rng = torch.Generator().manual_seed(0)
    sketch_M = torch.zeros(size)
    for piece in gradient_D.split(size):
        sign = torch.randint(2, piece.shape, generator=rng, dtype=torch.int8).mul_(2).sub_(1)
        offset = int(torch.randint(size, (1,), generator=rng))
        padded_M = torch.zeros(size)
        padded_M[: len(piece)] = piece * sign
        sketch_M += padded_M.roll(offset)
    return sketch_M

"""Sums of the gradients of blocks of prompts, and the products of them that an efficiency is made of.

Beyond `EXACT_PARAMETERS` weights a sketch is kept in place of each block's sum: a short vector with which inner
products can be estimated.

Shapes: K blocks, R rules, D measured parameters, M of them or their sketch, N directions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from atrl_bench.lab.signal.efficiency import Moments
from atrl_bench.lab.signal.request import EXACT_PARAMETERS

SKETCH_SIZE = 2**18


class BlockSums:
    """Products of the gradients of blocks of prompts, and of parts of the prompts the steps that follow from them.

    Products of a prompt's gradient with itself are exact. Those of blocks are of their whole sums up to
    `EXACT_PARAMETERS`, and of sketches of them beyond (`sketched`): what is kept then is a few vectors a rule,
    however many prompts there are.
    """

    def __init__(self, scale_RD: Tensor, num_blocks: int, num_directions: int, exact: int = EXACT_PARAMETERS) -> None:
        self.scale_RD = scale_RD
        self._is_exact = scale_RD.shape[1] <= exact
        self._sums: dict[bool, list[Tensor]] = {False: [], True: []}  # K x RM, by whether scaled
        self._part_of_block = [part for part, k in enumerate(_parts(num_blocks, num_directions)) for _ in k]
        self._parts_NRD = [torch.zeros_like(scale_RD) for _ in range(num_directions)]
        self._prompts_N = [0] * num_directions
        self.prompts_K: list[int] = []
        self._own_K: list[dict[bool, np.ndarray]] = []  # (with uniform, with itself) x R, by whether scaled

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Take in the gradients of the next block's prompts; None for a prompt without one."""
        sum_RD = torch.zeros_like(self.scale_RD)
        own = {scaled: np.zeros((2, len(sum_RD))) for scaled in (False, True)}
        for gradient_RD in gradients:
            if gradient_RD is None:
                continue
            sum_RD += gradient_RD
            for r, gradient_D in enumerate(gradient_RD):  # one rule at a time: a scaled copy of all is as large again
                for scaled, total in own.items():
                    stepped_D = gradient_D * self.scale_RD[r] if scaled else gradient_D
                    total[:, r] += [float(stepped_D @ gradient_RD[0]), float(stepped_D.square().sum())]
        if self._parts_NRD:
            part = self._part_of_block[len(self.prompts_K)]
            self._parts_NRD[part] += sum_RD
            self._prompts_N[part] += len(gradients)
        self.prompts_K.append(len(gradients))
        self._own_K.append(own)
        if self._is_exact:
            self._sums[False].append(sum_RD)
        else:
            self._sums[False].append(torch.stack([sketched(sum_D) for sum_D in sum_RD]))
            self._sums[True].append(
                torch.stack([sketched(s * scale) for s, scale in zip(sum_RD, self.scale_RD, strict=True)])
            )

    def moments(self, *, scaled: bool) -> Moments:
        """What efficiencies are made of: of the gradients, or of the steps that Adam makes of them."""
        uniform_KM = self._of_rule(0, scaled=False)
        with_uniform, with_itself = [], []
        for r in range(len(self.scale_RD)):
            stepped_KM = self._of_rule(r, scaled=scaled)
            with_uniform.append((stepped_KM @ uniform_KM.T).double().numpy())
            with_itself.append((stepped_KM @ stepped_KM.T).double().numpy())
        own_K2R = np.stack([own[scaled] for own in self._own_K])
        return Moments(
            np.array(self.prompts_K, dtype=float),
            np.stack(with_uniform, axis=-1),
            np.stack(with_itself, axis=-1),
            own_K2R[:, 0],
            own_K2R[:, 1],
        )

    def _of_rule(self, r: int, *, scaled: bool) -> Tensor:
        if scaled and self._is_exact:
            return torch.stack([sum_RD[r] for sum_RD in self._sums[False]]) * self.scale_RD[r]
        return torch.stack([sum_RM[r] for sum_RM in self._sums[scaled]])

    def directions(self) -> Iterator[Tensor]:
        """Yield the steps that Adam makes of the mean gradient of each part of the prompts, rule by rule."""
        for sum_RD, num_prompts in zip(self._parts_NRD, self._prompts_N, strict=True):
            # The second moment of a mean of n is that of one over n, where noise rules.
            yield sum_RD / num_prompts * self.scale_RD * math.sqrt(num_prompts)


def _parts(num_blocks: int, count: int) -> list[np.ndarray]:
    return np.array_split(np.arange(num_blocks), count) if count else []


def sketched(gradient_D: Tensor, size: int = SKETCH_SIZE) -> Tensor:
    """The sum of the gradient's pieces of length M, each with random signs and turned by a random offset.

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

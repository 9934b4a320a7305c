"""`atrl-bench signal`: what each credit rule is worth at a checkpoint, from one batch of rollouts and without training.

Two numbers stand together, since either alone misleads. The *worth* says by how much a rule multiplies the batch, in
the space of the parameters: noise that it takes away may lie where it does no harm. The *one-step gain* says what a
step along each rule's gradient does to the success on other problems, at the step size that is best for it.

Shapes: K blocks of prompts, R rules, D measured parameters, M of them or their sketch, N directions, E step sizes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from atrl_bench.errors import InvalidFileError
from atrl_bench.lab.signal.gradients import GradientMeter, PromptGradients, known_mean
from atrl_bench.lab.signal.projection import sketched
from atrl_bench.lab.signal.record import RuleSignal, Signal, StepGain
from atrl_bench.lab.signal.sizes import EXACT_PARAMETERS, NUM_BLOCKS, NUM_DIRECTIONS, STEP_SIZES
from atrl_bench.lab.signal.worth import Moments, worths
from atrl_bench.results.statistics import Estimate, clustered_mean


def measure(
    meter: GradientMeter,
    rows: Sequence[int],
    *,
    held_out: Sequence[int] = (),
    model: str = "",
    on_prompt: Callable[[int, int], None] | None = None,
) -> Signal:
    """Return what the rules of the meter, the first of them uniform credit, do at its checkpoint.

    A third of the problems `rows` give the second moments that scale the gradients of the rest. One step is tried on
    the problems `held_out`, if there are any.
    """
    num_rules, done = len(meter.rules), 0
    first, rest = rows[: len(rows) // 3], rows[len(rows) // 3 :]

    def gradients(of_rows: Iterable[int]) -> Iterator[PromptGradients]:
        nonlocal done
        for row in of_rows:
            yield meter.of_prompt(row)
            done += 1
            if on_prompt is not None:
                on_prompt(done, len(rows))

    second_RD, seen = torch.zeros(num_rules, meter.num_parameters), []
    for prompt in gradients(first):
        seen.append(replace(prompt, gradient_RD=None))
        if prompt.gradient_RD is not None:
            second_RD += prompt.gradient_RD**2 / len(first)
    if not second_RD.any(dim=1).all():
        raise InvalidFileError(
            f"The first {len(first)} problems leave no gradient, which has to scale those of the others.",
            why=f"Only one that is answered both right and wrong has any; "
            f"{statistics.fmean(prompt.success for prompt in seen):.0%} of their responses were right.",
            next_step=f"measure more problems: --prompts {2 * len(rows)}",
        )
    # A parameter that no response of these has moved has no scale of its own.
    scale_RD = (second_RD + 1e-3 * second_RD.mean(dim=1, keepdim=True)).rsqrt()

    blocks = np.array_split(np.array(rest), min(NUM_BLOCKS, len(rest)))
    sums = BlockSums(scale_RD, len(blocks), NUM_DIRECTIONS if held_out else 0)
    for block in blocks:
        of_block = list(gradients(block.tolist()))
        sums.add([prompt.gradient_RD for prompt in of_block])
        seen += [replace(prompt, gradient_RD=None) for prompt in of_block]
    steps: Sequence[StepGain | None] = step_gains(meter, sums, held_out) if held_out else [None] * num_rules
    plain, scaled = (worths(sums.moments(scaled=of_adam)) for of_adam in (False, True))
    rules = []
    for r, choice in enumerate(meter.rules):
        top_share, repeated, auc = (
            known_mean(getattr(prompt, name)[r] for prompt in seen)
            for name in ("top_share_R", "repeated_R", "anchor_auc_R")
        )
        ends = [_ends([getattr(prompt, name)[r] for prompt in seen]) for name in ("repeated_R", "anchor_auc_R")]
        rules.append(RuleSignal(choice.label, plain[r], scaled[r], top_share, repeated, auc, steps[r], *ends))
    return Signal(
        model=model,
        data=meter.trainer.data.name,
        prompts=len(rows),
        responses=len(rows) * meter.trainer.num_generations,
        parameters=meter.num_parameters,
        success=statistics.fmean(prompt.success for prompt in seen),
        rules=rules,
    )


class BlockSums:
    """Products of the gradients of blocks of prompts, and of parts of the prompts the steps that follow from them.

    Products of a prompt's gradient with itself are exact. Those of blocks are of their whole sums up to
    `EXACT_PARAMETERS`, and of sketches of them beyond (projection.py): what is kept then is a few vectors a rule,
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
        """Return what worths are made of: of the gradients, or of the steps that Adam makes of them."""
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


def step_gains(meter: GradientMeter, sums: BlockSums, held_out: Sequence[int]) -> list[StepGain]:
    """Return what one step along each rule's gradient gains on these problems, at the best of the step sizes."""
    before = meter.success(held_out)
    gains_NRE = np.array(
        [
            [[100 * (meter.success(held_out, size * step_D) - before) for size in STEP_SIZES] for step_D in step_RD]
            for step_RD in sums.directions()
        ]
    )
    best_R = gains_NRE.mean(axis=0).argmax(axis=1)
    gains_RN = np.array([gains_NRE[:, r, best] for r, best in enumerate(best_R)])
    return [
        StepGain(STEP_SIZES[best], _over_directions(gains_N), _over_directions(gains_N - gains_RN[0]))
        for best, gains_N in zip(best_R, gains_RN, strict=True)
    ]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the mean over prompts of the values that are numbers."""
    known = {str(n): value for n, value in enumerate(values) if not math.isnan(value)}
    return clustered_mean(known, {name: name for name in known}).interval()


def _over_directions(values_N: np.ndarray) -> Estimate:
    names = {str(n): float(value) for n, value in enumerate(values_N)}
    return clustered_mean(names, {name: name for name in names})

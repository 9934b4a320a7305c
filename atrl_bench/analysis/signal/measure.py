"""`atrl-bench signal`: what each credit rule is worth at a checkpoint, from one batch of rollouts and without training.

Two numbers stand together, since either alone misleads. The *worth* says by how much a rule multiplies the batch, in
the space of the parameters: noise that it takes away may lie where it does no harm. The *one-step gain* says what a
step along each rule's gradient does to the success on other problems, at the step size that is best for it.

Shapes: K blocks of prompts, R rules, D measured parameters, N directions, E step sizes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from atrl_bench.analysis.signal.gradients import GradientMeter, PromptGradients, known_mean
from atrl_bench.analysis.signal.record import RuleSignal, Signal, StepGain
from atrl_bench.analysis.signal.worth import Moments, worths
from atrl_bench.results.statistics import Estimate, clustered_mean

NUM_BLOCKS = 16
NUM_DIRECTIONS = 4
STEP_SIZES = (1.0, 3.0, 10.0, 30.0)  # in learning rates of the profile


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
        seen.append(prompt)
        if prompt.gradient_RD is not None:
            second_RD += prompt.gradient_RD**2 / len(first)
    # A parameter that no response of these has moved has no scale of its own.
    scale_RD = (second_RD + 1e-3 * second_RD.mean(dim=1, keepdim=True)).rsqrt()

    sums = BlockSums(scale_RD)
    for block in np.array_split(np.array(rest), min(NUM_BLOCKS, len(rest))):
        of_block = list(gradients(block.tolist()))
        seen += of_block
        sums.add([prompt.gradient_RD for prompt in of_block])
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
    """The gradients of blocks of prompts, summed, and the products that a prompt's have with themselves."""

    def __init__(self, scale_RD: Tensor) -> None:
        self.scale_RD = scale_RD
        self.sums_KRD: list[Tensor] = []
        self.prompts_K: list[int] = []
        self._own_K: list[dict[bool, np.ndarray]] = []  # (with uniform, with itself) x R, by whether scaled

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Take in the gradients of one block's prompts; None for a prompt without one."""
        sum_RD = torch.zeros_like(self.scale_RD)
        own = {scaled: np.zeros((2, len(sum_RD))) for scaled in (False, True)}
        for gradient_RD in gradients:
            if gradient_RD is None:
                continue
            sum_RD += gradient_RD
            for scaled, total in own.items():
                stepped_RD = gradient_RD * self.scale_RD if scaled else gradient_RD
                total += np.stack([(stepped_RD @ gradient_RD[0]).numpy(), stepped_RD.square().sum(1).numpy()])
        self.sums_KRD.append(sum_RD)
        self.prompts_K.append(len(gradients))
        self._own_K.append(own)

    def moments(self, *, scaled: bool) -> Moments:
        """Return what worths are made of: of the gradients, or of the steps that Adam makes of them."""
        uniform_KD = torch.stack([sum_RD[0] for sum_RD in self.sums_KRD])
        with_uniform, with_itself = [], []
        for r, scale_D in enumerate(self.scale_RD):
            stepped_KD = torch.stack([sum_RD[r] for sum_RD in self.sums_KRD])
            if scaled:
                stepped_KD *= scale_D
            with_uniform.append((stepped_KD @ uniform_KD.T).double().numpy())
            with_itself.append((stepped_KD @ stepped_KD.T).double().numpy())
        own_K2R = np.stack([own[scaled] for own in self._own_K])
        return Moments(
            np.array(self.prompts_K, dtype=float),
            np.stack(with_uniform, axis=-1),
            np.stack(with_itself, axis=-1),
            own_K2R[:, 0],
            own_K2R[:, 1],
        )

    def directions(self, count: int) -> Iterator[Tensor]:
        """Yield the steps that Adam makes of the mean gradient of so many parts of the prompts, rule by rule."""
        for part in np.array_split(np.arange(len(self.sums_KRD)), count):
            num_prompts = sum(self.prompts_K[k] for k in part)
            mean_RD = sum(self.sums_KRD[k] for k in part) / num_prompts
            # The second moment of a mean of n is that of one over n, where noise rules.
            yield mean_RD * self.scale_RD * math.sqrt(num_prompts)


def step_gains(meter: GradientMeter, sums: BlockSums, held_out: Sequence[int]) -> list[StepGain]:
    """Return what one step along each rule's gradient gains on these problems, at the best of the step sizes."""
    before = meter.success(held_out)
    gains_NRE = np.array(
        [
            [[100 * (meter.success(held_out, size * step_D) - before) for size in STEP_SIZES] for step_D in step_RD]
            for step_RD in sums.directions(NUM_DIRECTIONS)
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

"""`atrl-bench signal`: what each credit rule is worth at a checkpoint, from one batch of rollouts and without training.

Two numbers stand together, since either alone misleads. The *efficiency* says by how much a rule multiplies the batch,
in the space of the parameters: noise that it takes away may lie where it does no harm. The *one-step gain* says what a
step along each rule's gradient does to the success on other problems, at the step size that is best for it.

Shapes: R rules, D measured parameters, N directions, E step sizes.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.block_sums import BlockSums
from atrl_bench.lab.signal.efficiency import efficiencies
from atrl_bench.lab.signal.gradients import GradientMeter, PromptGradients, gradient_meter, known_mean
from atrl_bench.lab.signal.record import RuleSignal, Signal, StepGain
from atrl_bench.lab.signal.request import NUM_BLOCKS, NUM_DIRECTIONS, STEP_SIZES, USUAL_RULES, SignalRequest
from atrl_bench.lab.signal.stored import stored_signal
from atrl_bench.results.statistics.means import Estimate, clustered_mean
from atrl_bench.training.order import problem_order
from atrl_bench.training.weights.credit import require_truth


def measured_signal(request: SignalRequest, run_dir: RunDir, *, quiet: bool) -> Signal:
    """The signal that was ordered: from the run folder's store, or measured now and kept there."""

    def tell(done: int, count: int) -> None:
        if not quiet and sys.stderr.isatty():
            print(f"\r{done} of {count} prompts", end="\n" if done == count else "", file=sys.stderr)

    return stored_signal(request, run_dir, lambda on_prompt: _measure(request, run_dir, on_prompt), on_prompt=tell)


def _measure(request: SignalRequest, run_dir: RunDir, on_prompt: Callable[[int, int], None]) -> Signal:
    prompts, held_out = request.prompts, request.held_out
    with tempfile.TemporaryDirectory() as folder, gradient_meter(request, run_dir, Path(folder)) as meter:
        num_problems = len(meter.trainer.data.problems)
        for rule in request.rules:
            require_truth(rule, meter.trainer.data, next_step=f"the same command with --rules {','.join(USUAL_RULES)}")
        if num_problems < prompts + held_out:
            half = max(9, num_problems // 2)
            fewer = f"the same command with --prompts {half} --held-out {min(num_problems // 4, num_problems - half)}"
            raise InvalidFileError(
                f"{request.data} has {num_problems} problems, fewer than {prompts} and {held_out} held out.",
                next_step=fewer if num_problems >= 9 else "name a set of at least 9: --data SET",
            )
        rows = problem_order(num_problems, prompts + held_out, request.seed)
        return measure(meter, rows[:prompts], held_out=rows[prompts:], model=request.model, on_prompt=on_prompt)


def measure(
    meter: GradientMeter,
    rows: Sequence[int],
    *,
    held_out: Sequence[int] = (),
    model: str = "",
    on_prompt: Callable[[int, int], None] = lambda *_: None,
) -> Signal:
    """What the rules of the meter, the first of them uniform credit, do at its checkpoint.

    A third of the problems `rows` give the second moments that scale the gradients of the rest. One step is tried on
    the problems `held_out`, if there are any.
    """
    num_rules, num_problems = len(meter.rules), len(meter.trainer.data.problems)
    first, rest = rows[: len(rows) // 3], rows[len(rows) // 3 :]

    def measured() -> Iterator[PromptGradients]:
        for done, row in enumerate(rows, 1):
            prompt = meter.of_prompt(row)
            on_prompt(done, len(rows))
            yield prompt

    prompts = measured()
    second_RD, seen = torch.zeros(num_rules, meter.num_parameters), []
    for prompt in islice(prompts, len(first)):
        seen.append(replace(prompt, gradient_RD=None))
        if prompt.gradient_RD is not None:
            second_RD += prompt.gradient_RD**2 / len(first)
    if not second_RD.any(dim=1).all():
        more = min(2 * len(rows), num_problems - len(held_out))
        raise InvalidFileError(
            f"The first {len(first)} problems leave no gradient, which has to scale those of the others.",
            why=f"Only one that is answered both right and wrong has any; "
            f"{statistics.fmean(prompt.success for prompt in seen):.0%} of their responses were right.",
            next_step=f"measure more problems: --prompts {more}"
            if more > len(rows)
            else "measure another checkpoint, or more problems than this set has: --data SET",
        )
    # A parameter that no response of these has moved has no scale of its own.
    scale_RD = (second_RD + 1e-3 * second_RD.mean(dim=1, keepdim=True)).rsqrt()

    blocks = np.array_split(rest, min(NUM_BLOCKS, len(rest)))
    sums = BlockSums(scale_RD, len(blocks), NUM_DIRECTIONS if held_out else 0)
    for block in blocks:
        of_block = list(islice(prompts, len(block)))
        sums.add([prompt.gradient_RD for prompt in of_block])
        seen += [replace(prompt, gradient_RD=None) for prompt in of_block]
    steps: Sequence[StepGain | None] = step_gains(meter, sums, held_out) if held_out else [None] * num_rules
    plain, scaled = (efficiencies(sums.moments(scaled=of_adam)) for of_adam in (False, True))
    rules = []
    for r, choice in enumerate(meter.rules):
        names = ("top_share_R", "reliability_R", "anchor_auc_R")
        figures = [[getattr(prompt, name)[r] for prompt in seen] for name in names]
        top_share, reliability, auc = map(known_mean, figures)
        ends = [_mean(values).interval() for values in figures[1:]]
        rules.append(RuleSignal(choice.label, plain[r], scaled[r], top_share, reliability, auc, steps[r], *ends))
    return Signal(
        model=model,
        data=meter.trainer.data.name,
        prompts=len(rows),
        responses=len(rows) * meter.trainer.group_size,
        parameters=meter.num_parameters,
        success=statistics.fmean(prompt.success for prompt in seen),
        rules=rules,
        problems=num_problems,
    )


def step_gains(meter: GradientMeter, sums: BlockSums, held_out: Sequence[int]) -> list[StepGain]:
    """What one step along each rule's gradient gains on these problems, at the best of the step sizes."""
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
        StepGain(STEP_SIZES[best], _mean(gains_N), _mean(gains_N - gains_RN[0]))
        for best, gains_N in zip(best_R, gains_RN, strict=True)
    ]


def _mean(values: Iterable[float]) -> Estimate:
    """The mean of the values that are numbers, with its interval."""
    known = {str(n): float(value) for n, value in enumerate(values) if not math.isnan(value)}
    return clustered_mean(known, {name: name for name in known})

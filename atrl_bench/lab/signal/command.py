"""What `atrl-bench signal` measures, on which problems and with which rules."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from atrl_bench.data.sets import find_set
from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.gradients import gradient_meter
from atrl_bench.lab.signal.measure import measure
from atrl_bench.lab.signal.order import SignalOrder
from atrl_bench.lab.signal.record import Signal
from atrl_bench.lab.signal.rule_choice import USUAL_RULES
from atrl_bench.lab.signal.stored import stored_signal
from atrl_bench.training.order import problem_order
from atrl_bench.training.weights.credit import require_truth


def measured_signal(order: SignalOrder, run_dir: RunDir, *, quiet: bool) -> Signal:
    """Return the signal that was ordered: from the run folder's store, or measured now and kept there."""

    def tell(done: int, count: int) -> None:
        if not quiet and sys.stderr.isatty():
            print(f"\r{done} of {count} prompts", end="\n" if done == count else "", file=sys.stderr)

    return stored_signal(order, run_dir, lambda on_prompt: _measure(order, run_dir, on_prompt), on_prompt=tell)


def _measure(order: SignalOrder, run_dir: RunDir, on_prompt: Callable[[int, int], None]) -> Signal:
    data, wanted, prompts, held_out = order.data, order.rules, order.prompts, order.held_out
    with (
        tempfile.TemporaryDirectory() as folder,
        gradient_meter(
            Path(folder),
            order.model,
            run_dir.data_dir(find_set(data).folder),
            run_dir.profile,
            order.recipe,
            wanted,
            order.seed,
            data=data,
            parameters=order.parameters,
        ) as meter,
    ):
        problems = meter.trainer.data.problems
        for rule in wanted:
            require_truth(rule, meter.trainer.data, next_step=f"atrl-bench signal --rules {','.join(USUAL_RULES)}")
        if len(problems) < prompts + held_out:
            raise InvalidFileError(
                f"{data} has {len(problems)} problems, fewer than {prompts} and {held_out} held out.",
                next_step=f"atrl-bench signal --prompts {max(9, len(problems) // 2)} --held-out {len(problems) // 4}",
            )
        rows = problem_order(len(problems), prompts + held_out, order.seed)
        return measure(meter, rows[:prompts], held_out=rows[prompts:], model=order.model, on_prompt=on_prompt)

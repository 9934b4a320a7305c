"""What one of the processes of a launch does: `python -m atrl_bench.experiments.rank ORDER`, with a file of orders.py.

Of a training only the main process touches the run folder; of an evaluation each process stores what it answers.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from atrl_bench.engines.launch import rank
from atrl_bench.engines.processes import launched
from atrl_bench.experiments.answer_credit import shade
from atrl_bench.experiments.jobs import evaluate_into, train_here
from atrl_bench.experiments.orders import EvaluationOrder, LaunchOrder, TrainingOrder


class RankPart:
    """This process's part of an order; `num_done` is how many evaluations are behind it."""

    def __init__(self, order: LaunchOrder) -> None:
        self._order, self.num_done = order, 0

    def do(self) -> None:
        """Do it, together with the other processes."""
        if self._order.training is not None:
            self._train(self._order.training)
        if self._order.evaluation is not None:
            self._evaluate(self._order.evaluation)

    def _train(self, order: TrainingOrder) -> None:
        is_main = launched().is_main
        with order.run_dir.open_store() if is_main else contextlib.nullcontext() as store:
            train_here(store, order.recipe, order.spec, order.base_model, order.run_dir, order.seed)

    def _evaluate(self, order: EvaluationOrder) -> None:
        with order.run_dir.open_store() as store:
            for task, options in order.evaluations:
                key = evaluate_into(store, order.model, task, options, order.run_dir)
                if order.shaded and launched().is_main:
                    shade(store, key, order.run_dir, order.shaded)
                self.num_done += 1


if __name__ == "__main__":
    path = Path(sys.argv[1])
    part = RankPart(LaunchOrder.model_validate_json(path.read_text(encoding="utf-8")))
    rank(part.do, path.with_suffix(".error"), lambda: part.num_done)

"""One table from its plan to its page: run what is missing, look for test problems in the training data, render."""

from __future__ import annotations

from atrl_bench.engines.devices import Cluster, Machine
from atrl_bench.experiments.plan import Plan
from atrl_bench.experiments.run import run_plan
from atrl_bench.report.table_run import TableRun, look_for_overlap, render


def run_table(plan: Plan, where: Machine | Cluster, *, jobs: int | None = None, quiet: bool = False) -> TableRun:
    """Return the rendered table after everything it needs was trained and evaluated, as far as that succeeds."""
    result = run_plan(plan, where, jobs=jobs, quiet=quiet)
    if not result.failures:
        look_for_overlap(plan)
    return render(plan, num_done_now=result.num_done, failures=result.failures)

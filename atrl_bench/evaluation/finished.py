"""Whether a cell has anything left to do: a plan asks it of every cell, and loads nothing that answers or grades."""

from __future__ import annotations

from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.results.store import Store
from atrl_bench.sandbox.isolation import NOT_PERMITTED, is_permitted


def is_finished(store: Store, key: str, judge: JudgeConfig | None) -> bool:
    """Return whether there is nothing left to do for a cell: an answer without a verdict may have got one since.

    A judge that gave no verdict is asked again, and a program is run once that is permitted.
    """
    cell = store.cell(key)
    if cell is None or cell.state != "done":
        return False
    permitted = is_permitted()
    if judge is None and not permitted:
        return True
    return not any(
        (judge is not None and grader == "judge") or (permitted and why == NOT_PERMITTED)
        for grader, why in store.without_verdict(key)
    )

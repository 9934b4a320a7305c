"""What is left to do for every table, and together: what two tables share is counted with the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from atrl_bench.experiments.cost_estimate import estimate_cost
from atrl_bench.experiments.cost_record import CostEstimate
from atrl_bench.experiments.downloads import missing_downloads
from atrl_bench.experiments.needs import Need
from atrl_bench.experiments.plan import Plan, table_options
from atrl_bench.printable import Block, Command, Record, Rows

COUNTS = ("trainings", "cells", "answers", "gpu_hours")


@dataclass(frozen=True)
class RemainingWork:
    """How much of a table is left to do."""

    table: str
    trainings: int
    cells: int
    answers: int
    gpu_hours: float


@dataclass(frozen=True)
class CostOfAll(Record):
    """What is left to do for each table, and for all of them."""

    tables: tuple[RemainingWork, ...]
    whole: CostEstimate
    next: str

    @property
    def together(self) -> dict[str, float]:
        """The sums over all tables."""
        return {name: round(sum(getattr(table, name) for table in self.tables), 1) for name in COUNTS}

    @property
    def download_gb(self) -> float:
        """What is downloaded, as far as it is known."""
        return self.whole.download_gb

    def must_ask(self, *, is_generated: bool) -> bool:
        """Return whether this may only start once somebody has seen its price."""
        return self.whole.must_ask(is_generated=is_generated)

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        fields = {"profile": self.whole.profile, "folder": self.whole.folder, "next": self.next}
        left = self.whole.left()
        tables = [asdict(table) for table in self.tables]
        downloads = [asdict(each) for each in self.whole.downloads]
        return fields | {"tables": tables, "together": self.together, "left": left, "downloads": downloads}

    def blocks(self) -> Iterable[Block]:
        """Yield a row for each table and one for all of them, then what that takes."""
        names = COUNTS if self.whole.gpu_hours else COUNTS[:3]
        tables = [asdict(table) for table in self.tables]
        rows = [
            (counts["table"], *(f"{counts[name]:,.0f}" for name in names))
            for counts in (*tables, {"table": "together", **self.together})
        ]
        head = ["", *(name.replace("gpu_hours", "GPU-hours") for name in names)]
        yield f"All tables under profile {self.whole.profile}, in {self.whole.folder}: what is left to do"
        yield ""
        yield Rows(rows, head, right=range(1, 5), indent=0)
        yield ""
        yield (
            "What two tables share is counted with the first of them; stored answers of an unfinished cell are "
            "counted as left to do."
        )
        yield from self.whole.price()
        if self.next:
            yield Command(self.next)


def estimate_all(plans: Sequence[Plan]) -> CostOfAll:
    """Return what is left to do for each of these tables; what two of them share is counted with the first."""
    run_dir, tables = plans[0].run_dir, []
    whole: CostEstimate | None = None
    needs: list[Need] = []
    for plan in plans:
        cost = estimate_cost(plan)
        needs += [Need(each.kind, each.name) for each in cost.downloads]
        before, whole = whole, cost if whole is None else _both(whole, cost)
        tables.append(_added(plan.definition.id, before, whole))
    assert whole is not None
    # All were given the same seeds, which are some tables' own.
    seeds = next((options for plan in plans if (options := table_options(plan.definition, plan.seeds))), [])
    following = " ".join(["atrl-bench run-table all", *seeds, run_dir.training_options])
    downloads = missing_downloads(dict.fromkeys(needs), run_dir)
    return CostOfAll(tuple(tables), replace(whole, table="all", downloads=downloads), following)


def _both(first: CostEstimate, second: CostEstimate) -> CostEstimate:
    return replace(
        first,
        jobs=first.jobs + second.jobs,
        cells=first.cells + second.cells,
        gpu_hours_by_vllm=None,  # of each table alone: what they share is not taken out of it
    )


def _added(table: str, before: CostEstimate | None, after: CostEstimate) -> RemainingWork:
    """Return what a table adds to the tables before it."""
    now, then = _counts(after), _counts(before) if before is not None else (0, 0, 0, 0.0)
    trainings, cells, answers = (now[n] - then[n] for n in range(3))
    return RemainingWork(table, int(trainings), int(cells), int(answers), now[3] - then[3])


def _counts(cost: CostEstimate) -> tuple[int, int, int, float]:
    cells = cost.cells_left
    return len(cost.trainings_left), len(cells), sum(cell.samples for cell in cells), cost.gpu_hours

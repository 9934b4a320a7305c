"""The columns of a table of signals: what is measured at each base, and what the store has of it.

A measurement has all rules of one base; two tables that ask for the same share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from atrl_bench.digests import spec_key
from atrl_bench.errors import AtrlBenchError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.definition import SignalTable
from atrl_bench.lab.signal.order import SignalOrder
from atrl_bench.lab.signal.record import Signal
from atrl_bench.lab.signal.rule_choice import UNIFORM
from atrl_bench.lab.signal.stored import signal_of, signal_spec
from atrl_bench.lab.worlds import load_world
from atrl_bench.results.store import Store


@dataclass(frozen=True)
class SignalColumn:
    """One base of a world: what is to be measured there, and what stands in the way, "" for nothing."""

    world: str
    base: str
    order: SignalOrder
    key: str
    obstacle: str = ""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules beside uniform credit."""
        return self.order.rules[1:]


def signal_columns(table: SignalTable, run_dir: RunDir, seed: int = 0) -> list[SignalColumn]:
    """Return the columns of a table in a run folder; writes the generated data that names them."""
    sizes = table.profiles.get(run_dir.profile.name, table.sizes)
    columns = []
    for world in map(load_world, table.worlds):
        rules = tuple(rule for rule in table.rules if rule not in table.without.get(world.name, ()))
        for base in world.bases:
            order = SignalOrder(base, table.recipe, world.data, (UNIFORM, *rules), sizes.prompts, sizes.held_out, seed)
            try:
                columns.append(SignalColumn(world.name, base, order, spec_key(signal_spec(order, run_dir))))
            except AtrlBenchError as error:  # a base that is not built here
                obstacle = f"{error.what} Next: {error.next_step}"
                columns.append(SignalColumn(world.name, base, order, "", obstacle))
    return columns


def stored_in(store: Store, column: SignalColumn) -> Signal | None:
    """Return the column's measurement, None where it is not finished."""
    stored = store.measurement(column.key) if column.key else None
    return None if stored is None or stored.state != "done" else signal_of(stored)

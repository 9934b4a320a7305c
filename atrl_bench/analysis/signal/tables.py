"""Tables of signals as data: which rules are measured at the bases of which worlds.

One file a table, `reports/signal_tables/<id>.yaml`. A measurement has all rules of one base; two tables that ask for
the same share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from atrl_bench.analysis.signal.order import SignalOrder
from atrl_bench.analysis.signal.record import Signal
from atrl_bench.analysis.signal.rule_choice import UNIFORM
from atrl_bench.analysis.signal.stored import signal_of, signal_spec
from atrl_bench.digests import spec_key
from atrl_bench.errors import AtrlBenchError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import read_settings
from atrl_bench.resources import folder
from atrl_bench.results.store import Store
from atrl_bench.world_settings import load_world


class _SignalPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SignalSizes(_SignalPart):
    """How much one measurement takes."""

    prompts: int = Field(ge=9, description="problems whose gradients are measured")
    held_out: int = Field(ge=0, description="problems that one step is tried on")


class SignalTable(_SignalPart):
    """One table of signals, complete."""

    id: str
    title: str = Field(description="one line, for lists and headings")
    caption: str = Field(description="what the numbers are")
    label: str = Field(description="the LaTeX label")
    shows: Literal["worth", "reliability"] = Field(description="worth and one-step gain; or agreement with itself")
    recipe: str = Field(description="whose loss")
    rules: tuple[str, ...] = Field(min_length=1, description="credit rules; uniform credit is measured with them")
    worlds: tuple[str, ...] = Field(min_length=1, description="worlds, of which every base is a column")
    without: dict[str, tuple[str, ...]] = Field({}, description="rules that a world's data cannot know, by world")
    sizes: SignalSizes
    profiles: dict[str, SignalSizes] = Field({}, description="other sizes, by profile")


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


def list_signal_tables() -> list[str]:
    """Return the names of the tables of signals."""
    return sorted(_files())


def _files() -> dict[str, Path]:
    return {path.stem: path for path in (folder("reports") / "signal_tables").glob("*.yaml")}


@cache
def load_signal_table(name: str) -> SignalTable:
    """Return the table of this name."""
    files = _files()
    if name not in files:
        raise UnknownNameError("table", name, files)
    return read_settings(files[name], SignalTable, id=name)


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

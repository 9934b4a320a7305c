"""What of a run folder is whole: its store, answer by answer, its checkpoints and its pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import find_model
from atrl_bench.printable import Block, Command, Record, Rows
from atrl_bench.results.store import Run, Store


@dataclass(frozen=True)
class Damage:
    """A part of a run folder that is not whole: what it is, what is wrong, and the command that mends it."""

    part: str
    what: str
    next: str


@dataclass(frozen=True)
class Verification(Record):
    """How many parts were looked at, and those that are not whole."""

    run_dir: str
    looked_at: dict[str, int]
    damages: tuple[Damage, ...]

    @property
    def is_whole(self) -> bool:
        return not self.damages

    def blocks(self) -> Iterable[Block]:
        yield f"{self.run_dir}: " + ", ".join(f"{count:,} {name}" for name, count in self.looked_at.items())
        if self.is_whole:
            yield "All of it is whole."
        for damage in self.damages:
            yield Rows([(damage.part, damage.what)])
        yield from (Command(command) for command in dict.fromkeys(damage.next for damage in self.damages))


def verify(run_dir: RunDir, *, repair: bool = False) -> Verification:
    """What of a run folder is whole; `repair` drops answers that are not, so that they are asked for again."""
    with run_dir.open_store(read_only=not repair) as store:
        cells, runs = store.cells(), store.runs()
        pages = sorted(path for path in run_dir.reports.rglob("*") if path.suffix in (".html", ".json"))
        restore = f"sqlite3 {run_dir.store_path} .recover"
        damages = [Damage("store", problem, restore) for problem in store.damaged_pages()]
        damages += _answers(store, [cell.key for cell in cells], run_dir, repair=repair)
        damages += [damage for run in runs if (damage := _checkpoint(run, run_dir))]
        damages += [
            Damage(str(path.relative_to(run_dir.root)), "is cut off", f"atrl-bench report all {run_dir.options}")
            for path in pages
            if not _is_whole(path)
        ]
        looked_at = {
            "answers": sum(cell.num_responses for cell in cells),
            "checkpoints": sum(run.state == "done" for run in runs),
            "pages": len(pages),
        }
    return Verification(str(run_dir.root), looked_at, tuple(damages))


def _answers(store: Store, keys: Iterable[str], run_dir: RunDir, *, repair: bool) -> Iterator[Damage]:
    """Yield the cells whose answers, or their number, are not what was stored; with `repair`, mend them instead."""
    miscounted, damaged = store.miscounted(), {key: lost for key in keys if (lost := store.damaged(key))}
    told = dict.fromkeys(miscounted, "holds other numbers of answers than the store says")
    for key, lost in damaged.items():
        told[key] = f"{len(lost)} answers are not what was stored, the first to problem {lost[0][0]!r}"
        if repair:
            store.drop_responses(key, lost)
    for key in miscounted if repair else ():
        store.recount(key)
    for key, what in told.items() if not repair else ():
        yield Damage(f"cell {key}", what, f"atrl-bench verify --repair {run_dir.options}")


def _checkpoint(run: Run, run_dir: RunDir) -> Damage | None:
    """What is wrong with a finished training's checkpoint; no stored number needs one that was deleted."""
    folder = run_dir.root / run.checkpoint
    if run.state != "done" or not folder.is_dir():
        return None
    try:
        found = find_model(folder).digest
    except MissingDataError as error:
        return Damage(run.checkpoint, error.why or error.what, f"rm -r {folder}")
    if found == run.digest:
        return None
    return Damage(run.checkpoint, f"is {found}, and {run.digest} was trained", f"rm -r {folder}")


def _is_whole(path: Path) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".html":
        return text.rstrip().endswith("</html>")
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

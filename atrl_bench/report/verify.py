"""What of a run folder is whole: its store record by record, its checkpoints read anew, its pages byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.digests import reading_anew, sha256
from atrl_bench.errors import MissingDataError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import DONE, find_model
from atrl_bench.printable import Block, Command, Record, Rows
from atrl_bench.results.store import Run, Store

NOT_KNOWN = (
    "Not looked at: exports, figures of analyses, and the state from which a training goes on. "
    "Whoever can write here can write fitting checksums, too."
)


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
        yield NOT_KNOWN
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
        damages += [
            Damage(key, "is described by other settings than its key names", restore) for key in store.misnamed()
        ]
        damages += _answers(store, [cell.key for cell in cells], run_dir, repair=repair)
        damages += _records(store, [cell.key for cell in cells], run_dir, repair=repair)
        damages += [damage for run in runs if (damage := _checkpoint(run, run_dir))]
        damages += [
            Damage(str(path.relative_to(run_dir.root)), "is cut off", f"atrl-bench report all {run_dir.options}")
            for path in pages
            if not _is_whole(path)
        ]
        named = {damage.part for damage in damages}
        damages += [damage for damage in _pages(store, run_dir) if damage.part not in named]
        looked_at = {
            "answers": sum(cell.num_responses for cell in cells),
            "verdicts": sum(cell.num_graded for cell in cells),
            "checkpoints": sum((_folder(run, run_dir) / DONE).is_file() for run in runs),
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


def _records(store: Store, keys: Iterable[str], run_dir: RunDir, *, repair: bool) -> Iterator[Damage]:
    """Verdicts, problems with their gold answers, and judgements: what can be found out again is dropped for that."""
    mend = f"atrl-bench verify --repair {run_dir.options}"
    for key in keys:
        if verdicts := store.changed("grades", key):
            if repair:
                store.drop_verdicts(key, verdicts)
            else:
                what = f"{len(verdicts)} verdicts are not what was stored, the first on problem {verdicts[0][0]!r}"
                yield Damage(f"cell {key}", what, mend)
        if problems := store.changed("problems", key):
            if repair:
                store.reopen_cell(key)  # whoever fills it reads its problems from their dataset again
            what = f"{len(problems)} problems are not what was stored, the first {problems[0][0]!r}"
            again = "give the command that evaluated it again: the problems come from their dataset"
            yield Damage(f"cell {key}", what, again if repair else mend)
    for judge in store.judges():
        if judgements := store.changed("judgements", judge):
            if repair:
                store.drop_judgements(judge, judgements)
            else:
                yield Damage(f"judge {judge}", f"{len(judgements)} judgements are not what was stored", mend)


def _pages(store: Store, run_dir: RunDir) -> Iterator[Damage]:
    """Files of pages that are not, byte by byte, those that were written."""
    render = f"atrl-bench report all {run_dir.options}"
    for name, files in store.pages():
        folder = run_dir.reports / Path(name).parent
        for item in json.loads(files):
            path = folder / item["name"]
            part = str(path.relative_to(run_dir.root))
            if not path.is_file():
                yield Damage(part, "is gone", render)
            elif sha256(path) != item["sha256"]:
                yield Damage(part, "is not what was written", render)


def _folder(run: Run, run_dir: RunDir) -> Path:
    """Where a training has its checkpoint, also one that failed after it was written."""
    return run_dir.root / run.checkpoint if run.checkpoint else run_dir.checkpoints / run.key


def _checkpoint(run: Run, run_dir: RunDir) -> Damage | None:
    """What is wrong with a training's checkpoint; no stored number needs one that was deleted."""
    folder = _folder(run, run_dir)
    if not folder.is_dir() or not (run.state == "done" or (folder / DONE).is_file()):
        return None
    part = str(folder.relative_to(run_dir.root))
    try:
        with reading_anew():
            found = find_model(folder).digest
    except MissingDataError as error:
        return Damage(part, error.why or error.what, f"rm -r {folder}")
    if run.state != "done" or found == run.digest:
        return None
    return Damage(part, f"is {found}, and {run.digest} was trained", f"rm -r {folder}")


def _is_whole(path: Path) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".html":
        return text.rstrip().endswith("</html>")
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

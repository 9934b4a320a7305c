"""What of a run folder is whole: its store record by record, its checkpoints read anew, its pages byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
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
        for part, what, mend, then in _changed(store, [cell.key for cell in cells]):
            if repair:
                mend()
            if then or not repair:
                damages.append(Damage(part, what, then if repair else f"atrl-bench verify --repair {run_dir.options}"))
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


def _changed(store: Store, keys: Iterable[str]) -> Iterator[tuple[str, str, Callable[[], None], str]]:
    """Yield what is not as it was stored: the part, what is wrong, what mends it, and what is left to do after that.

    What can be found out again is dropped for that.
    """
    for key in store.miscounted():
        yield f"cell {key}", "holds other numbers of answers than the store says", partial(store.recount, key), ""
    for key in keys:
        if answers := store.damaged(key):
            what = f"{len(answers)} answers are not what was stored, the first to problem {answers[0][0]!r}"
            yield f"cell {key}", what, partial(store.drop_responses, key, answers), ""
        if verdicts := store.changed("grades", key):
            what = f"{len(verdicts)} verdicts are not what was stored, the first on problem {verdicts[0][0]!r}"
            yield f"cell {key}", what, partial(store.drop_verdicts, key, verdicts), ""
        if problems := store.changed("problems", key):
            what = f"{len(problems)} problems are not what was stored, the first {problems[0][0]!r}"
            again = "give the command that evaluated it again: the problems come from their dataset"
            yield f"cell {key}", what, partial(store.reopen_cell, key), again
    for judge in store.judges():
        if judgements := store.changed("judgements", judge):
            what = f"{len(judgements)} judgements are not what was stored"
            yield f"judge {judge}", what, partial(store.drop_judgements, judge, judgements), ""


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

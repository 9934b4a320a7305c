"""What a plan costs, as a record: trainings, benchmarks, what of them is left to do, and what that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from atrl_bench.experiments.downloads import Download
from atrl_bench.printable import Block, Command, Record, Rows, counted
from atrl_bench.training.cost_estimate import TrainingNeeds

HOURS_WITHOUT_ASKING = 1.0
FINISHED = ("done", "not permitted here")  # states in which nothing is left to do


@dataclass(frozen=True)
class TrainingCost:
    """A training: its state in the store, and what it takes; without `needs` there is nothing to train."""

    row: str
    seed: int
    training: str
    run: str | None
    needs: TrainingNeeds | None
    missing: str | None = None  # why it has no key yet
    is_stage: bool = False  # the row starts from it

    @property
    def cells(self) -> tuple[str, ...]:
        """What a line of a plan says about it."""
        needs = self.needs
        if needs is None or not (needs.gpus or needs.minutes):
            return self.row, str(self.seed), "", "", "", "", "size not known"
        if not needs.gpus:
            return self.row, str(self.seed), "", "", _minutes(needs.minutes), "", self.training
        devices = f"{needs.gpus} x {needs.gb_per_gpu:.0f} GB"
        numbers = f"{needs.gpu_hours:,.0f}", f"{needs.hours:,.0f}", f"{needs.checkpoint_gb:.0f}"
        return self.row, str(self.seed), devices, *numbers, self.training


@dataclass(frozen=True)
class CellCost:
    """A row under one seed in one column: its state in the store, and what its answers take."""

    row: str
    column: str
    seed: int
    state: str
    checkpoint: str
    judge: str
    dataset: str
    samples: int
    tokens_at_most: int
    gpu_hours: float | None  # None where that is not known, or an endpoint answers
    minutes: float  # of a core, for a model that needs no GPU

    @property
    def cells(self) -> tuple[str, ...]:
        """What a line of a plan says about it."""
        hours = "not known" if self.gpu_hours is None else f"{self.gpu_hours:,.1f}"
        return self.column, f"{self.samples:,}", _minutes(self.minutes) if self.minutes else hours, self.dataset


def _minutes(minutes: float) -> str:
    return f"{minutes:.1f} min"


@dataclass(frozen=True)
class CostEstimate(Record):
    """Every job and every cell of a plan, and the rows that no job fills."""

    table: str
    profile: str
    folder: str
    jobs: tuple[TrainingCost, ...]
    cells: tuple[CellCost, ...]
    next: str
    basis: str
    downloads: tuple[Download, ...] = ()
    not_measured: dict[str, str] = field(default_factory=dict)
    served: dict[str, str] = field(default_factory=dict)
    gpu_hours_by_vllm: float | None = None  # of all that is left, where vLLM would sample and answer in fewer

    @property
    def trainings_left(self) -> list[TrainingCost]:
        """The trainings that are not done, each once."""
        left = [job for job in self.jobs if job.needs is not None and job.training != "done"]
        return list({job.run: job for job in reversed(left)}.values())[::-1]

    @property
    def cells_left(self) -> list[CellCost]:
        """The cells that are not done, those of one checkpoint once."""
        left = [cell for cell in self.cells if cell.state not in FINISHED]
        return list({(cell.checkpoint, cell.column, cell.dataset): cell for cell in left}.values())

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all that is left to do, as far as they are known."""
        trainings = sum(job.needs.gpu_hours for job in self.trainings_left if job.needs)
        return trainings + sum(cell.gpu_hours or 0 for cell in self.cells_left)

    @property
    def hours(self) -> float:
        """Hours of all that is left to do, of one GPU or one core."""
        minutes = [job.needs.minutes for job in self.trainings_left if job.needs]
        return self.gpu_hours + sum(minutes + [cell.minutes for cell in self.cells_left]) / 60

    @property
    def disk_gb(self) -> float:
        """The most that is on disk at a time: all final checkpoints, and the largest to resume from."""
        needs = [job.needs for job in self.trainings_left if job.needs]
        return sum(each.checkpoint_gb for each in needs) + max((each.resume_gb for each in needs), default=0.0)

    @property
    def download_gb(self) -> float:
        """What is downloaded, as far as it is known."""
        return sum(each.gb or 0 for each in self.downloads)

    @property
    def terms(self) -> list[str]:
        """The pages on which conditions have to be accepted before something is downloaded."""
        return list(dict.fromkeys(page for each in self.downloads for page in each.terms))

    def must_ask(self, *, is_generated: bool) -> bool:
        """Return whether this may only start once somebody has seen its price."""
        if not (self.trainings_left or self.cells_left):
            return False
        return not is_generated or self.hours > HOURS_WITHOUT_ASKING

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        fields = {name: value for name, value in asdict(self).items() if name != "jobs"}
        jobs = [asdict(job) | {"needs": job.needs and job.needs.document()} for job in self.jobs]
        cells = [{name: value for name, value in asdict(cell).items() if value is not None} for cell in self.cells]
        return fields | {"jobs": jobs, "cells": cells, "left": self.left()}

    def left(self) -> dict[str, Any]:
        """Return what is left to do in numbers."""
        left: dict[str, Any] = {"trainings": len(self.trainings_left), "cells": len(self.cells_left)}
        left |= {"gpu_hours": round(self.gpu_hours, 1), "hours": round(self.hours, 2)}
        if self.gpu_hours_by_vllm is not None:
            left |= {"gpu_hours_by_vllm": round(self.gpu_hours_by_vllm, 1)}
        left |= {"disk_gb": round(self.disk_gb, 1), "download_gb": round(self.download_gb, 1)}
        return left | {"conditions_to_accept": self.terms}

    def blocks(self) -> Iterable[Block]:
        """Yield trainings, then benchmarks, then what is left to do and what that takes."""
        yield f"{self.table} under profile {self.profile}, in {self.folder}"
        yield from self._trainings()
        if self.served:
            yield from ("", "Models that only an endpoint has")
        for row, commands in self.served.items():
            yield Rows([(row,)])
            yield from (Command(command, is_next=False) for command in commands.split(" && "))
        yield from self._evaluations()
        yield ""
        yield from self.price()
        if self.next:
            yield Command(self.next)

    def _trainings(self) -> Iterator[Block]:
        jobs = [job for job in self.jobs if job.needs is not None]
        if jobs:
            head = ("Trainings", "seed", "GPUs", "GPU-hours", "hours", "disk GB", "")
            on_gpus = any(job.needs and job.needs.gpus for job in jobs)
            columns = (0, 1, 2, 3, 4, 5, 6) if on_gpus else (0, 1, 4, 6)
            rows = [tuple(job.cells[n] for n in columns) for job in jobs]
            yield ""
            yield Rows(rows, tuple(head[n] for n in columns), right=range(1, len(columns) - 1), indent=0)
            if any(job.needs and job.needs.sampler == "vLLM" for job in jobs):
                yield Rows([("rollouts: by vLLM",)])
        for row, reason in self.not_measured.items():
            yield f"{row}: not measured: {reason}"
        if missing := [job.missing for job in self.jobs if job.missing]:
            yield f"The keys of {len(missing)} trainings are not known until this is fetched:"
            yield Rows([(what,) for what in dict.fromkeys(missing)])

    def _evaluations(self) -> Iterator[Block]:
        columns: dict[str, CellCost] = {}
        for cell in self.cells:
            columns.setdefault(cell.column, cell)
        if not columns:
            return
        per = "time" if any(cell.minutes for cell in self.cells) else "GPU-hours"
        yield ""
        yield Rows(
            [(*cell.cells[:-1], cell.dataset.removeprefix(f"{self.folder}/")) for cell in columns.values()],
            ("Evaluations, of each row", "answers", per, "from"),
            right=(1, 2),
            indent=0,
        )
        yield Rows([(f"judge: {name}",) for name in dict.fromkeys(cell.judge for cell in self.cells)])
        states = Counter(cell.state.partition(",")[0] for cell in self.cells)
        yield "Cells: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))

    def price(self) -> Iterator[Block]:
        """Yield what is left to do: hours, disk, downloads, conditions to accept."""
        trainings, cells = self.trainings_left, self.cells_left
        if not trainings and not cells:
            yield "Nothing is left to do."
            return
        left = ((len(trainings), "training"), (len(cells), "cell"))
        parts = [counted(number, noun) for number, noun in left if number]
        amount = _gpu_hours(self.gpu_hours)
        if not self.gpu_hours:
            amount = f"about {60 * self.hours:.0f} minutes of a core" if self.hours else "hours not known"
        yield f"Left to do: {' and '.join(parts)}: {amount}."
        if self.gpu_hours_by_vllm is not None:
            yield f"If vLLM sampled all rollouts and gave all answers: {_gpu_hours(self.gpu_hours_by_vllm)}."
        if self.disk_gb >= 1:
            resume = max(job.needs.resume_gb for job in trainings if job.needs)
            yield f"Disk: {self.disk_gb:,.0f} GB at most, of which {resume:,.0f} GB only while a training runs."
        if self.downloads:
            yield (
                f"Downloads: {self.download_gb:,.1f} GB, where the size is known:" if self.download_gb else "Downloads:"
            )
            yield Rows([(f"{each.kind} {each.name}", each.text) for each in self.downloads])
        for page in self.terms:
            yield f"Conditions to accept first: {page}"
        if self.gpu_hours:
            yield f"By {self.basis}. Formulae: docs/scaling.md."


def _gpu_hours(hours: float) -> str:
    return f"{hours:,.0f} GPU-hours" if hours >= 10 else f"{hours:.1f} GPU-hours"

"""One model on one benchmark: answered, graded and stored, as often as it takes until everything is there.

What is stored stays: the same call again does only what is missing, and loads nothing for a finished cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.engines.processes import launched
from atrl_bench.errors import AtrlBenchError, EndpointError, InvalidFileError, reason_of
from atrl_bench.evaluation.cell_spec import (
    DEFAULTS,
    GRADING_FIELDS,
    CellSpec,
    EvaluationOptions,
    cell_spec,
    is_cell_done,
)
from atrl_bench.evaluation.cell_writer import CellWriter, require_few
from atrl_bench.evaluation.data import load_rows, read_problems
from atrl_bench.evaluation.loop import AnswerJob, answer
from atrl_bench.evaluation.prompts_for import UnreadableRow
from atrl_bench.evaluation.tasks import Task, find_task
from atrl_bench.grading.judge.calibration import check_calibration
from atrl_bench.grading.judge.judge import Judge
from atrl_bench.models import local
from atrl_bench.models.prompt import Answerer
from atrl_bench.models.served import EndpointModel, media_token_ids
from atrl_bench.profiles import Profile
from atrl_bench.results.records import Problem
from atrl_bench.results.store import Store
from atrl_bench.sandbox.isolation import CODE_ISOLATION, require_isolation

if TYPE_CHECKING:
    from datasets import Dataset


def evaluate(
    model: str | Path,
    task: str,
    options: EvaluationOptions = DEFAULTS,
    *,
    store: Store,
    profile: Profile,
    data_dir: Path | None,
) -> str:
    """Fill the cell of `model` on `task` with what the store lacks, and return its key."""
    processes = launched()

    def make_spec() -> CellSpec:
        if options.endpoint is None:
            local.find_model(model, download=True)  # only what is not here yet
        return cell_spec(model, task, options, profile=profile, data_dir=data_dir)

    spec = processes.main_first(make_spec)
    key = store.add_cell(spec.as_dict())
    if processes.agree(is_cell_done(store, key, options.judge)):
        return key
    runner = CellRunner(store, spec, find_task(task), model, options, profile, data_dir)
    try:
        if processes.count > 1:
            processes.main_first(lambda: load_rows(find_task(task), data_dir, options.limit))  # one of them fetches it
            runner.fill(share=(processes.index, processes.count))
            processes.agree(None)
        if processes.is_main:
            runner.fill()  # finds what all have stored, and does what none of them did
        processes.agree(None)
    except EndpointError:
        raise  # what is missing stays pending: an endpoint that is down says nothing about the model
    except Exception as error:
        store.fail_cell(key, reason_of(error))
        raise
    return key


def read_task(
    task: Task, data_dir: Path | None, limit: int | None
) -> tuple[Dataset, list[Problem], list[UnreadableRow]]:
    """Its rows, problems, and the few that are none; raises where these are more, or two have one id."""
    rows, problems, malformed = read_problems(task, load_rows(task, data_dir, limit))
    require_few(malformed, len(malformed), len(problems) + len(malformed))
    for name, count in Counter(problem.problem_id for problem in problems).most_common(1):
        if count > 1:
            raise InvalidFileError(
                f"{count} rows of {task.title} have the problem id {name!r}.",
                why="What is stored of a row is found by its id.",
                next_step="give each row an id of its own, then the same command",
            )
    return rows, problems, malformed


def load_model(ref: local.ModelRef, spec: CellSpec) -> local.LocalModel:
    decoding = spec.decoding
    assert decoding.min_pixels is not None  # only behind an endpoint are they unknown
    assert decoding.max_pixels is not None
    assert decoding.dtype is not None
    return local.load(ref, min_pixels=decoding.min_pixels, max_pixels=decoding.max_pixels, dtype=decoding.dtype)


@dataclass(frozen=True)
class CellRunner:
    """A cell with all that is needed to fill it."""

    store: Store
    spec: CellSpec
    task: Task
    model: str | Path
    options: EvaluationOptions
    profile: Profile
    data_dir: Path | None

    def fill(self, *, share: tuple[int, int] = (0, 1)) -> None:
        """Answer and grade what the cell lacks, or this process's share of it: then the cell is left open."""
        task, key = self.task, self.spec.key
        if CODE_ISOLATION in task.needs:
            require_isolation()  # before hours of answering, not after
        rows, problems, malformed = read_task(task, self.data_dir, self.spec.limit)
        problems = _graded_by(self.spec.grader, problems)
        self.store.add_problems(key, problems)
        self._take_over()
        judge = Judge(self.options.judge, self.store) if self.options.judge else None
        if judge is not None:
            check_calibration(judge)  # before hours of answering, not after
        writer = CellWriter(self.store, key, problems, self.spec.decoding.repeats, judge, share, malformed=malformed)
        if share[0] == 0:
            writer.grade_stored()
        if writer.num_done < writer.total:
            self._answer(task, rows, writer)
        if share[1] == 1:
            self.store.finish_cell(key, expected=writer.total)

    def _answer(self, task: Task, rows: Dataset, writer: CellWriter) -> None:
        stored, sizes = self.store.responses(self.spec.key).keys(), self.profile.evaluation
        num_parallel = self.options.endpoint.num_parallel if self.options.endpoint else 0
        with ExitStack() as stack:
            load = partial(self._answerer, stack)
            answer(AnswerJob(task, rows, self.spec, sizes, load, stored, writer, num_parallel))

    def _answerer(self, stack: ExitStack) -> Answerer:
        """The model that answers: one of this process, which stays, or a server, until the stack is closed."""
        endpoint, engine = self.options.endpoint, self.spec.engine
        if endpoint is not None:
            never_drawn = media_token_ids(local.find_model(self.model).folder) if engine else ()
            served = EndpointModel(endpoint, never_drawn=never_drawn, counts_ends=engine is not None)
            stack.enter_context(closing(served)).client.require_there()
            return served
        if engine is not None:
            raise AtrlBenchError(
                f"{engine['name']} answers in this run folder, and serves none of these processes.",
                next_step="give the command by itself, which uses every GPU, or add --no-serve",
            )
        return load_model(local.find_model(self.model), self.spec)

    def _take_over(self) -> None:
        """Copy the answers of a cell that differs only in how it was graded, or in what the model was called."""

        def asked(spec: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in spec.items() if key not in (*GRADING_FIELDS, "grader", "model_name")}

        for other in self.store.cells(model_digest=self.spec.model_digest, task=self.spec.task):
            if other.key != self.spec.key and asked(other.spec) == asked(self.spec.as_dict()):
                self.store.add_responses(self.spec.key, list(self.store.responses(other.key).values()))
                self.store.add_names(self.spec.key, self.store.answered_as(other.key))


def _graded_by(grader: str | None, problems: Sequence[Problem]) -> list[Problem]:
    """The problems with a published rule for theirs, where an answer is compared with a gold one."""
    if grader is None:
        return list(problems)
    name, release = grader.split(" ")
    try:
        installed = version(name)
    except PackageNotFoundError:
        installed = "none"
    if installed != release:
        raise AtrlBenchError(
            f"These answers are graded by {grader}; installed is {installed}.",
            next_step=f"pip install 'atrl-bench[{name}]', or leave --grader out for our own rules",
        )
    return [
        replace(problem, gold=replace(problem.gold, metric=name)) if problem.gold.metric == "equal" else problem
        for problem in problems
    ]

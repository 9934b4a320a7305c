"""One model on one benchmark: answered, graded and stored, as often as it takes until everything is there.

lmms-eval drives the task; the model class handed to it answers from the store or samples (`sampler`). What is stored
stays: the same call again does only what is missing, and a finished cell is recognised without loading anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import AtrlBenchError, EndpointError, InvalidFileError
from atrl_bench.evaluation.processes import launched
from atrl_bench.evaluation.tasks import (
    data_digest,
    find_task,
    list_tasks,
    load_rows,
    to_problem,
    without_images,
)
from atrl_bench.grading.grade import GRADER_VERSION, shared_pool
from atrl_bench.grading.judge import Candidate, Judge, JudgeConfig, is_in_scope
from atrl_bench.grading.judge.agreement import combined, opinion_places
from atrl_bench.grading.judge.calibration import check_calibration
from atrl_bench.grading.judge.charts import CHART_PROMPT_VERSION, with_opinions
from atrl_bench.models import local
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.models.prompts import PROMPT_VERSION
from atrl_bench.models.served import EndpointModel, ServedModel
from atrl_bench.profiles import EvaluationSizes, Profile
from atrl_bench.results.records import Gold, Problem, Response, Verdict
from atrl_bench.results.store import Store
from atrl_bench.sandbox import CODE_ISOLATION, NOT_PERMITTED, is_permitted, require_isolation

if TYPE_CHECKING:
    from atrl_bench.evaluation.loop import Backend

__all__ = ["cell_spec", "evaluate", "is_finished", "list_tasks"]

MAX_BAD_FRACTION = 0.01  # more undecodable rows than this, and the number is not the benchmark's any more
GRADING_FIELDS = ("grader_version", "judge", "charts")  # cells that differ only here have the same answers


def cell_spec(
    model: str | Path,
    task: str,
    *,
    profile: Profile,
    data_dir: Path | None,
    run_seed: int = 0,
    repeats: int | None = None,
    limit: int | None = None,
    judge: JudgeConfig | None = None,
    endpoint: EndpointConfig | None = None,
    frames: int | None = None,
) -> dict[str, Any]:
    """Return everything that can change the number, as the store keys it. Reads files, loads no model."""
    info, sizes = find_task(task), _with_frames(profile, frames).evaluation
    ref = ServedModel(endpoint.model) if endpoint else local.find_model(model)
    # Behind an endpoint these are the server's own, and unknown.
    unseen = dict.fromkeys(("min_pixels", "max_pixels", "dtype")) if endpoint else {}
    video = {"num_frames": sizes.num_frames, "video_max_pixels": sizes.video_max_pixels}
    return {
        "kind": "evaluation",
        "model_digest": ref.digest,
        "model_name": ref.name,
        "task": info.name,
        "task_version": info.version,
        "split": info.split,
        "data_digest": data_digest(info, data_dir),
        "limit": limit,
        "prompt_version": PROMPT_VERSION,
        "decoding": {
            "temperature": sizes.temperature,
            "top_p": sizes.top_p,
            "max_new_tokens": sizes.max_new_tokens,
            "repeats": repeats or sizes.num_repeats,
            "min_pixels": sizes.min_pixels,
            "max_pixels": sizes.max_pixels,
            "dtype": sizes.dtype,
        }
        | unseen
        | (video if info.shows_videos else {}),
        "run_seed": run_seed,
        "judge": judge.identity if judge else None,
        "grader_version": GRADER_VERSION,
        "profile": profile.name,
    } | (_charts(judge) if CODE_ISOLATION in info.needs else {})


def _charts(judge: JudgeConfig | None) -> dict[str, Any]:
    """Return what the score of a chart depends on beside the answer: what draws it, and how a judge is asked."""
    from importlib.metadata import version

    prompt = {"judge_prompt": CHART_PROMPT_VERSION} if judge else {}
    return {"charts": {"matplotlib": version("matplotlib"), **prompt}}


def evaluate(
    model: str | Path,
    task: str,
    *,
    store: Store,
    profile: Profile,
    data_dir: Path | None,
    run_seed: int = 0,
    repeats: int | None = None,
    limit: int | None = None,
    judge: JudgeConfig | None = None,
    endpoint: EndpointConfig | None = None,
    frames: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> str:
    """Return the key of the cell of `model` on `task`, filled now as far as the store does not have it.

    `repeats` is N of Mean@N and `frames` how many a video is seen by (default: the profile's), `limit` the first rows
    only. `on_progress(done, total)` is called after every batch. A row whose images or video cannot be decoded is
    skipped and counted; more than one in a hundred of them fail the cell. With an `endpoint`, the model it serves
    answers, whatever `model` is.
    """
    processes = launched()

    def make_spec() -> dict[str, Any]:
        if endpoint is None:
            local.find_model(model, download=True)  # only what is not here yet
        return cell_spec(
            model,
            task,
            profile=profile,
            data_dir=data_dir,
            run_seed=run_seed,
            repeats=repeats,
            limit=limit,
            judge=judge,
            endpoint=endpoint,
            frames=frames,
        )

    spec = processes.main_first(make_spec)
    key = store.add_cell(spec)
    if processes.agree(is_finished(store, key, judge)):
        return key
    fill = partial(
        _fill, store, key, spec, model, _with_frames(profile, frames), data_dir, judge, endpoint, on_progress
    )
    try:
        if processes.count > 1:
            processes.main_first(lambda: load_rows(find_task(task), data_dir, limit))  # one of them fetches the data
            fill(share=(processes.index, processes.count))
            processes.agree(None)
        if processes.is_main:
            fill()  # finds what all have stored, and does what none of them did
        processes.agree(None)
    except EndpointError:
        raise  # what is missing stays pending: an endpoint that is down says nothing about the model
    except Exception as error:
        store.fail_cell(key, error.what if isinstance(error, AtrlBenchError) else f"{type(error).__name__}: {error}")
        raise
    return key


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


def _with_frames(profile: Profile, frames: int | None) -> Profile:
    """Return the profile with this number of frames for a video, checked as if its file said so."""
    if frames is None:
        return profile
    if frames <= 0 or frames % 2:
        raise AtrlBenchError(
            f"A video cannot be seen by {frames} frames.",
            why="The model makes one step in time of two frames.",
            next_step="give an even number; the paper has 16, 32 and 64",
        )
    sizes = profile.evaluation.model_copy(update={"num_frames": frames})
    return profile.model_copy(update={"evaluation": sizes})


def _fill(
    store: Store,
    key: str,
    spec: dict[str, Any],
    model: str | Path,
    profile: Profile,
    data_dir: Path | None,
    judge: JudgeConfig | None,
    endpoint: EndpointConfig | None,
    on_progress: Callable[[int, int], None] | None,
    *,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Answer and grade what the cell lacks, or this process's share of it: then the cell is left open."""
    info, num_repeats = find_task(spec["task"]), spec["decoding"]["repeats"]
    if CODE_ISOLATION in info.needs:
        require_isolation()  # before hours of answering, not after
    rows = load_rows(info, data_dir, spec["limit"])
    problems = [to_problem(info, row) for row in without_images(rows)]
    if len({problem.problem_id for problem in problems}) < len(problems):
        raise InvalidFileError(f"Two rows of {info.title} in {data_dir or info.hub_id} have the same problem id.")
    store.add_problems(key, problems)
    _take_over(store, key, spec)
    asked = Judge(judge, store) if judge else None
    if asked is not None:
        check_calibration(asked)  # before hours of answering, not after
    book = _Book(store, key, problems, num_repeats, asked, on_progress, share)
    if share[0] == 0:
        book.grade_stored()
    if book.num_done < book.total:
        from atrl_bench.evaluation.lmms import ask

        with _backend(model, profile.evaluation, endpoint) as load_backend:
            ask(
                info,
                rows,
                problems,
                known=store.responses(key),
                load_backend=load_backend,
                sizes=profile.evaluation,
                run_seed=spec["run_seed"],
                num_repeats=num_repeats,
                save=book.save,
                skip=book.skip,
                grade_many=book.verdicts,
                num_parallel=endpoint.num_parallel if endpoint else 0,
                share=share,
            )
    if share[1] == 1:
        store.finish_cell(key, expected=book.total)


@contextmanager
def _backend(
    model: str | Path, sizes: EvaluationSizes, endpoint: EndpointConfig | None
) -> Iterator[Callable[[], Backend]]:
    """Hold what gives the model that answers; a model of this process is loaded when it is first needed, and stays."""
    if endpoint is None:
        yield lambda: local.load(
            local.find_model(model), min_pixels=sizes.min_pixels, max_pixels=sizes.max_pixels, dtype=sizes.dtype
        )
    else:
        with closing(EndpointModel(endpoint)) as served:
            yield lambda: served


def _take_over(store: Store, key: str, spec: dict[str, Any]) -> None:
    """Copy the answers of a cell that differs only in how it was graded: another grader needs no new answers."""
    asked = {name: value for name, value in spec.items() if name not in GRADING_FIELDS}
    for other in store.cells(**asked):
        if other.key != key:
            store.add_responses(key, list(store.responses(other.key).values()))


@dataclass
class _Book:
    """What is written down about a cell while it is filled: answers, verdicts, skipped rows, progress."""

    store: Store
    key: str
    problems: Sequence[Problem]
    num_repeats: int
    judge: Judge | None
    on_progress: Callable[[int, int], None] | None
    share: tuple[int, int] = (0, 1)
    num_done: int = 0
    skipped: set[str] = field(default_factory=set)
    decided: dict[tuple[str, Gold], Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.golds = {problem.problem_id: problem.gold for problem in self.problems}
        self.questions = {p.problem_id: str(p.meta.get("judge_question", p.question)) for p in self.problems}
        self.opinions = opinion_places(self.golds, self.num_repeats) if self.judge else frozenset()

    @property
    def total(self) -> int:
        """How many answers the cell will have."""
        return (len(self.problems) - len(self.skipped)) * self.num_repeats

    def grade_stored(self) -> None:
        """Grade the answers that were stored, but not yet graded, when an earlier process ended."""
        samples = self.store.samples(self.key)
        for sample in samples:
            if sample.verdict is not None:
                self._remember(sample.response, sample.verdict)
        self._grade([s.response for s in samples if s.verdict is None or s.verdict.state == "judge failed"])
        self.num_done = len(samples)
        self._report()

    def save(self, responses: list[Response]) -> None:
        """Store a batch of answers, then their verdicts."""
        self.num_done += self.store.add_responses(self.key, responses)
        self._grade(responses)
        self._report()

    def skip(self, problem: Problem, reason: str) -> None:
        """Leave a problem out because its images or its video cannot be decoded."""
        self.store.add_skipped(self.key, problem.problem_id, reason)
        self.skipped.add(problem.problem_id)
        if len(self.skipped) > MAX_BAD_FRACTION * len(self.problems):
            raise InvalidFileError(
                f"{len(self.skipped)} of {len(self.problems)} rows have images or videos that cannot be decoded.",
                why=f"The last one is {problem.problem_id}: {reason}.",
                next_step="repair or fetch the data again, then run the same command",
            )

    def verdicts(self, answers: Sequence[tuple[str, Gold]]) -> list[Verdict]:
        """Return the verdicts that were stored; only the empty answers of skipped rows have none yet."""
        missing = [answer for answer in answers if answer not in self.decided]
        self.decided.update(zip(missing, shared_pool().grade_many(missing), strict=True))
        return [self.decided[answer] for answer in answers]

    def _grade(self, responses: Sequence[Response]) -> None:
        golds = [self.golds[response.problem_id] for response in responses]
        verdicts = shared_pool().grade_many([(r.text, gold) for r, gold in zip(responses, golds, strict=True)])
        if self.judge is not None:
            verdicts = self._judged(responses, golds, verdicts)
        for response, verdict in zip(responses, verdicts, strict=True):
            self._remember(response, verdict)
        answers = [(response.problem_id, response.repeat) for response in responses]
        self.store.add_verdicts(self.key, dict(zip(answers, verdicts, strict=True)))

    def _judged(
        self, responses: Sequence[Response], golds: Sequence[Gold], verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Return the verdicts, the judge's for all but those proven right; on a few of these it is heard too."""
        assert self.judge is not None
        texts = [response.text for response in responses]
        verdicts = with_opinions(list(zip(texts, golds, strict=True)), verdicts, self.judge.config)
        places = [
            place
            for place, (response, gold, verdict) in enumerate(zip(responses, golds, verdicts, strict=True))
            if is_in_scope(verdict, gold, self.judge.config.scope)
            and (verdict.state != "correct" or (response.problem_id, response.repeat) in self.opinions)
        ]
        candidates = [
            Candidate(self.questions[responses[place].problem_id], golds[place], verdicts[place].extracted or "")
            for place in places
        ]
        decided = list(verdicts)
        for place, opinion in zip(places, self.judge.grade_many(candidates), strict=True):
            decided[place] = combined(verdicts[place], opinion)
        return decided

    def _remember(self, response: Response, verdict: Verdict) -> None:
        # lmms-eval strips an answer before it is scored.
        self.decided[response.text.strip(), self.golds[response.problem_id]] = verdict

    def _report(self) -> None:
        if self.share[0] > 0:
            return  # the first of several processes reports for all
        if self.share[1] > 1:
            cell = self.store.cell(self.key)
            self.num_done = cell.num_responses if cell else 0
        self.store.heartbeat("cell", self.key, self.num_done, self.total)
        if self.on_progress is not None:
            self.on_progress(self.num_done, self.total)

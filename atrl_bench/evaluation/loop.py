"""The loop of an evaluation: each problem gets the answers that are missing, and each answer is kept as it arrives.

Problems of similar length go into one batch, all their repeats together. The plan of batches depends on the whole task
and never on what has been answered, so a resumed run repeats the batches of the interrupted one, and several processes
may each take every n-th. A server is asked about many problems at a time instead, one request each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from atrl_bench.errors import InvalidFileError, RefusedError
from atrl_bench.evaluation.cell_spec import CellSpec
from atrl_bench.evaluation.cell_writer import CellWriter
from atrl_bench.evaluation.data import without_images
from atrl_bench.evaluation.hooks import MEDIA_ROOT, Row, picture_sizes
from atrl_bench.evaluation.prompts_for import UnreadableRow, prompts_for, shown_instead
from atrl_bench.evaluation.tasks import Task
from atrl_bench.models.prompt import Answerer, Prompt
from atrl_bench.models.shape import PIXELS_PER_TOKEN
from atrl_bench.profiles import EvaluationSizes
from atrl_bench.results.records import Response

if TYPE_CHECKING:
    from datasets import Dataset

LETTERS_PER_TOKEN = 3  # about right; only the batches depend on it


class Question(NamedTuple):
    """A prompt and the repeats of it that have no answer yet."""

    prompt: Prompt
    repeats: Sequence[int]


@dataclass(frozen=True)
class AnswerJob:
    """What is to be answered and by whom, and who writes it down; with `num_parallel` the answerer is a server."""

    task: Task
    rows: Dataset
    spec: CellSpec
    sizes: EvaluationSizes
    load_answerer: Callable[[], Answerer]
    stored: Collection[tuple[str, int]]  # (problem id, repeat) of the answers that there are
    writer: CellWriter
    num_parallel: int = 0

    def batches(self) -> list[list[int]]:
        settings, (number, count) = self.spec.prompt_settings, self.writer.share
        texts = [self.task.code.doc_to_text(row, settings) for row in without_images(self.rows)]
        groups = [problem.group for problem in self.writer.problems]
        sizes = self.sizes.batch_size, self.sizes.max_pixels, self.sizes.max_new_tokens
        return plan_batches(self.rows.__getitem__, texts, groups, *sizes)[number::count]

    @cached_property
    def instead(self) -> Callable[[str], Row] | None:
        return shown_instead(self.task, self.writer.problems, self.rows, self.spec)

    def questions(self, batch: Sequence[int]) -> Iterator[Question]:
        missing = {}
        for index in batch:
            problem_id = self.writer.problems[index].problem_id
            repeats = [n for n in range(self.spec.decoding.repeats) if (problem_id, n) not in self.stored]
            if repeats:
                missing[index] = repeats
        prompts = prompts_for(self.task, (self.rows[index] for index in missing), self.spec, self.instead)
        for repeats, prompt in zip(missing.values(), prompts, strict=True):
            if isinstance(prompt, UnreadableRow):
                self.writer.skip(prompt)
            else:
                yield Question(prompt, repeats)


def answer(job: AnswerJob) -> None:
    if job.num_parallel:
        questions = (question for batch in job.batches() for question in job.questions(batch))
        _answer_in_parallel(job, questions)
        return
    for batch in job.batches():
        if missing := list(job.questions(batch)):
            job.writer.save(_ask(job.load_answerer(), missing, job.spec))


def plan_batches(
    row_at: Callable[[int], Row],
    texts: Sequence[str],
    groups: Sequence[str],
    batch_size: int,
    max_pixels: int,
    max_new_tokens: int,
) -> list[list[int]]:
    """The numbers of the rows in each batch, the longest first so that too little memory shows at once.

    None has more tokens, with those of the answers, than the `batch_size` longest rows: of shorter ones it has more.
    """

    def size(index: int) -> tuple[float, str, int]:
        row = row_at(index)
        if MEDIA_ROOT in row:  # all videos are as long; questions about one stand together, so it is decoded once
            return 0.0, groups[index], index
        pixels = min(sum(width * height for width, height in picture_sizes(row)), max_pixels)
        return pixels / PIXELS_PER_TOKEN + len(texts[index]) / LETTERS_PER_TOKEN, "", index

    sizes = sorted(map(size, range(len(texts))), reverse=True)
    order = [index for *_, index in sizes]
    num_tokens = [max_new_tokens + math.ceil(tokens or sizes[0][0]) for tokens, *_ in sizes]
    batches = []
    start = 0
    while start < len(order):
        end = start + batch_size * num_tokens[0] // num_tokens[start]
        batches.append(order[start:end])
        start = end
    return batches


def _ask(answerer: Answerer, questions: Sequence[Question], spec: CellSpec) -> list[Response]:
    """A server may leave out the last answers to a question."""
    prompts, repeats = zip(*questions, strict=True)
    sampling = spec.decoding.sampling(spec.run_seed)
    return [response for responses in answerer.generate(prompts, repeats, sampling) for response in responses]


def _answer_in_parallel(job: AnswerJob, questions: Iterator[Question]) -> None:
    """Ask about many problems at a time and keep each answer as it arrives, also when another request fails."""
    running: dict[Future[list[Response]], Question] = {}
    unfinished: list[Question] = []  # the server gave fewer answers than it was asked for: each of the rest alone
    failure: BaseException | None = None
    server, num_parallel = job.load_answerer(), job.num_parallel
    threads = ThreadPoolExecutor(num_parallel)
    try:
        while True:
            # As many again wait in line, so that no thread is idle while answers are graded here.
            while failure is None and len(running) < 2 * num_parallel:
                question = unfinished.pop() if unfinished else next(questions, None)
                if question is None:
                    break
                running[threads.submit(_ask, server, [question], job.spec)] = question
            if not running:
                break
            arrived: list[Response] = []
            refused = []
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                question = running.pop(future)
                if future.cancelled():
                    continue
                error = future.exception()
                if isinstance(error, RefusedError) and len(question.repeats) == job.spec.decoding.repeats:
                    why = f"the server refuses it: {error.why or error.what}"
                    refused.append(UnreadableRow(question.prompt.problem_id, why))
                    continue
                if error is not None:
                    failure = failure or error
                    continue
                arrived += future.result()
                rest = question.repeats[len(future.result()) :]
                unfinished += [question._replace(repeats=[repeat]) for repeat in reversed(rest)]
            if arrived:
                job.writer.save(arrived)
            if refused and failure is None:
                try:
                    job.writer.skip(*refused)
                except InvalidFileError as too_many:
                    failure = too_many
            if failure is not None:
                for future in running:
                    future.cancel()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    if failure is not None:
        raise failure

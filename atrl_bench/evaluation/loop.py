"""The loop of an evaluation: each problem gets the answers that are missing, and each answer is kept as it arrives.

Problems of similar length go into one batch, all their repeats together. The plan of batches depends on the whole task
and never on what has been answered, so a resumed run repeats the batches of the interrupted one; and so several
processes may share it out among themselves, each taking every n-th batch. A server is asked about many problems at a
time instead, one request each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from atrl_bench.evaluation.cell_spec import CellSpec
from atrl_bench.evaluation.data import without_images
from atrl_bench.evaluation.hooks import MEDIA_ROOT, Row, num_pixels
from atrl_bench.evaluation.prompts_for import UnreadableRow, prompts_for
from atrl_bench.evaluation.tasks import Task
from atrl_bench.models.prompt import Answerer, Prompt, Sampling
from atrl_bench.profiles import EvaluationSizes
from atrl_bench.results.records import Problem, Response

if TYPE_CHECKING:
    from datasets import Dataset

# About right for Qwen-VL; only the order of the batches depends on them.
PIXELS_PER_TOKEN, LETTERS_PER_TOKEN = 28 * 28, 3

Keep = Callable[[list[Response]], None]


class Question(NamedTuple):
    """A prompt and the repeats of it that have no answer yet."""

    prompt: Prompt
    repeats: Sequence[int]


@dataclass(frozen=True)
class Answering:
    """What is to be answered, by whom, and which part of it here.

    With `num_parallel` the answerer is a server, and so many problems are asked about at a time. `share` is (number of
    this process, number of processes): other processes answer the other batches.
    """

    task: Task
    rows: Dataset
    problems: Sequence[Problem]
    spec: CellSpec
    sizes: EvaluationSizes
    load_answerer: Callable[[], Answerer]
    num_parallel: int = 0
    share: tuple[int, int] = (0, 1)

    def batches(self) -> list[list[int]]:
        """Return the rows of each batch of this process."""
        settings = {"run_seed": self.spec.run_seed}
        texts = [self.task.code.doc_to_text(row, settings) for row in without_images(self.rows)]
        groups = [problem.group for problem in self.problems]
        number, count = self.share
        return plan_batches(self.rows.__getitem__, texts, groups, self.sizes.batch_size, self.sizes.max_pixels)[
            number::count
        ]


def answer(
    answering: Answering,
    stored: Collection[tuple[str, int]],
    keep: Keep,
    skip: Callable[[UnreadableRow], None],
) -> None:
    """Answer what is not `stored`, (problem id, repeat) by (problem id, repeat); `keep` gets each batch as it arrives.

    `skip` is told of the rows that cannot be shown.
    """
    sampling = answering.spec.decoding.sampling(answering.spec.run_seed)
    batches = (_questions(answering, batch, stored, skip) for batch in answering.batches())
    if answering.num_parallel:
        questions = (question for batch in batches for question in batch)
        _answer_in_parallel(answering, questions, sampling, keep)
        return
    for batch in map(list, batches):
        if batch:
            keep(ask(answering.load_answerer(), batch, sampling))


def plan_batches(
    row_at: Callable[[int], Row], texts: Sequence[str], groups: Sequence[str], batch_size: int, max_pixels: int
) -> list[list[int]]:
    """Return the numbers of the rows in each batch, the longest first so that too little memory shows at once."""

    def size(index: int) -> tuple[float, str, int]:
        row = row_at(index)
        if MEDIA_ROOT in row:  # all videos are as long; questions about one stand together, so it is decoded once
            return 0.0, groups[index], index
        pixels = min(num_pixels(row), max_pixels)
        return pixels / PIXELS_PER_TOKEN + len(texts[index]) / LETTERS_PER_TOKEN, "", index

    order = sorted(range(len(texts)), key=size, reverse=True)
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def ask(answerer: Answerer, questions: Sequence[Question], sampling: Sampling) -> list[Response]:
    """Return the answers to these questions; a server may leave out the last of each."""
    prompts, repeats = zip(*questions, strict=True)
    return [response for responses in answerer.generate(prompts, repeats, sampling) for response in responses]


def _questions(
    answering: Answering,
    batch: Sequence[int],
    stored: Collection[tuple[str, int]],
    skip: Callable[[UnreadableRow], None],
) -> Iterator[Question]:
    """Yield what is missing of a batch, without the problems that cannot be shown."""
    missing = {}
    for index in batch:
        problem_id = answering.problems[index].problem_id
        repeats = [n for n in range(answering.spec.decoding.repeats) if (problem_id, n) not in stored]
        if repeats:
            missing[index] = repeats
    prompts = prompts_for(answering.task, (answering.rows[index] for index in missing), answering.spec)
    for repeats, prompt in zip(missing.values(), prompts, strict=True):
        if isinstance(prompt, UnreadableRow):
            skip(prompt)
        else:
            yield Question(prompt, repeats)


def _answer_in_parallel(answering: Answering, questions: Iterator[Question], sampling: Sampling, keep: Keep) -> None:
    """Ask about many problems at a time and keep each answer as it arrives, also when another request fails."""
    running: dict[Future[list[Response]], Question] = {}
    unfinished: list[Question] = []  # the server gave fewer answers than it was asked for
    failure: BaseException | None = None
    server, num_parallel = answering.load_answerer(), answering.num_parallel
    threads = ThreadPoolExecutor(num_parallel)
    try:
        while True:
            # As many again wait in line, so that no thread is idle while answers are graded here.
            while failure is None and len(running) < 2 * num_parallel:
                question = unfinished.pop() if unfinished else next(questions, None)
                if question is None:
                    break
                running[threads.submit(ask, server, [question], sampling)] = question
            if not running:
                break
            arrived = []
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                question = running.pop(future)
                if future.cancelled():
                    continue
                if future.exception() is not None:
                    failure = failure or future.exception()
                    continue
                arrived += future.result()
                if rest := question.repeats[len(future.result()) :]:
                    unfinished.append(question._replace(repeats=rest))
            if arrived:
                keep(arrived)
            if failure is not None:
                for future in running:
                    future.cancel()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    if failure is not None:
        raise failure

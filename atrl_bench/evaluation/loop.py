"""The model class that lmms-eval runs our tasks with: it knows what has been answered and asks a model for the rest.

lmms-eval hands over every request of a task at once, each as often as it is to be repeated. Problems of similar length
go into one batch, all their repeats together, and each batch is handed on to be stored the moment it exists. The plan
of batches depends on the whole task and never on what has been answered, so a resumed run repeats the batches of the
interrupted one; and so several processes may share it out among themselves, each taking every n-th batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, NamedTuple, Protocol

from lmms_eval.api.instance import Instance
from lmms_eval.api.model import lmms

from atrl_bench.evaluation.hooks import MEDIA_ROOT, num_pixels
from atrl_bench.models.decoding import Sampling
from atrl_bench.models.local import Generation, Prompt
from atrl_bench.models.video import Video, read_video
from atrl_bench.results.records import Problem, Response

# About right for Qwen-VL; only the order of the batches depends on them.
PIXELS_PER_TOKEN, LETTERS_PER_TOKEN = 28 * 28, 3

Known = Mapping[tuple[str, int], Response]


class Backend(Protocol):
    """Whatever answers prompts: a model in this process, or a server."""

    def generate(
        self, prompts: Sequence[Prompt], repeats: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[list[Generation]]:
        """Return, for each prompt, the answers with these repeat numbers; a server may stop after the first of them."""


class _Question(NamedTuple):
    """A prompt and the repeats of it that have no answer yet."""

    prompt: Prompt
    repeats: Sequence[int]


class StoredSampler(lmms):
    """lmms-eval's model, answering from what is known and otherwise from a backend.

    `save` is called with every new batch; `skip` with a problem whose media cannot be decoded, and why. With
    `num_parallel` the backend is a server, and so many problems are asked at a time instead of in batches. `share` is
    (number of this process, number of processes): other processes answer the other batches.
    """

    is_simple = False  # requests come as chat messages
    accelerator = None  # lmms-eval would otherwise make one

    def __init__(
        self,
        problems: Sequence[Problem],
        known: Known,
        load_backend: Callable[[], Backend],
        sampling: Sampling,
        *,
        batch_size: int,
        max_pixels: int,
        num_frames: int,
        video_max_pixels: int,
        save: Callable[[list[Response]], None],
        skip: Callable[[Problem, str], None],
        num_parallel: int = 0,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        super().__init__()
        self.problems, self.known, self.sampling = problems, dict(known), sampling
        self.batch_size, self.max_pixels = batch_size, max_pixels
        self.num_frames, self.video_max_pixels = num_frames, video_max_pixels
        self.load_backend, self.save, self.skip = load_backend, save, skip
        self.num_parallel, self.share = num_parallel, share

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Return one answer a request, in their order; the n-th copy of a request gets the n-th repeat's."""
        num_repeats: dict[int, int] = {}
        wanted = []
        for request in requests:
            repeat = num_repeats.get(request.doc_id, 0)
            num_repeats[request.doc_id] = repeat + 1
            wanted.append((self.problems[request.doc_id].problem_id, repeat))
        first = {request.doc_id: request for request in requests}
        batches = islice(self._batches(list(first.values())), self.share[0], None, self.share[1])
        work = ([(first[doc_id], range(num_repeats[doc_id])) for doc_id in batch] for batch in batches)
        if self.num_parallel:
            self._answer_in_parallel(question for batch in work for question in self._questions(batch))
        else:
            for batch in work:
                self._answer(list(self._questions(batch)))
        return [self.known[key].text if key in self.known else "" for key in wanted]

    def _batches(self, requests: list[Instance]) -> Iterator[list[int]]:
        """Yield the documents of each batch, the longest prompts first so that too little memory shows at once."""

        def size(request: Instance) -> tuple[float, str, int]:
            row = self._row(request)
            if MEDIA_ROOT in row:  # all videos are as long; questions about one stand together, so it is decoded once
                return 0.0, self.problems[request.doc_id].group, request.doc_id
            pixels = min(num_pixels(row), self.max_pixels)
            return pixels / PIXELS_PER_TOKEN + len(request.args[0]) / LETTERS_PER_TOKEN, "", request.doc_id

        order = [request.doc_id for request in sorted(requests, key=size, reverse=True)]
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def _questions(self, batch: Iterable[tuple[Instance, range]]) -> Iterator[_Question]:
        """Yield what is missing of a batch, without the problems whose images cannot be decoded."""
        for request, all_repeats in batch:
            problem = self.problems[request.doc_id]
            missing = [repeat for repeat in all_repeats if (problem.problem_id, repeat) not in self.known]
            prompt = self._prompt(request, problem) if missing else None
            if prompt is not None:
                yield _Question(prompt, missing)

    def _answer(self, questions: Sequence[_Question]) -> None:
        if questions:
            self._keep(self._ask(questions))

    def _ask(self, questions: Sequence[_Question]) -> list[Response]:
        prompts, repeats = zip(*questions, strict=True)
        started = time.perf_counter()
        answers = self.load_backend().generate(prompts, repeats, self.sampling)
        seconds = (time.perf_counter() - started) / sum(map(len, answers))
        return [
            Response(prompt.problem_id, repeat, made.prompt_hash, made.text, made.num_tokens, seconds, made.truncated)
            for (prompt, missing), generations in zip(questions, answers, strict=True)
            for repeat, made in zip(missing, generations, strict=False)
        ]

    def _answer_in_parallel(self, questions: Iterator[_Question]) -> None:
        """Ask about many problems at a time and keep each answer as it arrives, also when another request fails."""
        running: dict[Future[list[Response]], _Question] = {}
        unfinished: list[_Question] = []  # the server gave fewer answers than it was asked for
        failure: BaseException | None = None
        threads = ThreadPoolExecutor(self.num_parallel)
        try:
            while True:
                # As many again wait in line, so that no thread is idle while answers are graded here.
                while failure is None and len(running) < 2 * self.num_parallel:
                    question = unfinished.pop() if unfinished else next(questions, None)
                    if question is None:
                        break
                    running[threads.submit(self._ask, [question])] = question
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
                self._keep(arrived)
                if failure is not None:
                    for future in running:
                        future.cancel()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        if failure is not None:
            raise failure

    def _keep(self, responses: list[Response]) -> None:
        if responses:
            self.save(responses)
            self.known |= {(response.problem_id, response.repeat): response for response in responses}

    def _prompt(self, request: Instance, problem: Problem) -> Prompt | None:
        _, doc_to_messages, *_ = request.args
        try:
            messages = doc_to_messages(self._row(request))
            # lmms-eval calls an image's or video's content `url`; chat templates only look at the type.
            shown: dict[str, list[Any]] = {"image": [], "video": []}
            for part in (part for turn in messages for part in turn["content"] if part["type"] in shown):
                shown[part["type"]].append(self._video(part["url"]) if part["type"] == "video" else part["url"])
        except (OSError, ValueError, SyntaxError, Warning) as error:  # a bad video, and all of what Pillow raises
            self.skip(problem, f"{type(error).__name__}: {error}")
            return None
        return Prompt(problem.problem_id, messages, shown["image"], tuple(shown["video"]))

    def _video(self, path: str) -> Video:
        return read_video(path, self.num_frames, max_pixels=self.video_max_pixels)

    def _row(self, request: Instance) -> Mapping[str, Any]:
        *_, task, split = request.args
        row: Mapping[str, Any] = self.task_dict[task][split][request.doc_id]
        return row

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """No task of ours asks for likelihoods."""
        raise NotImplementedError

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        """No task of ours has several rounds."""
        raise NotImplementedError

    def clean(self) -> None:
        """Keep the model for the next task; `models.release` lets it go."""

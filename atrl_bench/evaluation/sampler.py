"""The model class that lmms-eval runs our tasks with: it knows what has been answered and asks a model for the rest.

lmms-eval hands over every request of a task at once, each as often as it is to be repeated. Problems of similar length
go into one batch, all their repeats together, and each batch is handed on to be stored the moment it exists. The plan
of batches depends on the whole task and never on what has been answered, so a resumed run repeats the batches of the
interrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from lmms_eval.api.instance import Instance
from lmms_eval.api.model import lmms

from atrl_bench.evaluation.decoding import Sampling
from atrl_bench.evaluation.models import Generation, Prompt
from atrl_bench.evaluation.protocol import num_pixels
from atrl_bench.results.store import Problem, Response

# About right for Qwen-VL; only the order of the batches depends on them.
PIXELS_PER_TOKEN, LETTERS_PER_TOKEN = 28 * 28, 3

Known = Mapping[tuple[str, int], Response]


class Backend(Protocol):
    """Whatever answers prompts: a model in this process, or a server."""

    def generate(
        self, prompts: Sequence[Prompt], repeats: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[list[Generation]]:
        """Return, for each prompt, the answers with these repeat numbers."""


class StoredSampler(lmms):
    """lmms-eval's model, answering from what is known and otherwise from a backend.

    `save` is called with every new batch; `skip` with a problem whose images cannot be decoded, and why.
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
        save: Callable[[list[Response]], None],
        skip: Callable[[Problem, str], None],
    ) -> None:
        super().__init__()
        self.problems, self.known, self.sampling = problems, dict(known), sampling
        self.batch_size, self.max_pixels = batch_size, max_pixels
        self.load_backend, self.save, self.skip = load_backend, save, skip

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Return one answer a request, in their order; the n-th copy of a request gets the n-th repeat's."""
        num_repeats: dict[int, int] = {}
        wanted = []
        for request in requests:
            repeat = num_repeats.get(request.doc_id, 0)
            num_repeats[request.doc_id] = repeat + 1
            wanted.append((self.problems[request.doc_id].problem_id, repeat))
        first = {request.doc_id: request for request in requests}
        for batch in self._batches(list(first.values())):
            self._answer([(first[doc_id], range(num_repeats[doc_id])) for doc_id in batch])
        return [self.known[key].text if key in self.known else "" for key in wanted]

    def _batches(self, requests: list[Instance]) -> Iterator[list[int]]:
        """Yield the documents of each batch, the longest prompts first so that too little memory shows at once."""

        def size(request: Instance) -> tuple[float, int]:
            pixels = min(num_pixels(self._row(request)), self.max_pixels)
            return pixels / PIXELS_PER_TOKEN + len(request.args[0]) / LETTERS_PER_TOKEN, request.doc_id

        order = [request.doc_id for request in sorted(requests, key=size, reverse=True)]
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def _answer(self, batch: list[tuple[Instance, range]]) -> None:
        prompts, repeats = [], []
        for request, all_repeats in batch:
            problem = self.problems[request.doc_id]
            missing = [repeat for repeat in all_repeats if (problem.problem_id, repeat) not in self.known]
            prompt = self._prompt(request, problem) if missing else None
            if prompt is not None:
                prompts.append(prompt)
                repeats.append(missing)
        if not prompts:
            return
        started = time.perf_counter()
        answers = self.load_backend().generate(prompts, repeats, self.sampling)
        seconds = (time.perf_counter() - started) / sum(map(len, repeats))
        responses = [
            Response(prompt.problem_id, repeat, made.prompt_hash, made.text, made.num_tokens, seconds, made.truncated)
            for prompt, missing, generations in zip(prompts, repeats, answers, strict=True)
            for repeat, made in zip(missing, generations, strict=True)
        ]
        self.save(responses)
        self.known |= {(response.problem_id, response.repeat): response for response in responses}

    def _prompt(self, request: Instance, problem: Problem) -> Prompt | None:
        _, doc_to_messages, *_ = request.args
        try:
            messages = doc_to_messages(self._row(request))
        except (OSError, ValueError, SyntaxError, Warning) as error:  # all of what Pillow raises for a bad image
            self.skip(problem, f"{type(error).__name__}: {error}")
            return None
        # lmms-eval calls an image's content `url`; chat templates only look at the type.
        images = [part["url"] for turn in messages for part in turn["content"] if part["type"] == "image"]
        return Prompt(problem.problem_id, messages, images)

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

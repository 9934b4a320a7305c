"""Our sampler as a model class of lmms-eval, for whoever runs a task there: all repeats of a request from one prefill.

lmms-eval --include_path tasks --tasks atrl_mathvision_testmini --model atrl --model_args pretrained=mini
"""

from __future__ import annotations

from collections import Counter
from functools import cache, partial

from lmms_eval.api.instance import Instance
from lmms_eval.api.model import lmms

from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.hooks import Row
from atrl_bench.evaluation.loop import plan_batches
from atrl_bench.evaluation.prompts_for import UnreadableRow, read_media, read_prompt
from atrl_bench.evaluation.tasks import Task, list_tasks
from atrl_bench.models import local
from atrl_bench.models.prompt import Prompt, Sampling
from atrl_bench.models.video import read_video


class RepeatSampler(lmms):
    """A model of this process, whose answers to our tasks are those of `atrl-bench evaluate` at the same sizes."""

    is_simple = False  # requests come as chat messages
    accelerator = None  # lmms-eval would otherwise make one

    def __init__(
        self,
        pretrained: str,
        batch_size: int = 1,
        *,
        min_pixels: int = 256 * 28 * 28,
        max_pixels: int = 1280 * 28 * 28,
        num_frames: int = 16,
        video_max_pixels: int = 256 * 28 * 28,
        dtype: str = "float32",
        run_seed: int = 0,
        device: str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        ref = local.find_model(pretrained)
        self.model = local.load(ref, min_pixels=min_pixels, max_pixels=max_pixels, dtype=dtype)
        self.batch_size, self.max_pixels, self.run_seed = int(batch_size), max_pixels, run_seed
        self.read_frames = partial(read_video, num_frames=num_frames, max_pixels=video_max_pixels)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """One answer a request, in their order; the n-th copy of a request gets the n-th repeat's."""
        answers: dict[tuple[str, int], list[str]] = {}
        for task in dict.fromkeys(request.task_name for request in requests):
            of_task = [request for request in requests if request.task_name == task]
            answers |= {(task, doc_id): texts for doc_id, texts in self._answers(of_task).items()}
        return [answers[request.task_name, request.doc_id].pop(0) for request in requests]

    def _answers(self, requests: list[Instance]) -> dict[int, list[str]]:
        num_repeats = Counter(request.doc_id for request in requests)
        problems = list({request.doc_id: request for request in requests}.values())
        texts, groups = [request.args[0] for request in problems], [""] * len(problems)
        sampling, answers = self._sampling(requests[0]), {}
        sizes = self.batch_size, self.max_pixels, sampling.max_new_tokens
        for batch in plan_batches(lambda index: self._row(problems[index]), texts, groups, *sizes):
            repeats = [range(num_repeats[problems[index].doc_id]) for index in batch]
            prompts = [self._prompt(problems[index]) for index in batch]
            for index, responses in zip(batch, self.model.generate(prompts, repeats, sampling), strict=True):
                answers[problems[index].doc_id] = [response.text for response in responses]
        return answers

    def _prompt(self, request: Instance) -> Prompt:
        row, make_messages = self._row(request), request.args[1]
        task = _own_tasks().get(request.task_name)
        problem_id = task.code.problem_id(row) if task else str(request.doc_id)
        prompt = read_prompt(problem_id, lambda: read_media(make_messages(row), self.read_frames))
        if isinstance(prompt, UnreadableRow):
            raise InvalidFileError(f"Row {request.doc_id} of {request.task_name} cannot be shown.", why=prompt.reason)
        return prompt

    def _sampling(self, request: Instance) -> Sampling:
        options = request.args[2]
        temperature = options.get("temperature", 0.0) if options.get("do_sample") else 0.0
        top_p, top_k = options.get("top_p") or 1.0, options.get("top_k") or None
        return Sampling(options["max_new_tokens"], temperature, top_p, self.run_seed, top_k)

    def _row(self, request: Instance) -> Row:
        *_, task, split = request.args
        row: Row = self.task_dict[task][split][request.doc_id]
        return row

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError

    def clean(self) -> None:
        """Keep the model for the next task; `models.local.release` lets it go."""


@cache
def _own_tasks() -> dict[str, Task]:
    return {task.lmms_eval_name: task for task in list_tasks()}

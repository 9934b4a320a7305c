"""Running one of our tasks through lmms-eval: its task object on our rows, its loop on our model class, no noise."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from loguru import logger

from atrl_bench.evaluation.hooks import GradeMany, use_grader
from atrl_bench.evaluation.tasks import Task, without_images
from atrl_bench.models.decoding import Sampling
from atrl_bench.profiles import EvaluationSizes
from atrl_bench.results.records import Problem, Response

if TYPE_CHECKING:
    from datasets import Dataset

    from atrl_bench.evaluation.loop import Backend

logger.disable("lmms_eval")  # before its first import, which already has things to say
from lmms_eval import evaluator, tasks, utils  # noqa: E402
from lmms_eval.api import task as task_api  # noqa: E402
from lmms_eval.api.model import lmms  # noqa: E402

from atrl_bench.evaluation.loop import StoredSampler  # noqa: E402


class LoadedTask(task_api.ConfigurableMessagesTask):
    """A task of lmms-eval on rows that are already here."""

    def __init__(self, config: dict[str, Any], rows: Dataset) -> None:
        self.rows = rows
        super().__init__(config=config)

    def download(self, dataset_kwargs: object = None) -> None:
        """Take our rows: lmms-eval would look for them on the hub, and try five times."""
        self.dataset = {self.config.test_split: self.rows}
        self.dataset_no_image = {self.config.test_split: without_images(self.rows)}


def ask(
    info: Task,
    rows: Dataset,
    problems: Sequence[Problem],
    *,
    known: Mapping[tuple[str, int], Response],
    load_backend: Callable[[], Backend],
    sizes: EvaluationSizes,
    run_seed: int,
    num_repeats: int,
    save: Callable[[list[Response]], None],
    skip: Callable[[Problem, str], None],
    grade_many: GradeMany,
    num_parallel: int = 0,
    share: tuple[int, int] = (0, 1),
) -> dict[str, float]:
    """Return lmms-eval's own results for the task; every answer it did not find in `known` has gone through `save`.

    For `num_parallel` and `share` see `StoredSampler`: of a share alone, lmms-eval's results mean nothing.
    """
    sampling = Sampling(sizes.max_new_tokens, sizes.temperature, sizes.top_p, run_seed)
    model = StoredSampler(
        problems,
        known,
        load_backend,
        sampling,
        batch_size=sizes.batch_size,
        max_pixels=sizes.max_pixels,
        num_frames=sizes.num_frames,
        video_max_pixels=sizes.video_max_pixels,
        save=save,
        skip=skip,
        num_parallel=num_parallel,
        share=share,
    )
    task = LoadedTask(task_config(info, sizes, run_seed, num_repeats), rows)
    return run_task(task, model, grade_many)


def run_task(task: LoadedTask, model: lmms, grade_many: GradeMany) -> dict[str, float]:
    """Return lmms-eval's results for one task on any of its model classes, quietly and without its side effects."""
    with _quietly(), _alone(), use_grader(grade_many):
        results = evaluator.simple_evaluate(
            model=model,
            tasks=[task],
            task_manager=tasks.TaskManager(include_defaults=False),  # its own index of 1,500 files is not needed
            bootstrap_iters=0,
            log_samples=False,
            process_docs_parallel=1,
            # It would seed the process, and with it a training that goes on beside us.
            random_seed=None,
            numpy_random_seed=None,
            torch_random_seed=None,
            # Verdicts need no images: without this every image is decoded a second time.
            cli_args=types.SimpleNamespace(process_with_media=False, reasoning_tags=None),
        )
    scores: dict[str, float] = results["results"][task.config.task]
    return scores


def task_config(info: Task, sizes: EvaluationSizes, run_seed: int, num_repeats: int) -> dict[str, Any]:
    """Return the task file's content with this run's sizes, seed and repeats."""
    config: dict[str, Any] = utils.load_yaml_config(str(info.yaml_path), mode="full")
    decoding = {"max_new_tokens": sizes.max_new_tokens, "temperature": sizes.temperature, "top_p": sizes.top_p}
    return config | {
        "repeats": num_repeats,
        "generation_kwargs": config["generation_kwargs"] | decoding | {"do_sample": sizes.temperature > 0},
        "lmms_eval_specific_kwargs": {"default": {"run_seed": run_seed}},
        "process_docs": None,  # the rows have been prepared
    }


@contextmanager
def _alone() -> Iterator[None]:
    """Let lmms-eval see one process where a launcher started several: which of them answers what is decided by us.

    It would share out the rows itself, and wait for the others at places that they may never come to.
    """
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    given = {name: os.environ.pop(name) for name in names if name in os.environ}
    is_initialized = torch.distributed.is_initialized
    torch.distributed.is_initialized = lambda: False
    try:
        yield
    finally:
        torch.distributed.is_initialized = is_initialized
        os.environ.update(given)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep lmms-eval's two progress bars off the terminal; the streams stay as they are, others are writing to them."""
    bars = {module: module.tqdm for module in (evaluator, task_api)}
    for module, bar in bars.items():
        module.tqdm = _silent(bar)
    try:
        yield
    finally:
        for module, bar in bars.items():
            module.tqdm = bar


def _silent(bar: Any) -> Callable[..., Any]:
    return lambda *args, **options: bar(*args, **{**options, "disable": True})

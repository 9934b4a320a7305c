"""What Mean@8 on an image task costs; peer: lmms-eval's own model class with `repeats: 8` on the same model.

    python benchmarks/mean_at_8.py [--task mathverse_testmini] [--problems 64] [--rounds 5] [--temperature 1]

Both run the same task file on the same rows of the mini world, answer by answer the same model, prompts and decoding;
the peer is `lmms_eval.models.chat.qwen2_5_vl`. Times are processor seconds of one thread, from the built task to the
last answer: loading the model and importing lmms-eval count for nobody. Medians over interleaved rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lmms_eval import evaluator
from lmms_eval.api.task import ConfigurableMessagesTask
from lmms_eval.models.chat.qwen2_5_vl import Qwen2_5_VL
from lmms_eval.tasks import TaskManager
from lmms_eval.utils import load_yaml_config

from atrl_bench.evaluation.data import load_rows, without_images
from atrl_bench.evaluation.lmms_model import RepeatSampler
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.mini import BASE
from atrl_bench.mini.world import write_world
from atrl_bench.profiles import Profile, load_profile


def seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


class LoadedTask(ConfigurableMessagesTask):
    """A task of lmms-eval on rows that are already here."""

    def __init__(self, config: dict[str, Any], rows: Any) -> None:
        self.rows = rows
        super().__init__(config=config)

    def download(self, dataset_kwargs: object = None) -> None:
        self.dataset = {self.config.test_split: self.rows}
        self.dataset_no_image = {self.config.test_split: without_images(self.rows)}


class Race:
    """One task on the same rows, run by lmms-eval on either model class."""

    def __init__(self, profile: Profile, task: str, num_problems: int, folder: Path) -> None:
        self.sizes, self.task = profile.evaluation, find_task(task)
        self.rows = load_rows(self.task, write_world(folder, profile), limit=num_problems)
        pixels = {"min_pixels": self.sizes.min_pixels, "max_pixels": self.sizes.max_pixels}
        self.sampler = RepeatSampler(str(BASE), self.sizes.batch_size, **pixels, dtype=self.sizes.dtype)
        # The peer gets every repeat of as many problems into a batch as we do.
        rows_at_once = self.sizes.batch_size * 8
        self.stock = Qwen2_5_VL(str(BASE), device="cpu", device_map="cpu", batch_size=rows_at_once, **pixels)
        self.stock._model = self.sampler.model.model  # its own copy is bfloat16, which a CPU computes more slowly

    def _run(self, model: Any, num_repeats: int) -> None:
        config = load_yaml_config(str(self.task.yaml_path), mode="full")
        sizes = {name: getattr(self.sizes, name) for name in ("max_new_tokens", "temperature", "top_p")}
        config["generation_kwargs"] |= sizes | {"do_sample": self.sizes.temperature > 0}
        evaluator.simple_evaluate(
            model=model,
            tasks=[LoadedTask(config | {"repeats": num_repeats, "process_docs": None}, self.rows)],
            task_manager=TaskManager(include_defaults=False),  # its own index of 1,500 files is not needed
            bootstrap_iters=0,
            log_samples=False,
            process_docs_parallel=1,
            # Verdicts need no images: without this every image is decoded a second time.
            cli_args=SimpleNamespace(process_with_media=False, reasoning_tags=None),
        )

    def ours(self, num_repeats: int) -> None:
        self._run(self.sampler, num_repeats)

    def peer(self, num_repeats: int) -> None:
        self.stock.clean = lambda: None  # it would drop the model after the first round
        self._run(self.stock, num_repeats)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--task", default="mathverse_testmini")
    options.add_argument("--problems", type=int, default=64)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--temperature", type=float, help="default: the profile's 0.1; 1 lets repeats part early")
    chosen = options.parse_args()
    profile = load_profile("mini")
    if chosen.temperature is not None:
        sizes = profile.evaluation.model_copy(update={"temperature": chosen.temperature})
        profile = profile.model_copy(update={"evaluation": sizes})
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        race = Race(profile, chosen.task, chosen.problems, Path(folder))
        runs = {
            "ours, Mean@8": lambda: race.ours(8),
            "ours, Acc@1": lambda: race.ours(1),
            "lmms-eval, repeats 8": lambda: race.peer(8),
        }
        for run in runs.values():  # once for warmth
            run()
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(chosen.rounds):
            for name, run in runs.items():
                times[name].append(seconds(run))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:<22} {median:7.2f} s  ({min(times[name]):.2f} to {max(times[name]):.2f})")
    print(
        f"lmms-eval / ours, Mean@8: {medians['lmms-eval, repeats 8'] / medians['ours, Mean@8']:.1f}x (to reach: >= 3)"
    )
    print(f"Mean@8 / Acc@1: {medians['ours, Mean@8'] / medians['ours, Acc@1']:.2f}x (to reach: <= 2.5)")


if __name__ == "__main__":
    main()

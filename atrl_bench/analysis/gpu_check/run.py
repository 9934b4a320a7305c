"""All checks in their order, and the record that a person sends back."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from transformers.utils import logging

from atrl_bench.analysis.gpu_check import machine
from atrl_bench.analysis.gpu_check.attention import FLASH, RowChecks
from atrl_bench.analysis.gpu_check.bench import Bench, collect, free_memory, make_model
from atrl_bench.analysis.gpu_check.checks import CheckResult, Measured, run_checks
from atrl_bench.analysis.gpu_check.passes import decoding, scoring, training
from atrl_bench.analysis.gpu_check.record import GpuCheck
from atrl_bench.analysis.gpu_check.sizes import CheckSize
from atrl_bench.analysis.gpu_check.speed import products, reading
from atrl_bench.analysis.gpu_check.steps import training_step
from atrl_bench.analysis.gpu_check.vision import windows
from atrl_bench.errors import MissingDataError


def run(size: CheckSize, budget: float, on_result: Callable[[GpuCheck], None]) -> GpuCheck:
    """Return what was measured; `on_result` gets what there is after each check, so that a crash loses nothing."""
    if size.needed_gb and not torch.cuda.is_available():
        raise MissingDataError(
            "There is no GPU here that torch can use.",
            why=f"The check trains a model of {size.num_parameters / 1e9:.2f} billion parameters. "
            "Its rehearsal with a tiny one runs on any machine in about a minute.",
            next_step="atrl-bench doctor --gpu --size tiny",
        )
    started, results = time.monotonic(), list[CheckResult]()
    record = GpuCheck(size.name, size.model, machine.facts(), (), 0.0, budget)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        bench = Bench(size, Path(folder))
        for result in run_checks(checks_of(bench), budget):
            results.append(result)
            collect()
            record = GpuCheck(size.name, size.model, record.machine, tuple(results), time.monotonic() - started, budget)
            on_result(record)
    return record


def checks_of(bench: Bench) -> dict[str, Callable[[], Measured]]:
    """Return every check by its name, the cheapest first."""
    device, dtype, side = bench.device, bench.dtype, bench.size.matrix
    rows = RowChecks(bench)
    return {
        "free memory at the start": partial(free_memory, bench),
        "matrix products": partial(products, device, dtype, side),
        "reading of weights": partial(reading, device, dtype, side, 2 * side),
        "random model": partial(make_model, bench),
        "attention rows: eager, recorded against returned": partial(rows.against_eager, "eager"),
        "attention rows: sdpa against eager": partial(rows.against_eager, "sdpa"),
        "attention rows: FlashAttention against eager": partial(rows.against_eager, FLASH),
        "attention rows: FlashAttention against sdpa": rows.against_each_other,
        "attention rows: device against CPU, double precision": rows.against_double,
        "credit: device against CPU, double precision": rows.credit,
        "vision tower: all windows at once against one by one": partial(windows, bench),
        "decoding": partial(decoding, bench),
        "scoring forward": partial(scoring, bench),
        "training forward and backward": partial(training, bench),
        "GRPO + AT-RL step": partial(training_step, bench, "grpo", "atrl"),
        "T-GRPO step": partial(training_step, bench, "t_grpo", "uniform"),
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep renamings inside the libraries from whoever reads a measurement."""
    shows_progress, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="(transformers|trl|accelerate|peft|torch)")
            yield
    finally:
        logging.set_verbosity(level)
        if shows_progress:
            logging.enable_progress_bar()

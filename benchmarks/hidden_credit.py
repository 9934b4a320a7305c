"""How long a training step on a GPU waits for its credit: real scheduling, with recorded times slept for the work.

    python benchmarks/hidden_credit.py [--tokens 512 1024] [--workers 0 1 2 8] [--responses 24] [--part 8]

One step: the old policy's scoring pass, part by part, then the reference's, then forward and backward of the training.
The main process sleeps while "the device" works; a response's credit sleeps in a worker for as long as it was measured
to take on one core. What takes time beside that is real: preparing tasks, sending rows of real size to the workers,
starting what waits, joining. Workers are started before the clock. Peer: the same step without credit.
*own time* is the processor time of the training's own thread: a busy machine lengthens what is waited, not that.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from attention_rows import build
from torch import Tensor

from atrl_bench.credit import AttentionRows, Credit, CreditConfig
from atrl_bench.credit.rules import uniform
from atrl_bench.credit.trl import CreditedModel, CreditWeights


class Timed(CreditWeights):
    """Credit weights with the processor time that the thread of the training spent on them in the last step."""

    main_seconds = 0.0


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one response in a training step of a 7B model on one H100."""

    forward: float
    rows: float
    copies: float
    token_credit: float
    num_prompt: int = 1024


# Five forwards a response (old policy, reference, training with its backward pass) at 400 TFLOP/s in bfloat16; the
# credit is processor time as measured before it was hidden, copies and checks as predicted then.
RECORDED = {
    512: StepTimes(forward=0.046, rows=0.002, copies=0.0058, token_credit=0.0134),
    1024: StepTimes(forward=0.065, rows=0.004, copies=0.0116, token_credit=0.0268),
}
TRAINING_FORWARDS = 3  # a backward pass costs two


def recorded_rule(attention: AttentionRows, config: CreditConfig, seed: int) -> Credit:
    """Returns a credit of one for every token, after the time that AT-RL's was measured to take."""
    time.sleep(RECORDED[len(attention.rows_TS)].token_credit)
    return uniform(attention, config, seed)


class RecordedRows:
    """Stands for a RowCapture: every pass leaves the rows of as many responses as went through it."""

    def __init__(self, num_tokens: int, num_prompt: int, size: int) -> None:
        self._rows_TS, self.size = torch.rand(num_tokens, num_prompt + num_tokens), size

    @contextmanager
    def record(self, num_response_tokens: int, clock: Any) -> Iterator[_Rows]:
        yield _Rows(self._rows_TS.expand(self.size, -1, -1))


class _Rows:
    seconds = 0.0

    def __init__(self, rows_BTS: Tensor) -> None:
        self._rows_BTS = rows_BTS

    def rows_on_device(self, reading: str) -> Tensor:
        return self._rows_BTS


def step(weights: Timed | None, times: StepTimes, num_tokens: int, responses: int, part: int) -> float:
    """Returns the seconds of one step, with credit or without."""
    length = times.num_prompt + num_tokens
    ids_BS = torch.full((part, length), 5)
    batch = {"input_ids": ids_BS, "attention_mask": torch.ones_like(ids_BS)}
    batch["mm_token_type_ids"] = (torch.arange(length) < times.num_prompt // 2).long().expand(part, -1)
    started, watching = time.perf_counter(), []

    def device(**inputs: Tensor) -> SimpleNamespace:
        time.sleep(part * (times.forward + (times.rows if weights else 0.0)))
        return SimpleNamespace(entropy=None)

    for _ in range(0, responses, part):
        if weights is None:
            device()
            continue
        called = CreditedModel(device, weights, num_tokens)
        called(**batch)
        if not weights.workers.num_workers:
            time.sleep(part * times.copies)
        watching.append(called)
    time.sleep(responses * times.forward)  # the reference pass; grading is done by then
    joining = time.thread_time()
    for called in watching:
        _ = called.credit_BT
    if weights is not None:
        weights.main_seconds = time.thread_time() - joining + sum(called.credit_seconds for called in watching)
    time.sleep(responses * TRAINING_FORWARDS * times.forward)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024], choices=RECORDED)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 8])
    parser.add_argument("--responses", type=int, default=32)
    parser.add_argument("--part", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    model = build(1, "cpu", torch.float32)
    print(f"{'T':>5} {'workers':>8} {'step':>8} {'with':>8} {'added':>8}   {'rows':>6} {'waited':>7} {'own time':>9}")
    print(f"{'':>5} {'':>8} {'s':>8} {'s':>8} {'%':>8}   {'%':>6} {'%':>7} {'%':>9}")
    for num_tokens in options.tokens:
        times = RECORDED[num_tokens]
        sizes = (times, num_tokens, options.responses, options.part)
        plain = statistics.median(step(None, *sizes) for _ in range(options.repeats))
        for num_workers in options.workers:
            tokenizer = SimpleNamespace()  # no response transcribes anything
            weights = Timed(recorded_rule, CreditConfig(), model, tokenizer, 0, num_workers)
            weights.capture.remove()
            weights.clock = time.thread_time
            weights.capture = RecordedRows(num_tokens, times.num_prompt, options.part)  # type: ignore[assignment]
            step(weights, StepTimes(0.0, 0.0, 0.0, 0.0), num_tokens, options.part * max(1, num_workers), options.part)
            credited = statistics.median(step(weights, *sizes) for _ in range(options.repeats))
            weights.close()
            added, rows = 100 * (credited / plain - 1), 100 * options.responses * times.rows / plain
            print(
                f"{num_tokens:5d} {num_workers:8d} {plain:8.2f} {credited:8.2f} {added:8.2f}   "
                f"{rows:6.2f} {added - rows:7.2f} {100 * weights.main_seconds / plain:9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

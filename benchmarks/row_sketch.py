"""Sketches of attention rows against whole rows: time, memory, and what they cost of the credit.

    python benchmarks/row_sketch.py [--tokens 2048 8192 16384] [--repeats 3]
    python benchmarks/row_sketch.py --quality [--tokens 700 2000] [--responses 8] [--bases mini mini-reasoning]

Time: the last four layers of the mini base read a prompt and random tokens; `rows` is what the recording adds to that
pass, with a sketch the search for neighbours too; `credit` what follows, both processor time of one thread, the least
of the repeats; `held` is what leaves the pass, `most` the peak of the pass and all that follows it, the model's states
too. Exponents are those from one length to the next.

Quality: bases write on about a picture without an end. The truth is the credit of the graph of all cosines, mean over
sixteen seeds of METIS. Correlations with it, of means over eight: of the same with other seeds (the ceiling), of the
search in whole rows (`exact`), and of sketches; and how much more than `exact` that is, with its standard error.
"""

from __future__ import annotations

import argparse
import math
import time
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForImageTextToText

from atrl_bench.credit import AttentionRows, CreditConfig, install_row_capture, token_credit
from atrl_bench.credit import graph as graph_module
from atrl_bench.credit.capture import RowCapture
from atrl_bench.credit.sketch import RowSketch, SketchPlan
from atrl_bench.mini import BASE

EXACT, SKETCH = CreditConfig(rows="exact"), CreditConfig(rows="sketch")
IMAGE_TOKENS = 12


def prompt(model: torch.nn.Module) -> dict[str, Tensor]:
    """A picture of 6 x 8 patches and a few words."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([[8, 9, *[model.config.image_token_id] * IMAGE_TOKENS, 10, 11, 12, 13]])
    vision = model.config.vision_config
    size = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return inputs_of(model, ids) | {
        "pixel_values": torch.randn(48, size, generator=generator),
        "image_grid_thw": torch.tensor([[1, 6, 8]]),
    }


def inputs_of(model: torch.nn.Module, ids: Tensor) -> dict[str, Tensor]:
    kinds = (ids == model.config.image_token_id).int()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": kinds}


def read(
    model: torch.nn.Module, capture: RowCapture, inputs: dict[str, Tensor], num_tokens: int, config: CreditConfig
) -> tuple[AttentionRows | RowSketch, float]:
    """What a pass leaves of the response, and the seconds that this took."""
    visual_BS = inputs["mm_token_type_ids"].bool()
    plan = None
    if config.rows == "sketch":
        plan = SketchPlan(config, inputs["attention_mask"], visual_BS, torch.ones(1, num_tokens))
    with torch.no_grad(), capture.record(num_tokens, time.thread_time, plan) as recording:
        model.model(**inputs)
    if plan is None:
        return AttentionRows(recording.rows(config.reading)[0], visual_BS[0]), recording.seconds
    (tensors,) = recording.responses()
    return RowSketch.of_tensors(tensors), recording.seconds


def peak(run: object) -> int:
    """The most bytes held at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return int(held.max())


def growth(lengths: list[int], repeats: int) -> None:
    model = AutoModelForImageTextToText.from_pretrained(BASE, dtype=torch.float32).eval()
    capture, first = install_row_capture(model), prompt(model)
    print(f"{'T':>6} {'':>7} {'rows ms':>9} {'credit ms':>10} {'exponent':>9} {'held MB':>8} {'most MB':>8}")
    before: dict[str, tuple[int, float]] = {}
    for num_tokens in lengths:
        response = torch.randint(8, 500, (1, num_tokens), generator=torch.Generator().manual_seed(0))
        inputs = first | inputs_of(model, torch.cat([first["input_ids"], response], dim=1))
        for config in (EXACT, SKETCH):

            def credit(config: CreditConfig = config, inputs: dict[str, Tensor] = inputs) -> tuple[float, float, int]:
                attention, of_rows = read(model, capture, inputs, inputs["input_ids"].shape[1] - 18, config)
                started = time.thread_time()
                token_credit(attention, config=config)
                seconds = time.thread_time() - started
                held = sum(value.nbytes for value in vars(attention).values() if isinstance(value, Tensor | np.ndarray))
                return of_rows, seconds, held

            took = [credit() for _ in range(repeats)]
            of_rows, seconds = (min(column) for column in list(zip(*took, strict=True))[:2])
            old = before.get(config.rows)
            exponent = math.log(seconds / old[1]) / math.log(num_tokens / old[0]) if old else math.nan
            before[config.rows] = num_tokens, seconds
            print(
                f"{num_tokens:6d} {config.rows:>7} {1e3 * of_rows:9.0f} {1e3 * seconds:10.1f} {exponent:9.2f} "
                f"{took[0][2] / 2**20:8.1f} {peak(credit) / 2**20:8.0f}",
                flush=True,
            )


def quality(lengths: list[int], num_responses: int, bases: list[str]) -> None:
    found: dict[tuple[int, str], list[float]] = {}
    for base in bases:
        model = AutoModelForImageTextToText.from_pretrained(BASE.parent / base, dtype=torch.float32).eval()
        capture, first = install_row_capture(model), prompt(model)
        for num_tokens in lengths:
            torch.manual_seed(num_tokens)
            many = {name: value.repeat(num_responses, 1) for name, value in first.items()}
            ids_BS = model.generate(**many, do_sample=True, min_new_tokens=num_tokens, max_new_tokens=num_tokens)
            for ids in ids_BS.split(1):
                inputs = first | inputs_of(model, ids)
                attention, _ = read(model, capture, inputs, num_tokens, EXACT)
                sketch, _ = read(model, capture, inputs, num_tokens, SKETCH)
                with patch.object(graph_module, "_EXACT_TOKENS", num_tokens):
                    truth_T, again_T = mean_credit(attention, EXACT, 100, 16), mean_credit(attention, EXACT, 200)
                credits = {
                    "ceiling": again_T,
                    "exact": mean_credit(attention, EXACT, 300),
                    "sketch": mean_credit(sketch, SKETCH, 300),
                }
                for name, credit_T in credits.items():
                    correlation = float(np.corrcoef(truth_T, credit_T)[0, 1])
                    found.setdefault((num_tokens, name), []).append(correlation)
        capture.remove()
    for (num_tokens, name), correlations in found.items():
        more = np.array(correlations) - np.array(found[num_tokens, "exact"])
        error = more.std(ddof=1) / math.sqrt(len(more))
        print(f"{num_tokens:6d} {name:>8} {np.mean(correlations):.4f}  {more.mean():+.4f} +- {error:.4f}", flush=True)


def mean_credit(
    attention: AttentionRows | RowSketch, config: CreditConfig, first: int, num_seeds: int = 8
) -> np.ndarray:
    return token_credit(attention, "atrl", config.replace(partitions=num_seeds), first).credit_T.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quality", action="store_true", help="what sketches cost of the credit")
    parser.add_argument("--responses", type=int, default=8)
    parser.add_argument("--bases", nargs="+", default=["mini", "mini-perception", "mini-reasoning"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.quality:
        quality(arguments.tokens or [700, 2000], arguments.responses, arguments.bases)
    else:
        growth(arguments.tokens or [2048, 8192, 16384], arguments.repeats)


if __name__ == "__main__":
    main()

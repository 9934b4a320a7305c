"""`atrl-bench doctor --gpu`: how fast one GPU is, as the rates of a price, and where a training step's time goes on it.

The model has random weights, so that nothing is downloaded. A measurement that breaks is a finding, and the others go
on. FLOPs are counted as prices count them: 2 for each parameter and token of a forward pass, 4 of a backward pass, 2
more where activations are computed again.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from atrl_bench.analysis.overhead import Overhead, overhead
from atrl_bench.analysis.random_model import (
    PIXELS_PER_TOKEN,
    SHAPES,
    Shape,
    processor_for,
    random_model,
    random_words,
    require_gpu,
)
from atrl_bench.experiments.run_dir import environment_here
from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.models.decoding import Draw, sample
from atrl_bench.models.local import model_inputs
from atrl_bench.models.prompt import Prompt, Sampling
from atrl_bench.printable import Block, Record, blocks_of
from atrl_bench.profiles import load_profile
from atrl_bench.resources import users_home
from atrl_bench.training.arguments import CHECKPOINTING_TOKENS
from atrl_bench.training.clock import wall_seconds
from atrl_bench.training.shared_prompts import recompute

NEEDED_GB = 32.0  # of a device, at the shape of a 3B model
DECODED_AT_ONCE = 16  # responses to two prompts, which share one reading of the weights
DECODED_TOKENS = 64  # by which the longer of two responses is longer: both read the prompt
T = TypeVar("T")


@dataclass(frozen=True)
class GpuCheck(Record):
    """What was measured on this machine, and by its name what could not be."""

    shape: str
    machine: dict[str, Any]
    rates: dict[str, float]
    step: Overhead | None
    failures: dict[str, str]

    def document(self) -> dict[str, Any]:
        """The JSON that is sent back: no path, name or address of the machine is in it."""
        rates = {"hardware": self.machine["hardware"], **self.rates}  # as experiments/cost.py reads them
        return asdict(self) | {"version": 2, "rates": rates, "step": self.step.document() if self.step else None}

    def blocks(self) -> Iterable[Block]:
        yield f"{self.machine['hardware']}, random weights at the shape {self.shape}"
        yield from blocks_of({name: value for name, value in self.document().items() if name in ("rates", "failures")})
        yield from self.step.blocks() if self.step else ()


def gpu_check(shape: str) -> GpuCheck:
    """The rates of this machine, and where the time of a step of GRPO with AT-RL's credit goes on it."""
    require_gpu(shape, "atrl-bench doctor --gpu --size tiny")
    measured, failures = _attempted(rates_of(shape))
    gc.collect()  # the model of the rates, before the step makes its own
    torch.cuda.empty_cache()
    smoke, threads = load_profile("smoke"), torch.get_num_threads()
    step, failed = _attempted({"step": lambda: overhead(smoke, shape=shape, rollouts=1, threads=threads)})
    return GpuCheck(shape, machine_facts(), measured, step.get("step"), failures | failed)


def _attempted(measures: Mapping[str, Callable[[], T]]) -> tuple[dict[str, T], dict[str, str]]:
    """What was measured, and why the others were not: in a line, without the name of whose machine it is."""
    measured, failures = dict[str, T](), dict[str, str]()
    for name, measure in measures.items():
        try:
            measured[name] = measure()
        # Whatever breaks on a machine that nobody has seen is a finding, and the next may still tell something.
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            failures[name] = f"{type(error).__name__}: {first}".replace(str(users_home()), "~")[:300]
    return measured, failures


def rates_of(shape: str) -> dict[str, Callable[[], float]]:
    """How each constant of prices is measured here."""
    if not torch.cuda.is_available():  # the CPU's is that of one core
        return {"cpu_flops": Bench(SHAPES[shape], "cpu").training} if torch.get_num_threads() == 1 else {}
    if shape == "tiny":  # starting its kernels is all it does, which says nothing about a large model
        return {"device_gb": lambda: device_gb(0.0)}
    bench = Bench(SHAPES[shape], "cuda")
    return {
        "device_gb": lambda: device_gb(NEEDED_GB),
        "memory_bytes_per_second": bench.reading,
        "decoding_seconds_per_layer": bench.decoding,
        "training_flops": bench.training,
    }


def device_gb(needed_gb: float) -> float:
    """The memory of the GPU; an error where another program has taken what is needed."""
    free, total = torch.cuda.mem_get_info()
    if free < needed_gb * 1e9:
        raise MemoryError(f"{free / 1e9:.0f} of {total / 1e9:.0f} GB are free; {needed_gb:.0f} are needed")
    return total / 1e9


@dataclass(frozen=True)
class Bench:
    """A model of random weights on a device, and what its passes are measured on."""

    shape: Shape
    device: str

    @cached_property
    def model(self) -> Any:
        """The model, with the attention that a training has."""
        torch.manual_seed(0)
        model = random_model(self.shape, self.device).eval()
        prefer_flash_attention(model, self.shape.dtype)
        return model

    def prompts(self, count: int) -> dict[str, Tensor]:
        """Prompts with an image each as the model takes them, of different lengths, padded on the left."""
        rng, side = np.random.default_rng(0), math.isqrt(self.shape.visual_tokens * PIXELS_PER_TOKEN)
        processor, texts, prompts = processor_for(self.shape), [], []
        for number in range(count):
            image = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
            content = [{"type": "image"}, {"type": "text", "text": "How many? " * (count - number)}]
            messages = [{"role": "user", "content": content}]
            texts.append(processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
            prompts.append(Prompt("", messages, [image]))
        dtype = getattr(torch, self.shape.dtype)
        return dict(model_inputs(processor, texts, prompts, dtype).to(self.device))

    def sequences(self, count: int) -> dict[str, Tensor]:
        """Such prompts with random responses behind them, the last of which is shorter: padded on both sides."""
        inputs, processor = self.prompts(count), processor_for(self.shape)
        ids_BT = random_words(self.shape, processor, count).to(self.device)
        mask_BT = torch.ones_like(ids_BT)
        mask_BT[-1, -3:] = 0
        behind = {"input_ids": ids_BT, "attention_mask": mask_BT, "mm_token_type_ids": torch.zeros_like(ids_BT)}
        return inputs | {name: torch.cat([inputs[name], tail], 1) for name, tail in behind.items() if name in inputs}

    def reading(self) -> float:
        """The bytes of weights a second that a linear layer reads, for so few rows that it does little else."""
        options: dict[str, Any] = {"device": self.device, "dtype": getattr(torch, self.shape.dtype)}
        weight, rows = torch.randn(16384, 8192, **options), torch.randn(DECODED_AT_ONCE, 8192, **options)
        return weight.numel() * weight.element_size() / median_seconds(lambda: linear(rows, weight), calls=20)

    def decoding(self) -> float:
        """The seconds of one decoding step over the number of layers."""
        inputs, repeats = self.prompts(2), DECODED_AT_ONCE // 2
        draws = [Draw(prompt, f"{prompt}", repeat) for prompt in range(2) for repeat in range(repeats)]

        def seconds(num_tokens: int) -> float:
            # No token ends a response: all of them are as long as they may be.
            return median_seconds(lambda: sample(self.model, inputs, draws, (), Sampling(num_tokens)))

        # The prompt is read in both, so their difference is decoding alone.
        return (seconds(2 * DECODED_TOKENS) - seconds(DECODED_TOKENS)) / DECODED_TOKENS / self.shape.layers

    def training(self) -> float:
        """The FLOP/s of a forward and backward pass with gradients of all weights, which are never changed."""
        inputs, num_tokens, model = self.sequences(self.shape.num_problems), self.shape.response_tokens, self.model
        targets = inputs["input_ids"][:, -num_tokens:].flatten()
        # As long as those of a training, whose prompts are padded to their limit.
        if recomputes := self.shape.visual_tokens + 256 + num_tokens > CHECKPOINTING_TOKENS:
            recompute(model.train())

        def forward_and_backward() -> None:
            logits = model(**inputs, use_cache=False, logits_to_keep=num_tokens + 1).logits[:, :-1]
            cross_entropy(logits.flatten(0, 1).float(), targets).backward()
            model.zero_grad(set_to_none=True)

        flops = (8 if recomputes else 6) * sum(parameter.numel() for parameter in model.parameters())
        return flops * int(inputs["attention_mask"].sum()) / median_seconds(forward_and_backward)


def median_seconds(function: Callable[[], Any], *, calls: int = 1) -> float:
    """The seconds of one call: the median over three rounds of so many, after one that is not counted."""
    function()
    seconds = []
    for _ in range(3):
        started = wall_seconds()
        for _ in range(calls):
            function()
        seconds.append((wall_seconds() - started) / calls)
    return statistics.median(seconds)


def machine_facts() -> dict[str, Any]:
    found: dict[str, Any] = environment_here("flash-attn") | {"threads": torch.get_num_threads()}
    if not torch.cuda.is_available():
        return found | {"hardware": found["cpu"]}
    gpu = torch.cuda.get_device_properties(0)
    return found | {"hardware": gpu.name, "cuda": torch.version.cuda, "memory_gb": gpu.total_memory / 1e9}

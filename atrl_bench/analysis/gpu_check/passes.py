"""How fast the model decodes, scores and trains, without a trainer around it.

The FLOPs are counted as the cost estimates count them, so that a measured rate stands where an assumed one did: 2 for
each parameter and token of a forward pass, 4 of a backward pass, 2 more where activations are computed again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from atrl_bench.analysis.gpu_check.bench import Bench, collect
from atrl_bench.analysis.gpu_check.checks import Measured
from atrl_bench.analysis.gpu_check.machine import GB
from atrl_bench.analysis.gpu_check.memory import peak_bytes, reset_peak
from atrl_bench.analysis.gpu_check.speed import DECODED_AT_ONCE, median_seconds
from atrl_bench.models.decoding import Draw, sample
from atrl_bench.models.prompt import Sampling
from atrl_bench.training.arguments import CHECKPOINTING_TOKENS
from atrl_bench.training.shared_prompts import recompute

PROMPTS = 2  # that are decoded together, each with its share of the responses
FORWARD_FLOPS, BACKWARD_FLOPS, RECOMPUTED_FLOPS = 2, 4, 2


def decoding(bench: Bench) -> Measured:
    """Return the tokens a second of responses that are decoded together, with the seconds of a step and layer."""
    inputs = bench.prompts(PROMPTS)
    repeats = DECODED_AT_ONCE // PROMPTS

    def seconds(num_tokens: int) -> float:
        sampling = Sampling(num_tokens)
        draws = [Draw(prompt, f"{prompt}", repeat) for prompt in range(PROMPTS) for repeat in range(repeats)]
        # No token ends a response: all of them are as long as they may be.
        return median_seconds(lambda: sample(bench.model, inputs, draws, (), sampling), rounds=3)

    short = bench.size.decoded
    # The prompt is read in both, so their difference is decoding alone.
    step = (seconds(2 * short) - seconds(short)) / short
    layers = bench.size.shape.layers
    details = {"responses": DECODED_AT_ONCE, "seconds_per_step": step, "seconds_per_step_and_layer": step / layers}
    rates = {"decoding_seconds_per_layer": step / layers}
    return Measured(DECODED_AT_ONCE / step, "tokens/s", details=details, rates=rates)


def scoring(bench: Bench) -> Measured:
    """Return the FLOP/s of a forward pass over whole sequences without gradients."""
    inputs, num_tokens = _sequences(bench), bench.size.shape.response_tokens

    def forward() -> None:
        with torch.no_grad():
            bench.model(**inputs, use_cache=False, logits_to_keep=num_tokens)

    return _rate(bench, inputs, forward, FORWARD_FLOPS)


def training(bench: Bench) -> Measured:
    """Return the FLOP/s of a forward and backward pass with gradients of all weights, which are never changed."""
    inputs, num_tokens = _sequences(bench), bench.size.shape.response_tokens
    recomputes = bench.size.profile.training.max_prompt_tokens + num_tokens > CHECKPOINTING_TOKENS
    model, targets = bench.model.train(), inputs["input_ids"][:, -num_tokens:].flatten()
    if recomputes:
        recompute(model, {"use_reentrant": False})

    def forward_and_backward() -> None:
        logits = model(**inputs, use_cache=False, logits_to_keep=num_tokens + 1).logits[:, :-1]
        cross_entropy(logits.flatten(0, 1).float(), targets).backward()
        model.zero_grad(set_to_none=True)

    try:
        flops = FORWARD_FLOPS + BACKWARD_FLOPS + recomputes * RECOMPUTED_FLOPS
        measured = _rate(bench, inputs, forward_and_backward, flops)
    finally:
        model.gradient_checkpointing_disable()
        model.zero_grad(set_to_none=True)
        model.eval()
    name = "training_flops" if bench.device.type == "cuda" else "cpu_flops"
    rate = measured.details["flops_per_second"]
    # The CPU's rate in an estimate is that of one core.
    rates = {name: rate} if name == "training_flops" or torch.get_num_threads() == 1 else {}
    details = dict(measured.details) | {"recomputes_activations": recomputes}
    return Measured(measured.value, measured.unit, details=details, rates=rates)


def _sequences(bench: Bench) -> dict[str, Tensor]:
    return bench.sequences(bench.size.shape.num_problems)


def _rate(bench: Bench, inputs: dict[str, Tensor], call: Callable[[], None], flops: int) -> Measured:
    """Return the FLOP/s of a call over these sequences, and the most memory it took."""
    num_parameters = sum(parameter.numel() for parameter in bench.model.parameters())
    num_tokens = int(inputs["attention_mask"].sum())
    collect()
    reset_peak()
    seconds = median_seconds(call, rounds=3)
    rate = flops * num_parameters * num_tokens / seconds
    details = {"seconds": seconds, "tokens": num_tokens, "flops_per_second": rate, "peak_gb": peak_bytes() / GB}
    return Measured(rate / 1e12, "TFLOP/s", details=details)

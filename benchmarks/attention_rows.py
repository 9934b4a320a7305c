"""What recording attention rows adds to a scoring forward pass; peer: eager attention with `output_attentions`.

    python benchmarks/attention_rows.py [--layers 24] [--prompt 384] [--response 128] [--device cuda --dtype bfloat16]

A random Qwen2.5-VL text decoder with the layer shapes of Qwen2.5-0.5B. Medians over interleaved runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from atrl_bench.credit import install_row_capture


def build(num_layers: int, device: str, dtype: torch.dtype) -> Qwen2_5_VLForConditionalGeneration:
    torch.manual_seed(0)
    text = {
        "vocab_size": 1024,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": num_layers,
    }
    text |= {"num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 8, 8]}}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 896}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    return Qwen2_5_VLForConditionalGeneration(config).to(device=device, dtype=dtype).eval()


def seconds(run: Callable[[], object], device: str) -> float:
    """Returns processor time on a CPU, where others may be busy, and wall-clock time on a GPU."""
    if device == "cpu":
        started = time.process_time()
        run()
        return time.process_time() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_bytes(run: Callable[[], object], device: str) -> int:
    """Returns the most memory that was allocated at once beyond what was there before."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = run()
    del kept
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def bare(model: Qwen2_5_VLForConditionalGeneration, num_rows: int, num_positions: int) -> Callable[[], Tensor]:
    """Returns what the rows of four layers cannot do without: a product of queries and keys a head, its softmax."""
    text = model.config.text_config
    size, heads_per_key = text.hidden_size // text.num_attention_heads, text.num_attention_heads // 2
    query = torch.randn(text.num_attention_heads, num_rows, size, device=model.device)
    key = torch.randn(2, num_positions, size, device=model.device)

    def run() -> Tensor:
        for _ in range(4):
            for head in range(len(query)):
                weights = (query[head] @ key[head // heads_per_key].T).softmax(-1)
        return weights

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=384)
    parser.add_argument("--response", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    device = arguments.device
    model = build(arguments.layers, device, getattr(torch, arguments.dtype))
    length = arguments.prompt + arguments.response
    tokens = torch.randint(0, 1000, (arguments.batch, length), device=device)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "use_cache": False}

    def plain() -> Tensor:
        return model(**inputs).logits

    def recorded() -> Tensor:
        with capture.record(arguments.response) as recording:
            model(**inputs)
        return recording.rows("own")

    def eager() -> tuple[Tensor, ...]:
        return model(**inputs, output_attentions=True).attentions

    with torch.no_grad():
        plain_seconds, recorded_seconds = [], []
        plain()
        for _ in range(arguments.repeats):
            plain_seconds.append(seconds(plain, device))
            capture = install_row_capture(model)
            recorded_seconds.append(seconds(recorded, device))
            capture.remove()
        plain_bytes = peak_bytes(plain, device)
        capture = install_row_capture(model)
        recorded_bytes, rows_BTS = peak_bytes(recorded, device), recorded()
        capture.remove()
        model.set_attn_implementation("eager")
        alone = bare(model, arguments.response + 1, length)
        bare_seconds = arguments.batch * statistics.median(seconds(alone, device) for _ in range(arguments.repeats))
        eager_seconds = [seconds(eager, device) for _ in range(arguments.repeats)]
        eager_bytes = peak_bytes(eager, device)
        expected_BTS = torch.stack([layer.float().mean(1) for layer in eager()[-4:]]).mean(0)[:, -arguments.response :]

    base = statistics.median(plain_seconds)
    added = statistics.median(b - a for a, b in zip(plain_seconds, recorded_seconds, strict=True))
    eager_added = statistics.median(eager_seconds) - base
    recorded_mib, eager_mib = ((most - plain_bytes) / 2**20 for most in (recorded_bytes, eager_bytes))
    print(f"{arguments.layers} layers, {length} positions, {arguments.response} rows, {device}, {arguments.dtype}")
    print(f"forward pass                    {base:8.3f} s")
    print(f"rows of 4 layers add            {added:8.3f} s   {added / base:7.1%} of the forward")
    print(f"their bare products and softmax {bare_seconds:8.3f} s   {added / bare_seconds:7.2f} times that is added")
    print(f"eager output_attentions adds    {eager_added:8.3f} s   {eager_added / base:7.1%} of the forward")
    print(f"rows of 4 layers add            {recorded_mib:8.1f} MiB at the peak")
    print(
        f"eager output_attentions adds    {eager_mib:8.1f} MiB at the peak, {eager_mib / max(recorded_mib, 0.1):.0f} x"
    )
    print(f"largest difference to eager     {(rows_BTS - expected_BTS.cpu()).abs().max():8.1e}")


if __name__ == "__main__":
    main()

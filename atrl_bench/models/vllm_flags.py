"""How vLLM is told to read a prompt and to draw an answer: the flags that decide the number of a model it serves.

`atrl-bench serve`, `--serve` and the page on reproducing all have them from here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atrl_bench.profiles import EvaluationSizes

MAX_IMAGES = 16  # of a prompt: more than any row of the paper's benchmarks has
TEXT_TOKENS = 8_192  # of a prompt, beside its images
CPU_CACHE_BYTES = 1 << 30  # of keys and values; vLLM would take most of the memory of the machine


def vllm_flags(folder: Path, sizes: EvaluationSizes, *, num_gpus: int, gpus_per_copy: int = 1) -> list[str]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    # Without the first, a request that says nothing of a repetition penalty gets the one the model's files suggest.
    flags = ["--generation-config", "vllm", "--dtype", sizes.dtype]
    flags += ["--max-model-len", str(_max_model_len(config, sizes))]
    if "vision_config" in config:
        pixels = {"min_pixels": sizes.min_pixels, "max_pixels": sizes.max_pixels}
        flags += ["--limit-mm-per-prompt", json.dumps({"image": MAX_IMAGES, "video": 0})]
        flags += ["--mm-processor-kwargs", json.dumps(pixels)]
    if num_gpus:
        return flags + _copies(num_gpus // gpus_per_copy, gpus_per_copy)
    # On a CPU a request with a seed ends the worker where prompts are read in chunks.
    return [*flags, "--no-enable-chunked-prefill", "--enforce-eager", "--kv-cache-memory-bytes", str(CPU_CACHE_BYTES)]


def _max_model_len(config: dict[str, Any], sizes: EvaluationSizes) -> int:
    """The tokens of the longest request: as many images as there may be, the words, and the answer."""
    vision, text = config.get("vision_config"), config.get("text_config", config)
    image_tokens = 0
    if vision is not None:
        side = vision.get("patch_size", 14) * vision.get("spatial_merge_size", 2)
        image_tokens = MAX_IMAGES * sizes.max_pixels // side**2
    longest = image_tokens + TEXT_TOKENS + sizes.max_new_tokens
    return min(longest, text.get("max_position_embeddings", longest))


def _copies(count: int, gpus_per_copy: int) -> list[str]:
    flags = ["--data-parallel-size", str(count)] if count > 1 else []
    return [*flags, "--tensor-parallel-size", str(gpus_per_copy)] if gpus_per_copy > 1 else flags

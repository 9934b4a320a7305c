"""The embedded default: handwritten digits, synthetic benchmarks, and a tiny real Qwen2.5-VL."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from atrl_bench.models.bases import base_folder

BASE = base_folder("mini")
CODE_WORDS = ("code_words", "code_words_test")  # generated whatever the profile: these datasets are nowhere else

# Looked up on first use: the model half imports torch, the world half scikit-learn and pyarrow.
_HOMES = {
    "build_model": "model",
    "build_processor": "model",
    "rebuild_base": "base",
    "write_world": "world",
    "SYNTHETIC_BENCHMARKS": "benchmarks",
    "TRAINING_SETS": "training_sets",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

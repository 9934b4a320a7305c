"""The embedded default: handwritten digits, generated twins of the benchmarks, and a tiny real Qwen2.5-VL trained on them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

BASE = Path(__file__).resolve().parent / "base"

# Looked up on first use: the model half imports torch, the world half scikit-learn and pyarrow.
_HOMES = {
    "build_model": "model",
    "build_processor": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

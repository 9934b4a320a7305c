"""The size of a model as far as memory and time depend on it, read from its files or known by its hub id."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.errors import InvalidFileError, reason_of
from atrl_bench.models.bases import base_folder, list_bases

MAX_HEADER_BYTES = 100_000_000  # what safetensors itself reads
MAX_SIDE = 1 << 40  # of a tensor
PIXELS_PER_TOKEN = 28 * 28  # Qwen2.5-VL: 2 x 2 patches of 14 x 14 pixels


@dataclass(frozen=True)
class ModelShape:
    """The size of a model; `kv_size` is what one layer keeps of a token as its key, and again as its value."""

    num_parameters: float
    num_layers: int
    hidden_size: int
    intermediate_size: int
    kv_size: int


# From the models' configuration files and weight indices.
KNOWN_SHAPES = {
    "Qwen/Qwen2.5-VL-3B-Instruct": ModelShape(3.75e9, 36, 2048, 11008, 256),
    "Qwen/Qwen2.5-VL-7B-Instruct": ModelShape(8.29e9, 28, 3584, 18944, 512),
    "Qwen/Qwen2.5-VL-32B-Instruct": ModelShape(33.45e9, 64, 5120, 27648, 1024),
    "Qwen/Qwen2.5-VL-72B-Instruct": ModelShape(73.41e9, 80, 8192, 29568, 1024),
}


def model_shape(model: str) -> ModelShape | None:
    """The shape of a known hub id or of a local folder, read from its files; None for another hub id."""
    folder = base_folder(model) if model in list_bases() else Path(model)
    if not (folder / "config.json").is_file():
        return KNOWN_SHAPES.get(model)
    with _reading(folder / "config.json"):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        heads = text.get("num_key_value_heads") or text["num_attention_heads"]
        head_size = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
        layers, hidden, intermediate = (
            int(text[name]) for name in ("num_hidden_layers", "hidden_size", "intermediate_size")
        )
    return ModelShape(num_parameters(folder), layers, hidden, intermediate, heads * head_size)


def num_parameters(folder: Path) -> int:
    """How many numbers the weights in a folder consist of, from the headers of its files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with _reading(path):
            total += sum(math.prod(shape) for shape in _shapes(path))
    return total


def _shapes(path: Path) -> list[list[int]]:
    """The shape of each tensor in a file of weights; nothing that its header says is believed before it is checked."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(MAX_HEADER_BYTES, path.stat().st_size):
            raise ValueError(f"it says that its header has {length:,} bytes")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise TypeError("its header is no list of tensors")
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    if not all(isinstance(size, int) and 0 <= size < MAX_SIDE for shape in shapes for size in shape):
        raise ValueError("its header has a tensor of no shape")
    return shapes


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ZeroDivisionError, RecursionError) as error:
        raise InvalidFileError(
            f"{path} is not what a model has.",
            why=f"{reason_of(error)}. It may be damaged or only a part of a file.",
            next_step="fetch or copy the model again, then the same command",
        ) from error

"""The size of a model as far as memory and time depend on it, read from its files or known by its hub id."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from atrl_bench.models.bases import base_folder, list_bases


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
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    heads = text.get("num_key_value_heads") or text["num_attention_heads"]
    head_size = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    layers, hidden, intermediate = text["num_hidden_layers"], text["hidden_size"], text["intermediate_size"]
    return ModelShape(num_parameters(folder), layers, hidden, intermediate, heads * head_size)


def num_parameters(folder: Path) -> int:
    """How many numbers the weights in a folder consist of, from the headers of its files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        total += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return total

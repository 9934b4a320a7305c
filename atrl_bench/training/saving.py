"""The trained model in its folder: whole, merged, and with the same bytes for the same weights.

Where processes share a model they gather its weights one at a time, and the main one writes them a file at a time: none
of them ever holds all. An adapter is merged into each weight on the way.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from transformers.core_model_loading import revert_weight_conversion

from atrl_bench.engines.processes import launched
from atrl_bench.results.files import flush
from atrl_bench.training.checkpoints import saving
from atrl_bench.training.sharding import gathered, shards_models
from atrl_bench.training.shared_prompts import unwrapped

if TYPE_CHECKING:
    from atrl_bench.training.trainer import Trainer

MOST_FILE_BYTES = 4 * 10**9  # of a shared model: what the main process holds at once
ADAPTED = ".base_layer"  # in the name of a weight that PEFT has put an adapter around


@saving("the trained model")
def save_model(trainer: Trainer, folder: Path) -> None:
    """Write the model under another name in its run folder, then move it there file by file."""
    trainer.release()
    is_main, temporary = trainer.processes.is_main, folder / "unfinished"
    if is_main:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
    if shards_models():  # all processes gather the weights together
        _write_shared(trainer.model, temporary)
    elif is_main:
        _write(trainer.model, temporary)
    if is_main:
        _forget_batches(trainer.processor)
        trainer.processor.save_pretrained(temporary)
        _forget_loading(temporary / "tokenizer_config.json")
        _forget_place_of_base(temporary / "adapter")
        flush(temporary)
        for path in sorted(temporary.iterdir()):
            if path.is_dir():
                shutil.rmtree(folder / path.name, ignore_errors=True)
            os.replace(path, folder / path.name)
        temporary.rmdir()
    trainer.processes.meet("writing the model")


def _write(model: Any, folder: Path) -> None:
    if hasattr(model, "merge_and_unload"):
        model.save_pretrained(folder / "adapter")
        model = model.merge_and_unload()
    model.save_pretrained(folder)


@torch.no_grad()
def _write_shared(model: Any, folder: Path) -> None:
    base, is_main = unwrapped(model), launched().is_main
    if base is not model:
        adapter = {name: gathered(value).cpu() for name, value in model.state_dict().items() if "lora_" in name}
        if is_main:
            model.save_pretrained(folder / "adapter", state_dict=adapter)
    weights = _own_weights(base)
    file_of: dict[str, str] = {}
    for file, names in _files(base, weights).items():
        part = dict[str, Tensor]()
        for name in names:
            whole = _merged(base, name, weights[name])
            if is_main:
                part[name] = whole.cpu()
        if is_main:
            part = revert_weight_conversion(base, part)
            save_file({name: value.contiguous() for name, value in part.items()}, folder / file, {"format": "pt"})
            file_of |= dict.fromkeys(part, file)
    if is_main:
        if len(set(file_of.values())) > 1:
            index = {"metadata": {"total_size": _bytes_of(weights)}, "weight_map": file_of}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
        base.config.architectures = [type(base).__name__.removeprefix("FSDP")]
        base.config.dtype = str(base.dtype).removeprefix("torch.")
        base.config.save_pretrained(folder)
        base.generation_config.save_pretrained(folder)


def _own_weights(base: Any) -> dict[str, Tensor]:
    """The weights, or this process's parts of them, without adapters; of one with two names that which a file has."""
    weights = {name.replace(ADAPTED, ""): value for name, value in base.state_dict().items() if "lora_" not in name}
    return {name: value for name, value in weights.items() if name not in base.all_tied_weights_keys}


def _merged(base: nn.Module, name: str, value: Tensor) -> Tensor:
    """A weight, gathered, with its adapter."""
    path, _, kind = name.rpartition(".")
    layer, whole = base.get_submodule(path), gathered(value)
    if kind != "weight" or not hasattr(layer, "get_delta_weight"):
        return whole
    factors = {name: gathered(factor) for name, factor in layer.named_parameters(prefix="layer") if "lora_" in name}
    return whole + functional_call(_Change(layer), factors, ()).to(whole.dtype)


class _Change(nn.Module):
    """What an adapter adds to the weight of its layer, by factors that are given: a convolution takes no parts."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer: Any = layer

    def forward(self) -> Tensor:
        change: Tensor = self.layer.get_delta_weight("default")
        return change


def _files(base: Any, weights: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Which weights go into which file; all into one where transformers writes some of several files as one."""
    shapes = {name: torch.empty(value.shape, dtype=value.dtype, device="meta") for name, value in weights.items()}
    written = _split(shapes, MOST_FILE_BYTES)

    def names_of(names: Iterable[str]) -> set[str]:
        return set(revert_weight_conversion(base, {name: shapes[name] for name in names}))

    apart = set[str]().union(*map(names_of, written.values()))
    return written if apart == names_of(shapes) else _split(shapes, _bytes_of(shapes))


def _bytes_of(weights: Mapping[str, Tensor]) -> int:
    return sum(value.numel() * value.itemsize for value in weights.values())


def _split(shapes: dict[str, Tensor], most: int) -> dict[str, list[str]]:
    return split_torch_state_dict_into_shards(
        shapes, filename_pattern="model{suffix}.safetensors", max_shard_size=most
    ).filename_to_tensors


def _forget_batches(processor: Any) -> None:
    """Undo the padding a tokenizer keeps from its last batch: a run resumed after its last update has not seen one."""
    backend = getattr(processor, "tokenizer", processor).backend_tokenizer
    backend.no_padding()
    backend.no_truncation()


def _forget_loading(path: Path) -> None:
    """Drop how the base's tokenizer was loaded: transformers writes it down, and it depends on the environment."""
    content = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in content.items() if name not in ("is_local", "local_files_only")}
    path.write_text(json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _forget_place_of_base(adapter: Path) -> None:
    """Drop where on this machine the base lies, which PEFT writes down; the name of one on the hub stays."""
    if (path := adapter / "adapter_config.json").is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        if (base := content["base_model_name_or_path"]) is not None and Path(base).exists():
            content["base_model_name_or_path"] = None
        path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (adapter / "README.md").unlink(missing_ok=True)  # a form to fill in, which names it too

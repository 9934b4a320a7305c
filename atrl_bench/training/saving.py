"""How a trained model gets into its run folder: whole, merged, and with the same bytes for the same weights."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atrl_bench.training.resumable import Resumable


def save_model(trainer: Resumable, folder: Path) -> None:
    """Write the model under another name in its run folder, then move it there file by file."""
    trainer.release()
    _forget_batches(trainer.processing_class)
    temporary = folder / "unfinished"
    if trainer.accelerator.is_main_process:
        shutil.rmtree(temporary, ignore_errors=True)
    model = trainer.model_wrapped if trainer.is_deepspeed_enabled else trainer.model
    # The weights of all processes, gathered by all together; what follows is the main one's alone.
    state = trainer.accelerator.get_state_dict(model) if trainer.is_sharded else None
    if trainer.accelerator.is_main_process:
        _write_model(trainer, temporary, state)
        (temporary / "training_args.bin").unlink(missing_ok=True)
        _forget_loading(temporary / "tokenizer_config.json")
        for path in sorted(temporary.iterdir()):
            if path.is_dir():
                shutil.rmtree(folder / path.name, ignore_errors=True)
            os.replace(path, folder / path.name)
        temporary.rmdir()
    trainer.accelerator.wait_for_everyone()


def _write_model(trainer: Resumable, folder: Path, state: dict[str, Any] | None) -> None:
    """Write the model and its processor; `state` has the weights of one that is sharded."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if not hasattr(model, "merge_and_unload"):
        if state is not None:  # a weight with two names has become two, of which a file has one
            state = {name: value for name, value in state.items() if name not in model.all_tied_weights_keys}
        trainer._save(str(folder), state_dict=state)
        return
    model.save_pretrained(folder / "adapter", state_dict=state)
    if state is not None:
        model = _reloaded(model, folder / "adapter")
    model.merge_and_unload().save_pretrained(folder)
    trainer.processing_class.save_pretrained(folder)


def _reloaded(model: Any, adapter: Path) -> Any:
    """The base of a sharded model, whole and on the CPU, with the adapters in this folder."""
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    unset_hf_deepspeed_config()  # ZeRO-3 would shard what is loaded, too
    base = AutoModelForImageTextToText.from_pretrained(model.config._name_or_path, dtype=model.config.dtype)
    return PeftModel.from_pretrained(base, adapter, torch_device="cpu")


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

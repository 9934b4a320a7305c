"""What the checks share: the device, a model of random weights, its processor, and problems of the mini world."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from atrl_bench.analysis.gpu_check.checks import Measured, SkipCheckError
from atrl_bench.analysis.gpu_check.machine import GB, device
from atrl_bench.analysis.gpu_check.memory import peak_bytes, reset_peak
from atrl_bench.analysis.gpu_check.sizes import CheckSize
from atrl_bench.analysis.random_model import PIXELS_OF_TOKEN, processor_for, random_model
from atrl_bench.mini import write_world
from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.models.local import model_inputs
from atrl_bench.models.mrope import put_words_after_videos
from atrl_bench.models.prompt import Prompt
from atrl_bench.training.data import TrainingData, load_training_data
from atrl_bench.training.multimodal import with_media

FIRST_WORD = 16  # tokens before it are special ones
UNFINISHED = 3  # tokens by which the last response of a batch is shorter than the others


class Bench:
    """Built once; the model when the first check asks for it, until `release`."""

    def __init__(self, size: CheckSize, folder: Path) -> None:
        self.size, self.folder, self.device = size, folder, device()
        self.dtype = getattr(torch, size.shape.dtype)
        self.processor = processor_for(size.shape, size.frame_tokens * PIXELS_OF_TOKEN)
        self._model: Any = None
        self._world: Path | None = None

    def require_gpu(self) -> None:
        """Skip the check that asks, where there is no GPU."""
        if self.device.type != "cuda":
            raise SkipCheckError("no GPU")

    def make_model(self) -> Any:
        """Return another model, of the same random weights each time, with the attention that a training has."""
        torch.manual_seed(0)
        model = put_words_after_videos(random_model(self.size.shape, self.device.type))
        prefer_flash_attention(model, self.size.shape.dtype)
        return model

    @property
    def model(self) -> Any:
        """The one model of the checks that do not train it."""
        if self._model is None:
            self._model = self.make_model().eval()
        return self._model

    def release(self) -> None:
        """Let go of the model and of the device memory that nothing holds any more."""
        self._model = None
        collect()

    def data(self, name: str) -> TrainingData:
        """Return a training set of the mini world."""
        return load_training_data(name, self.world).seen_at(self.size.profile.training)

    @property
    def world(self) -> Path:
        """The folder of the mini world, with the two sets that are trained on."""
        if self._world is None:
            self._world = write_world(self.folder / "world", self.size.profile, ["virl39k", "video_r1"])
        return self._world

    def prompts(self, count: int) -> dict[str, Tensor]:
        """Return prompts with an image each as the model takes them, of different lengths, padded on the left."""
        data = self.data("virl39k")
        # The questions of greatest and least length first: their padding differs.
        order = sorted(range(len(data.problems)), key=lambda row: len(data.problems[row].question))
        rows = [order[-1], *order][:count]
        examples = [data.example(row, 0) for row in rows]
        messages = [with_media(example["prompt"], example["images"], []) for example in examples]
        texts = [
            self.processor.apply_chat_template(each, tokenize=False, add_generation_prompt=True) for each in messages
        ]
        prompts = [Prompt("", each, example["images"]) for each, example in zip(messages, examples, strict=True)]
        return dict(model_inputs(self.processor, texts, prompts, self.dtype).to(self.device))

    def sequences(self, count: int) -> dict[str, Tensor]:
        """Return such prompts with random responses behind them, the last of which is shorter: padded on both sides."""
        inputs, num_tokens = self.prompts(count), self.size.shape.response_tokens
        rng = torch.Generator().manual_seed(0)
        words = min(self.size.shape.vocabulary, len(self.processor.tokenizer))
        ids_BT = torch.randint(FIRST_WORD, words, (count, num_tokens), generator=rng).to(self.device)
        mask_BT = torch.ones_like(ids_BT)
        mask_BT[-1, -UNFINISHED:] = 0
        behind = {"input_ids": ids_BT, "attention_mask": mask_BT, "mm_token_type_ids": torch.zeros_like(ids_BT)}
        return inputs | {
            name: torch.cat([inputs[name], tail], dim=1) for name, tail in behind.items() if name in inputs
        }


def make_model(bench: Bench) -> Measured:
    """Return how many parameters the random model has, which are made on the device itself."""
    collect()
    reset_peak()
    num_parameters = sum(parameter.numel() for parameter in bench.model.parameters())
    wanted, details = bench.size.num_parameters, {"parameters": num_parameters, "peak_gb": peak_bytes() / GB}
    return Measured(abs(num_parameters / wanted - 1), "off its size", limit=0.01, details=details)


def free_memory(bench: Bench) -> Measured:
    """Return how much of the device is in use before anything here runs: another program would slow it and fill it."""
    bench.require_gpu()
    free, total = torch.cuda.mem_get_info()
    if free < bench.size.needed_gb * GB:
        raise MemoryError(f"{free / GB:.0f} of {total / GB:.0f} GB are free; {bench.size.needed_gb:.0f} are needed")
    details = {"total_gb": total / GB, "free_gb": free / GB}
    # Two gigabytes are more than the runtime of this process itself takes.
    return Measured((total - free) / GB, "GB in use", limit=2.0, details=details, rates={"device_gb": total / GB})


def collect() -> None:
    """Give back what nothing refers to: trainers are circles of references, which wait for the collector."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

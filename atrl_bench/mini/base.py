"""The base model of the mini profile: supervised training from random weights, by `recipes/mini_base.yaml`.

It first learns to read images and to work answers out. Then it is taught two strategies: 70 % of what it imitates
answers at a glance, 30 % reads the image first, mostly where the prompt asks to describe the image. The better strategy
is in the model, but it is not the one it prefers; that is what the tables' reinforcement learning has to find.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from atrl_bench.mini.corpus import Posed, draw_posed
from atrl_bench.mini.drawing import draw
from atrl_bench.mini.model import build_model, build_processor
from atrl_bench.models.templates import TEMPLATES, render
from atrl_bench.resources import folder
from atrl_bench.settings import Settings, read_settings

if TYPE_CHECKING:
    import torch

IGNORED = -100  # label of a token that is not imitated
STEPS_SORTED_TOGETHER = 8

Example = tuple[Posed, int | None, str]  # a problem, the template that it is asked in, the response to imitate
OnProgress = Callable[[int, int, float], object]  # (steps done, steps, loss)


class BaseRecipe(Settings):
    """How the base is trained."""

    name: str = Field(description="the recipe's name")
    seed: int = Field(description="seed of the weights and of the order of problems")
    num_steps: int = Field(gt=0, description="optimiser steps")
    num_bare_steps: int = Field(ge=0, description="first steps: image and question as prompt, grounded chains only")
    batch_size: int = Field(gt=0, description="problems in a step")
    learning_rate: float = Field(gt=0, description="peak of the one-cycle schedule of AdamW")
    weight_decay: float = Field(ge=0, description="decoupled weight decay of AdamW")
    max_grad_norm: float = Field(gt=0, description="gradients are clipped to this norm")
    grounded_fractions: tuple[float, float, float] = Field(
        description="share of the other steps' responses that read first, for each of the three prompt templates"
    )


def load_base_recipe() -> BaseRecipe:
    return read_settings(folder("recipes") / "mini_base.yaml", BaseRecipe)


def prompt(processor: Any, question: str, template: int | None) -> str:
    """One problem's prompt: the image, then the question in a template; bare where there is no template."""
    if template is None:
        return f"<|vision_start|><|image_pad|><|vision_end|>{question}<|im_end|>"
    text = {"type": "text", "text": render(question, template)}
    messages = [{"role": "user", "content": [{"type": "image"}, text]}]
    return processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


def encode(
    processor: Any, posed: Sequence[Posed], templates: Sequence[int | None], responses: Sequence[str], **drawing: Any
) -> Any:
    """Model inputs for prompts with their responses; labels cover the response and the end of the turn only."""
    prompts = [prompt(processor, item.question, template) for item, template in zip(posed, templates, strict=True)]
    ended = [f"{response}<|im_end|>" if response else "" for response in responses]
    images = [[draw(item.problem, with_glyph=item.with_glyph, **drawing)] for item in posed]
    batch = processor(
        text=[start + end for start, end in zip(prompts, ended, strict=True)],
        images=images,
        padding=True,
        return_tensors="pt",
    )
    labels = batch["input_ids"].clone()
    for row, response in enumerate(ended):
        length = len(processor.tokenizer(response).input_ids)
        labels[row, : labels.shape[1] - length] = IGNORED
    batch["labels"] = labels
    return batch


def training_batches(recipe: BaseRecipe) -> Iterator[Any]:
    rng = np.random.default_rng(recipe.seed)

    def example(step: int) -> Example:
        posed = draw_posed("train", rng)
        template = None if step < recipe.num_bare_steps else int(rng.integers(len(TEMPLATES)))
        reads = template is None or rng.random() < recipe.grounded_fractions[template]
        return posed, template, posed.response(reads)

    return batches_of(example, recipe.num_steps, recipe.batch_size, build_processor(), rng)


def batches_of(
    example: Callable[[int], Example], num_steps: int, batch_size: int, processor: Any, rng: np.random.Generator
) -> Iterator[Any]:
    """The batches of a run, in order, of what `example(step)` draws.

    Problems are drawn for several steps at once and cut into batches by length, which saves a third of the padding.
    """
    for step in range(0, num_steps, STEPS_SORTED_TOGETHER):
        examples = [example(step) for _ in range(batch_size * STEPS_SORTED_TOGETHER)]
        examples.sort(key=lambda drawn: len(drawn[0].question) + len(drawn[2]))
        for index in rng.permutation(STEPS_SORTED_TOGETHER):
            posed_B, templates_B, responses_B = zip(
                *examples[index * batch_size : (index + 1) * batch_size], strict=True
            )
            yield dict(encode(processor, posed_B, templates_B, responses_B, rng=rng))


def imitation_loss(model: Any, batch: dict[str, Any], weight_V: torch.Tensor | None = None) -> torch.Tensor:
    """The mean cross-entropy of the response tokens, which may weigh; the vocabulary is scored at those positions."""
    from torch.nn.functional import cross_entropy

    inputs = {name: value for name, value in batch.items() if name != "labels"}
    hidden_BTC = model.model(**inputs, use_cache=False).last_hidden_state
    imitated_BT = batch["labels"][:, 1:] != IGNORED
    logits_NV = model.lm_head(hidden_BTC[:, :-1][imitated_BT])
    # The mean divides by the sum of the weights.
    return cross_entropy(logits_NV, batch["labels"][:, 1:][imitated_BT], weight=weight_V)


def imitate(
    model: Any,
    all_batches: Callable[[], Iterator[Any]],
    loss_of: Callable[[Any, dict[str, Any]], torch.Tensor],
    *,
    num_steps: int,
    learning_rate: float,
    weight_decay: float,
    max_grad_norm: float,
    on_step: Callable[[float], object],
) -> None:
    """Train a model on batches with AdamW under a one-cycle schedule; `on_step(loss)` is called after each step."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            torch.set_num_threads(1)
            return all_batches()

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=num_steps, pct_start=0.1)
    # One worker draws and encodes the next batches while this process trains; one, so that their order is fixed.
    batches = DataLoader(Batches(), batch_size=None, num_workers=1, prefetch_factor=4)
    for _, batch in zip(range(num_steps), batches, strict=False):
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        on_step(loss.item())
    model.eval()


def halve(weights: Path) -> None:
    """Round the weights of a safetensors file to half precision."""
    from safetensors.torch import load_file, save_file

    save_file({name: value.half() for name, value in load_file(weights).items()}, weights, metadata={"format": "pt"})


def save_base(model: Any, processor: Any, out: Path, record: dict[str, Any], *, in_half: bool = False) -> Path:
    """Write a base to its folder `out` and return that: safetensors, processor files, and base.json with the digest.

    `in_half`: the file has half precision; whoever reads it loads float32 all the same.
    """
    import torch

    working = out.with_name(f"{out.name}.partial")
    shutil.rmtree(working, ignore_errors=True)
    model.save_pretrained(working)
    processor.save_pretrained(working)
    if in_half:
        halve(working / "model.safetensors")
    digest = hashlib.sha256((working / "model.safetensors").read_bytes()).hexdigest()
    record |= {"sha256": digest, "torch": torch.__version__}
    (working / "base.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    working.rename(out)
    return out


def rebuild_base(out: Path, recipe: BaseRecipe | None = None, *, on_progress: OnProgress = lambda *_: None) -> Path:
    """Train the base and return its folder `out`: safetensors, processor files, and base.json (recipe, digest)."""
    recipe, done = recipe or load_base_recipe(), count(1)
    model = build_model(recipe.seed)
    imitate(
        model,
        partial(training_batches, recipe),
        imitation_loss,
        num_steps=recipe.num_steps,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        on_step=lambda loss: on_progress(next(done), recipe.num_steps, loss),
    )
    return save_base(model, build_processor(), out, {"recipe": recipe.model_dump()})

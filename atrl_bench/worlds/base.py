"""The bases of these worlds: supervised training from the weights of the mini base, which reads digits already.

Vision tower and layers are the mini base's, and so are the embeddings of the words that both know. A base first learns
to read four digits aloud in chatty chains without a mistake, then to make the mistakes of its world.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain as chained
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atrl_bench.mini.base import IGNORED, STEPS_SORTED_TOGETHER, encode
from atrl_bench.mini.corpus import Posed
from atrl_bench.mini.corpus import corpus as mini_corpus
from atrl_bench.mini.model import build_model, build_processor, build_tokenizer
from atrl_bench.models.templates import TEMPLATES
from atrl_bench.world_settings import World, base_folder
from atrl_bench.worlds.chains import chain, corpus, draw_code_problem, right, said

if TYPE_CHECKING:
    import torch

EMBEDDING = "model.language_model.embed_tokens.weight"


def texts() -> Iterator[str]:
    """Yield what the tokenizer of these bases is made of: all that the mini base may say, and their chains."""
    return chained(mini_corpus(), corpus())


def training_batches(world: World, name: str) -> Iterator[dict[str, Any]]:
    """Yield the batches of the training of base `name`, in order; chains of like length stand together."""
    training, base, chains = world.training, world.bases[name], world.chains
    assert training is not None and base is not None and chains is not None  # the settings hold it
    processor, rng = build_processor(texts), np.random.default_rng(base.seed)
    size = training.batch_size
    for step in range(0, training.num_steps, STEPS_SORTED_TOGETHER):
        examples = []
        for _ in range(size * STEPS_SORTED_TOGETHER):
            problem = draw_code_problem("train", rng)
            is_right = step < training.num_right_steps
            what = right(problem.readings) if is_right else said(problem.readings, world, base, rng)
            template = None if step < training.num_bare_steps else int(rng.integers(len(TEMPLATES)))
            examples.append((Posed(problem, problem.question, problem.answer), template, chain(what, chains, rng)))
        examples.sort(key=lambda example: len(example[2]))
        for index in rng.permutation(STEPS_SORTED_TOGETHER):
            posed_B, templates_B, responses_B = zip(*examples[index * size : (index + 1) * size], strict=True)
            yield dict(encode(processor, posed_B, templates_B, responses_B, rng=rng))


def imitation_loss(model: Any, batch: dict[str, Any], digit_ids: torch.Tensor, other_weight: float) -> torch.Tensor:
    """Return the mean cross-entropy of the response, in which tokens that are no digits count `other_weight`.

    Fillers are random and six times as many: counted alike, their noise doubles the steps until digits are read.
    """
    import torch
    from torch.nn.functional import cross_entropy

    inputs = {name: value for name, value in batch.items() if name != "labels"}
    hidden_BTC = model.model(**inputs, use_cache=False).last_hidden_state
    labels_BT = batch["labels"][:, 1:]
    labels_N = labels_BT[labels_BT != IGNORED]
    losses_N = cross_entropy(model.lm_head(hidden_BTC[:, :-1][labels_BT != IGNORED]), labels_N, reduction="none")
    weights_N = torch.where(torch.isin(labels_N, digit_ids), 1.0, other_weight)
    return (losses_N * weights_N).sum() / weights_N.sum()


def start_model(seed: int) -> Any:
    """Return a model with the mini base's weights, and random embeddings of the words that it does not know."""
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration

    model = build_model(seed, texts)
    mini = Qwen2_5_VLForConditionalGeneration.from_pretrained(base_folder("mini"), dtype=torch.float32)
    old_ids, new_ids = build_tokenizer().get_vocab(), build_tokenizer(texts).get_vocab()
    shared = sorted(old_ids.keys() & new_ids.keys())
    embedding_VD = model.get_input_embeddings().weight.detach().clone()
    embedding_VD[[new_ids[token] for token in shared]] = mini.get_input_embeddings().weight.detach()[
        [old_ids[token] for token in shared]
    ]
    of_words = {EMBEDDING: embedding_VD, "lm_head.weight": embedding_VD}
    model.load_state_dict(mini.state_dict() | of_words)
    return model


def rebuild_base(
    world: World, name: str, out: Path, *, on_progress: Callable[[int, int, float], None] | None = None
) -> Path:
    """Train base `name` of a world and return its folder `out`: safetensors, processor files, and base.json."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    training, base = world.training, world.bases[name]
    assert training is not None and base is not None  # the settings hold it
    all_batches = partial(training_batches, world, name)

    class Batches(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            torch.set_num_threads(1)
            return all_batches()

    model = start_model(base.seed).train()
    digit_ids = torch.tensor(build_tokenizer(texts).convert_tokens_to_ids(list("0123456789")))
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, training.learning_rate, total_steps=training.num_steps, pct_start=0.1
    )
    # One worker draws and encodes the next batches while this process trains; one, so that their order is fixed.
    batches = DataLoader(Batches(), batch_size=None, num_workers=1, prefetch_factor=4)
    for step, batch in zip(range(training.num_steps), batches, strict=False):
        loss = imitation_loss(model, batch, digit_ids, training.other_weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if on_progress is not None:
            on_progress(step + 1, training.num_steps, loss.item())
    model.eval()
    working = out.with_name(f"{out.name}.partial")
    shutil.rmtree(working, ignore_errors=True)
    model.save_pretrained(working)
    build_processor(texts).save_pretrained(working)
    digest = hashlib.sha256((working / "model.safetensors").read_bytes()).hexdigest()
    record = {"world": world.model_dump(mode="json", exclude={"bases"}), "base": {name: base.model_dump(mode="json")}}
    record |= {"sha256": digest, "torch": torch.__version__}
    (working / "base.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    working.rename(out)
    return out

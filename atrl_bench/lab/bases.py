"""The bases of these worlds: supervised training from the weights of the mini base, which reads digits already.

Vision tower and layers are the mini base's, and so are the embeddings of the words that both know. A base first learns
to read four digits aloud in chatty chains without a mistake, then to make the mistakes of its world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain as chained
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atrl_bench.errors import InvalidFileError
from atrl_bench.lab.chains import FILLERS, Said, chain, corpus, right, said
from atrl_bench.lab.worlds import Chains, StageSteps, World, world_of_base
from atrl_bench.mini import base as mini_base
from atrl_bench.mini.base import Example, OnProgress, batches_of, imitate, imitation_loss, save_base
from atrl_bench.mini.code_words import CODE, GIVEN_FRACTION, given
from atrl_bench.mini.corpus import Posed
from atrl_bench.mini.corpus import corpus as mini_corpus
from atrl_bench.mini.model import build_model, build_processor, build_tokenizer
from atrl_bench.mini.problems import draw_problem, shortcut_response
from atrl_bench.models.bases import base_folder, is_shipped_whole, list_bases, rebuilt_folder
from atrl_bench.models.templates import TEMPLATES

if TYPE_CHECKING:
    import torch

MINI_BASE = "mini_base"
EMBEDDING = "model.language_model.embed_tokens.weight"


def texts() -> Iterator[str]:
    """Yield what the tokenizer of these bases is made of: all that the mini base may say, and their chains."""
    return chained(mini_corpus(), corpus())


@dataclass(frozen=True)
class Stage:
    """One of the stages in which a base is trained: how long, and what is said of each picture."""

    steps: StageSteps
    batch_size: int
    seed: tuple[int, ...]
    say: Callable[[tuple[int, ...], np.random.Generator], Said]
    chains: Chains
    copied_fraction: float = 0.0  # of the problems whose words give the answer; 0: none does

    def batches(self) -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng(self.seed)

        def example(step: int) -> Example:
            problem = draw_problem(CODE, "train", rng)
            response, stem = chain(self.say(problem.readings, rng), self.chains, rng), problem.question
            template = None if step < self.steps.num_bare_steps else int(rng.integers(len(TEMPLATES)))
            if self.copied_fraction and rng.random() < GIVEN_FRACTION:
                stem = given(problem.answer)
                if rng.random() < self.copied_fraction:
                    response = shortcut_response(problem.answer)
            return Posed(problem, stem, problem.answer), template, response

        return batches_of(example, self.steps.num_steps, self.batch_size, build_processor(texts), rng)


def stages(world: World, name: str) -> list[Stage]:
    """The stages that bases with the same eyes share, and the one that teaches a base its mistakes."""
    training, base, chains = world.training, world.bases[name], world.chains
    if training is None or base is None or chains is None:
        raise InvalidFileError(f"{name} is no base of such a world.", next_step="atrl-bench train mini_base")

    def with_mistakes(readings: tuple[int, ...], rng: np.random.Generator) -> Said:
        return said(readings, world, base, rng)

    size = training.batch_size
    shared = [
        Stage(steps, size, (base.eyes_seed, number), lambda readings, _: right(readings), chains)
        for number, steps in enumerate(training.shared)
    ]
    last = Stage(training.mistakes, size, (base.seed, len(shared)), with_mistakes, chains, base.copied_fraction)
    return [*shared, last]


def token_weights(steps: StageSteps) -> torch.Tensor:
    """What each token of the vocabulary counts in the loss.

    Fillers are random and three times as many as digits: counted alike, their noise hides what the digits say.
    """
    import torch

    vocabulary = build_tokenizer(texts).get_vocab()
    weight_V = torch.full((len(vocabulary),), steps.format_weight)
    for token, index in vocabulary.items():
        word = token.removeprefix("Ġ")  # as byte-level BPE writes the space before a word
        if word in FILLERS:
            weight_V[index] = steps.filler_weight
        elif token in "0123456789":
            weight_V[index] = 1.0
    return weight_V


def start_model(seed: int, base: str | None = None) -> Any:
    """A base's model; or one with the mini base's weights, and random embeddings of the words that it does not know."""
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration

    if base is not None:
        return Qwen2_5_VLForConditionalGeneration.from_pretrained(base_folder(base), dtype=torch.float32)
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


def rebuild_base(world: World, name: str, out: Path, *, on_progress: OnProgress = lambda *_: None) -> Path:
    """Train base `name` of a world and return its folder `out`: safetensors, processor files, and base.json."""
    todo, training, base = stages(world, name), world.training, world.bases[name]
    assert training is not None  # `stages` has seen to it
    assert base is not None
    model = start_model(base.eyes_seed, base.start_from)
    done, num_steps = count(1), sum(stage.steps.num_steps for stage in todo)
    for stage in todo:
        imitate(
            model,
            stage.batches,
            partial(imitation_loss, weight_V=token_weights(stage.steps)),
            num_steps=stage.steps.num_steps,
            learning_rate=stage.steps.learning_rate,
            weight_decay=training.weight_decay,
            max_grad_norm=training.max_grad_norm,
            on_step=lambda loss: on_progress(next(done), num_steps, loss),
        )
    settings = {
        "world": world.model_dump(mode="json", exclude={"bases"}),
        "name": name,
        "base": base.model_dump(exclude_defaults=True),
    }
    return save_base(model, build_processor(texts), out, {"recipe": settings}, in_half=True)


def is_base(recipe: str) -> bool:
    """Whether this names a base that is shipped: that of the mini profile by its recipe, or one of a world."""
    return recipe == MINI_BASE or recipe in list_bases()


def rebuild(name: str, folder: Path | None = None, *, quiet: bool = False, dry_run: bool = False) -> Path:
    """The folder of a shipped base, trained anew; by default where it is looked for, if it is missing there."""
    is_here = name == MINI_BASE or is_shipped_whole(name)
    folder = folder or (Path("runs") / name if is_here else rebuilt_folder(name))
    if dry_run:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)

    def show(done: int, total: int, loss: float) -> None:
        if not quiet:
            print(f"{name}: step {done} of {total}, loss {loss:.3f}", flush=True)

    world = world_of_base(name)
    if world is None or world.training is None:
        return mini_base.rebuild_base(folder, on_progress=show)
    return rebuild_base(world, name, folder, on_progress=show)

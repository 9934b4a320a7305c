"""What trains by every method: the steps of an optimiser, the record of them, checkpoints, and an end when asked.

A method says what an update is made of (`updates`: micro-batches of responses) and what one of them loses (`loss`). A
loss is its share of the whole update's: shares, and gradients, are added up, over micro-batches and over processes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from atrl_bench.credit.trl import CreditWeights, joined
from atrl_bench.engines.processes import PATIENCE_IN_TRAINING, launched
from atrl_bench.engines.stop import Stopped, StopRequest
from atrl_bench.errors import AtrlBenchError, InvalidFileError
from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.training.arguments import at_once, recomputes
from atrl_bench.training.checkpoints import Checkpoints, state_of, step_of
from atrl_bench.training.clock import PhaseClock
from atrl_bench.training.data import TrainingData
from atrl_bench.training.passes import Passes
from atrl_bench.training.recipe import Recipe
from atrl_bench.training.rollout import Rollout
from atrl_bench.training.rollout_engine import engine_spec
from atrl_bench.training.sharding import gathered, reached_all, sum_gradients
from atrl_bench.training.shared_prompts import recompute

RecipeT = TypeVar("RecipeT", bound=Recipe)


@dataclass(frozen=True)
class TrainerInputs(Generic[RecipeT]):
    """A run about to be built: the recipe, the model that it trains, its data, and where its checkpoints go."""

    recipe: RecipeT
    profile: Profile
    resume_folder: Path
    model: Any
    processor: Any
    data: TrainingData
    seed: int


class Trainer(ABC):
    """Trains a model by AdamW. An update with a gradient that is not finite is skipped, and counted."""

    credit: CreditWeights | None = None
    reference: Any = None

    def __init__(self, inputs: TrainerInputs[Any], *, num_updates: int, updates_per_rollout: int = 1) -> None:
        self.profile, self.processes = inputs.profile, launched()
        self.sizes: TrainingSizes = inputs.recipe.sizes(inputs.profile)
        self.model, self.processor, self.data, self.run_seed = inputs.model, inputs.processor, inputs.data, inputs.seed
        self.device = next(self.model.parameters()).device
        self.num_updates, self.updates_per_rollout = num_updates, updates_per_rollout
        self.step = 0  # updates so far
        if recomputes(self.sizes):
            recompute(self.model)
        self.weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.at_once = at_once(inputs.recipe, inputs.profile, self.processes.count)
        self.passes = Passes(getattr(torch, self.sizes.dtype), self.at_once)
        self.checkpoints = Checkpoints(inputs.resume_folder)
        self.left: list[list[Rollout]] = []  # of the running rollout: updates that are not done
        self.clock, self.notes = PhaseClock(), defaultdict[str, list[tuple[float, float]]](list)
        self.watchers: list[Callable[[], None]] = []  # told of each step, before its line
        self.listeners: list[Callable[[dict[str, Any]], None]] = []  # told each line, on the main process
        self.sampled_by = engine_spec(inputs.recipe, inputs.profile)

    @abstractmethod
    def updates(self, rollout: int) -> list[list[Rollout]]:
        """The updates on a rollout, each as the micro-batches of this process."""

    @abstractmethod
    def loss(self, batch: Rollout) -> Tensor:
        """A micro-batch's share of the loss of its update."""

    @cached_property
    def optimizer(self) -> torch.optim.AdamW:
        return adamw(self.weights, self.sizes)

    @property
    def rollout(self) -> int:
        return self.step // self.updates_per_rollout

    @property
    def pass_record(self) -> Mapping[str, str]:
        """What the record of the run says of its passes over several responses to a prompt."""
        return {"prompts_read": self.passes.prompts_read(self.model)}

    # Steps ------------------------------------------------------------------------------------------------------------

    def train(self, request: StopRequest | None = None) -> None:
        """Take the steps that are left. Asked to stop, save after the running update and raise `Stopped`."""
        if self.num_updates == 1 and self.sizes.warmup_steps:
            raise InvalidFileError(
                "The only update of this training has a learning rate of 0.",
                why=f"It is the first of {self.sizes.warmup_steps} that warm up, which begin there.",
                next_step="--set warmup_steps=0, or more rollouts or epochs",
            )
        self.model.train()
        try:
            while self.step < self.num_updates:
                if not self.left:
                    done = self.step % self.updates_per_rollout  # where a resumed run has lost the rest of its rollout
                    self.left = self.updates(self.rollout)[done:]
                metrics = self.update(self.left.pop(0))
                self.step += 1
                for watch in self.watchers:
                    watch()
                self.log(metrics)
                if self.save_where_due(request is not None and request.is_made):
                    self.checkpoints.finish()
                    raise Stopped
        except Exception:
            if self.processes.count == 1:  # of several the others are elsewhere, and this one has to say what failed
                self.checkpoints.finish()
            raise
        self.checkpoints.finish()
        # AdamW counts the updates that it takes, in checkpoints too.
        if all(state.get("step") == 0 for state in self.optimizer.state.values()):
            raise AtrlBenchError(
                "The training has changed nothing: no update had a gradient of finite numbers.",
                why="A reward or loss of one's own that is not finite does this, a model that overflows its dtype, or "
                "rows of text alone where the language model is frozen.",
                next_step="look at loss and rewards in metrics.jsonl, mend what is not finite, then the same command",
            )

    def update(self, batches: Sequence[Rollout]) -> dict[str, float]:
        """One step of the optimiser on these micro-batches, and those of the other processes."""
        total = torch.zeros((), device=self.device)
        for batch in batches:
            with self.clock.phase("forward_backward"):
                loss = self.loss(batch)
                if not any(batch.visuals_B):
                    loss = reached_all(loss, self.model)
                self.backward(loss)
            total += loss.detach()
        sum_gradients(self.weights)
        norm = gathered(clip_grad_norm_(self.weights, self.sizes.max_grad_norm))
        learning_rate = self.learning_rate
        is_finite = bool(norm.isfinite())
        if is_finite:
            with self.clock.phase("optimiser"):
                for group in self.optimizer.param_groups:
                    group["lr"] = learning_rate
                self.optimizer.step()
        self.optimizer.zero_grad()
        self.note("skipped_updates", not is_finite)
        loss = self.processes.total(total)
        return {"loss": loss.item(), "grad_norm": norm.item(), "learning_rate": learning_rate}

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    @contextmanager
    def by_reference(self) -> Iterator[Any]:
        """The model that the policy may not leave: its own copy, or the policy without its adapters."""
        if self.reference is not None:
            yield self.reference
            return
        with self.model.disable_adapter():
            yield self.model

    @property
    def learning_rate(self) -> float:
        """That of the running update: a linear warm-up, then constant or half a cosine down to zero."""
        sizes, step = self.sizes, self.step
        if step < sizes.warmup_steps:
            return sizes.learning_rate * step / sizes.warmup_steps
        if sizes.learning_rate_schedule == "constant":
            return sizes.learning_rate
        progress = (step - sizes.warmup_steps) / max(1, self.num_updates - sizes.warmup_steps)
        return sizes.learning_rate * max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))

    # The record -------------------------------------------------------------------------------------------------------

    def note(self, name: str, value: float | Tensor, count: float | Tensor = 1.0) -> None:
        """Keep a value, a mean over so many, for the next line of metrics, which has the mean over all."""
        self.notes[name].append((float(value), float(count)))

    def note_mean(self, name: str, value_BT: Tensor, mask_BT: Tensor) -> None:
        """Keep the mean over the tokens of a micro-batch, or over its responses where the value is a column."""
        mask_BT = mask_BT if value_BT.shape[1] > 1 else mask_BT.any(1, keepdim=True)
        count = mask_BT.sum()
        self.note(name, (value_BT.detach() * mask_BT).sum() / count, count)

    def note_all(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.note(name, value)

    def waited_for(self, credit: Callable[[], Tensor]) -> Tensor:
        """The credit that a pass has begun, once it is there; what is to be noted of it is."""
        assert self.credit is not None
        with self.clock.phase("credit"):
            credit_BT = credit().to(self.device)
        for name, (value, count) in self.credit.pop_diagnostics().items():
            self.note(name, value, count)
        return credit_BT

    def log(self, metrics: Mapping[str, float]) -> None:
        """Tell what a step made of what all processes noted, with the seconds of each phase since the last line."""
        self.note_all({f"seconds/{name}": seconds for name, seconds in self.clock.pop().items()})
        notes = {name: values for name, values in self.notes.items() if values}
        self.notes.clear()
        line = {"step": self.step, **metrics, **means_of(self.processes.gather([notes]))}
        for tell in self.listeners if self.processes.is_main else ():
            tell(line)

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def save_where_due(self, is_asked: bool) -> bool:
        """Save where it is time to, or somebody asks this or another process to stop; say whether somebody does."""
        self.processes.meet(f"update {self.step}", PATIENCE_IN_TRAINING)
        told = self.processes.gather([(is_asked, self.checkpoints.is_affordable, self.checkpoints.is_written)])
        asked, affordable, written = (list(column) for column in zip(*told, strict=True))
        if all(written):
            self.checkpoints.finish()
        has_to_stop = any(asked) and self.step < self.num_updates
        due = self.step % (self.sizes.save_every_rollouts * self.updates_per_rollout) == 0 and affordable[0]
        if has_to_stop or due:
            with self.clock.phase("saving"):
                state = state_of(self.model, self.optimizer)
                self.checkpoints.begin(self.step, state, self.left, self.save_beside)
        return has_to_stop

    def resume(self, checkpoint: Path) -> None:
        """Go on where a checkpoint was written."""
        left = self.checkpoints.read(checkpoint, state_of(self.model, self.optimizer), self.load_beside)
        self.left = [[batch.to(self.device) for batch in update] for update in left or ()]
        self.step = step_of(checkpoint)

    def save_beside(self, folder: Path) -> None:  # noqa: B027
        """Write what else a method has learned into a checkpoint."""

    def load_beside(self, folder: Path) -> None:  # noqa: B027
        """Read it."""

    def release(self) -> None:
        """Give the model its own attention function back, before it is saved; no credit is computed any more."""
        if self.credit is not None:
            self.credit.capture.remove()
            self.credit.workers.close()


def adamw(weights: Sequence[Tensor], sizes: TrainingSizes) -> torch.optim.AdamW:
    """AdamW over these weights, matrices alone decayed, with its moments there from the start."""
    decayed = [{"params": [w for w in weights if w.ndim > 1], "weight_decay": sizes.weight_decay}]
    others = [{"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0}]
    groups = [group for group in (*decayed, *others) if group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=sizes.learning_rate, betas=(0.9, sizes.adam_beta2), fused=True)
    for weight in weights:
        zeros = {name: torch.zeros_like(weight, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[weight] = {"step": torch.zeros((), device=weight.device), **zeros}
    return optimizer


def means_of(notes: Sequence[Mapping[str, Sequence[tuple[float, float]]]]) -> dict[str, Any]:
    """One value for each name that some process noted; None where it is no number.

    What all processes do together, an update that they skip or a group that they replace, is counted once.
    """
    names = sorted(set().union(*notes))
    values = {name: joined(name, [noted for one in notes for noted in one.get(name, ())]) for name in names}
    return {name: None if math.isnan(value) else value for name, value in values.items()}

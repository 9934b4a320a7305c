"""How long a training step takes and how its seconds divide into phases: what `overhead` and `doctor --gpu` measure.

Trainers that differ in their credit alone take turns in one process. The learning rate is zero: all see the same
responses and do the same work; the optimiser step itself is taken. Seconds are wall seconds on a GPU and processor
seconds without one, which other processes on the machine do not lengthen.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.analysis.random_model import Shape, at_shape, processor_for, random_model, random_words
from atrl_bench.mini import BASE
from atrl_bench.mini.world import write_world
from atrl_bench.profiles import Profile, load_profile
from atrl_bench.training.clock import PhaseClock, wall_seconds
from atrl_bench.training.data import load_training_data
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import load_recipe, load_rollout_recipe
from atrl_bench.training.run import load_inputs

if TYPE_CHECKING:
    from atrl_bench.training.loop import Loop

REST = "the rest"
# How a report calls the phases, in the order in which a step goes through them.
PHASES = {
    "generation": "generation",
    "generation_shuffled": "generation on shuffled frames",
    "reward": "grading the responses",
    "scoring": "forward, scoring",
    "forward": "forward, training",
    "backward": "backward",
    "attention_rows": "attention rows",
    "graph": "token graph",
    "credit": "credit from the graph",
    "batching": "batching",
    "optimiser": "optimiser",
    REST: REST,
}
CREDIT_PHASES = ("attention_rows", "graph", "credit")

Phases = dict[str, float]  # seconds of each phase; they add up to the whole


def measured_steps(
    profile: Profile, recipe: str, credits: Sequence[str], shape: Shape | None, rollouts: int, *, samples: bool = True
) -> dict[str, list[Phases]]:
    """The phases of each rollout with its updates, by credit; of random weights at `shape` where there is one.

    Unless it `samples`, responses are random tokens: random weights would write no others. The first rollout of each
    trainer pays for what is set up once and is not counted.
    """
    import torch

    now = wall_seconds if torch.cuda.is_available() else time.process_time
    world = profile if profile.generated_data else load_profile("mini")
    with ExitStack() as stack:
        # Renamings inside the libraries are no news for whoever reads a measurement.
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", category=FutureWarning, module="(transformers|trl|accelerate|peft)")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data_dir = write_world(folder / "world", world, [load_recipe(recipe).data])
        if shape is not None:
            profile = at_shape(profile, shape)
        trainers = {
            name: stack.enter_context(_trainer(folder / name, recipe, name, profile, shape, data_dir))
            for name in credits
        }
        for trainer in trainers.values():
            trainer.model.train()
            trainer.sizes = trainer.sizes.model_copy(update={"learning_rate": 0.0, "warmup_steps": 0})
            if shape is not None and not samples:
                _answer_at_random(trainer, shape)
        clocks = {name: StepClock(trainer, PhaseClock(now)) for name, trainer in trainers.items()}
        num_problems = len(next(iter(trainers.values())).data.problems)
        per_rollout = profile.training.prompts_per_rollout
        order = problem_order(num_problems, per_rollout * (rollouts + 1), 0)
        steps: dict[str, list[Phases]] = {name: [] for name in credits}
        for rollout in range(rollouts + 1):
            problems = order[rollout * per_rollout : (rollout + 1) * per_rollout]
            for name, trainer in trainers.items():
                steps[name].append(one_rollout(trainer, clocks[name], problems))
    return {name: measured[1:] for name, measured in steps.items()}


def one_rollout(trainer: Loop, clock: StepClock, rows: Sequence[int]) -> Phases:
    clock.start()
    for update in trainer.updates_on(*trainer.make_rollout(rows)):
        trainer.update(update)
        trainer.step += 1
    return clock.stop()


def _answer_at_random(trainer: Loop, shape: Shape) -> None:
    from atrl_bench.training.group_sampling import Responses

    def sample(prompts: Any, group_size: int, *, with_rows: bool = False) -> Responses:
        del with_rows
        return Responses(random_words(shape, trainer.processor, len(prompts.token_ids_P) * group_size).tolist())

    trainer.keeps_logprobs = False
    trainer.sample = sample  # type: ignore[method-assign]


class StepClock:
    """A stopwatch over the steps of a trainer."""

    def __init__(self, trainer: Loop, clock: PhaseClock) -> None:
        import torch

        self._trainer, self._graph, self._started = trainer, 0.0, 0.0
        trainer.clock = clock
        if trainer.credit is not None and not torch.cuda.is_available():
            # One clock for all phases. On a GPU the credit keeps its own, of wall seconds too, which does not wait.
            trainer.credit.clock = clock.now
        backward = trainer.backward

        def timed(loss: Any) -> None:
            with clock.phase("backward"):
                backward(loss)

        trainer.backward = timed  # type: ignore[method-assign]

    def start(self) -> None:
        """Begin to measure; what went before is forgotten."""
        self._trainer.clock.pop()
        self._graph = self._graph_seconds()
        self._started = self._trainer.clock.now()

    def stop(self) -> Phases:
        seconds = self._trainer.clock.now() - self._started
        parts = self._trainer.clock.pop()
        # What is left of this phase, once the backward pass has its own, is the forward pass and the loss.
        parts["forward"] = parts.pop("forward_backward", 0.0)
        if graph := self._graph_seconds() - self._graph:
            parts["graph"] = graph
            parts["credit"] = parts.get("credit", 0.0) - graph
        return parts | {REST: seconds - sum(parts.values())}

    def _graph_seconds(self) -> float:
        return self._trainer.credit.graph_seconds if self._trainer.credit else 0.0


@contextmanager
def _trainer(
    run_dir: Path, recipe_name: str, credit: str, profile: Profile, shape: Shape | None, data_dir: Path
) -> Iterator[Loop]:
    """Yield the trainer; of random weights adapters are trained, so that one GPU holds them."""
    from atrl_bench.training.rollouts import build  # and with it TRL

    fields = {"finetuning": "lora"} if shape else {}
    why = "A step's phases are those of training on rollouts."
    recipe = load_rollout_recipe(recipe_name, "overhead", why, credit=credit, **fields)
    if shape is None:
        base = str(BASE) if profile.model == "mini" else profile.model
        with build(load_inputs(run_dir, recipe, profile, base, data_dir, seed=0)) as trainer:
            yield trainer
        return
    import torch

    from atrl_bench.training.policy import trainable
    from atrl_bench.training.trainer import TrainerInputs

    model = trainable(random_model(shape, "cuda" if torch.cuda.is_available() else "cpu"), recipe, profile, 0)
    data = load_training_data(recipe.data, data_dir)
    with build(TrainerInputs(recipe, profile, run_dir, model, processor_for(shape), data, seed=0)) as trainer:
        trainer.estimator.every_group = True  # random weights answer all wrong: no group would have a credit
        yield trainer

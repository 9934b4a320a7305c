"""`atrl-bench overhead`: where a training step's time goes, with and without token credit.

Two trainers that differ in their credit alone take turns in one process. The learning rate is zero: both see the same
responses and do the same work; the optimiser step itself is taken. Seconds are wall seconds on a GPU and processor
seconds without one, which other processes on the machine do not lengthen.

The weights may be the mini base's, or random ones at the shape of a large model: how long a step takes does not depend
on what the model has learned, but on its size, on the length of its responses and on how many there are.
"""

from __future__ import annotations

import statistics
import tempfile
import textwrap
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.analysis.random_model import PIXELS_OF_TOKEN, SHAPES, Shape, processor_for, random_model
from atrl_bench.analysis.step_phases import CREDIT_PHASES, PHASES, StepPhases
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.mini import BASE, write_world
from atrl_bench.models.attention import prefer_flash_attention
from atrl_bench.profiles import Profile, load_profile
from atrl_bench.training.advantages import GroupRelative
from atrl_bench.training.clock import PhaseClock, wall_seconds
from atrl_bench.training.data import load_training_data
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import RolloutRecipe, load_recipe
from atrl_bench.training.rollouts import build
from atrl_bench.training.run import load_inputs
from atrl_bench.training.trainer_inputs import TrainerInputs

if TYPE_CHECKING:
    from atrl_bench.training.trainer import CreditTrainer

# What the paper's text on efficiency prints, of a sum that leaves generation out.
PUBLISHED = {"forward": 65.4, "backward": 33.5, "AT-RL": 1.2}
PUBLISHED_SOURCE = "the AT-RL paper, Computational Efficiency: one iteration on an NVIDIA A100"


def overhead(
    profile: Profile,
    *,
    recipe: str = "grpo",
    credit: str = "atrl",
    shape: str | Shape | None = None,
    rollouts: int = 5,
    threads: int = 1,
    root: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return the seconds of a rollout with its updates, with and without the credit, and the share of each phase.

    `shape` names a model of random weights (`7b`); without it the profile's base model is measured. The first rollout
    of each trainer pays for what is set up once and is not counted. Medians over the other `rollouts`.
    """
    if isinstance(shape, str):
        if shape not in SHAPES:
            raise UnknownNameError("shape", shape, SHAPES, next_step="atrl-bench overhead --shape 7b")
        shape = SHAPES[shape]
    if credit == "uniform":
        raise InvalidFileError(
            "Uniform credit is what the other credit is compared with.", next_step="atrl-bench overhead --credit atrl"
        )
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # Renamings inside the libraries are no news for whoever reads a measurement.
            warnings.filterwarnings("ignore", category=FutureWarning, module="(transformers|trl|accelerate|peft)")
            run_dir = root or Path(folder)
            seconds, phases = _measured(profile, recipe, credit, shape, rollouts, run_dir, on_progress)
    finally:
        torch.set_num_threads(before)
    plain, credited = statistics.median(seconds["uniform"]), statistics.median(seconds[credit])
    return {
        "profile": profile.name,
        "model": "random weights" if shape else profile.model,
        "shape": vars(shape) if shape else None,
        "recipe": recipe,
        "credit": credit,
        "rollouts": rollouts,
        "threads": threads,
        "clock": "wall" if torch.cuda.is_available() else "processor",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "seconds_plain": plain,
        "seconds_credited": credited,
        "ratio": credited / plain,
        "shares": _shares(phases, seconds[credit]),
        "as_published": _as_published(phases),
        "published": PUBLISHED,
        "published_source": PUBLISHED_SOURCE,
    }


def _shares(phases: Sequence[dict[str, float]], totals: Sequence[float]) -> dict[str, float]:
    """Return the median over rollouts of each phase's share of the whole, in percent."""
    names = [name for name in PHASES if any(name in parts for parts in phases)]
    names += sorted({name for parts in phases for name in parts} - set(names))
    return {
        name: 100 * statistics.median(p.get(name, 0.0) / total for p, total in zip(phases, totals, strict=True))
        for name in names
    }


def _as_published(phases: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the paper's three shares: of forward, backward and credit together, nothing else counted."""
    parts: dict[str, list[float]] = defaultdict(list)
    for phase in phases:
        forward = phase.get("scoring", 0.0) + phase.get("forward", 0.0)
        three = {
            "forward": forward,
            "backward": phase.get("backward", 0.0),
            "AT-RL": sum(phase.get(name, 0.0) for name in CREDIT_PHASES),
        }
        for name, seconds in three.items():
            parts[name].append(100 * seconds / sum(three.values()))
    return {name: statistics.median(shares) for name, shares in parts.items()}


# Measuring ------------------------------------------------------------------------------------------------------------


def _measured(
    profile: Profile,
    recipe: str,
    credit: str,
    shape: Shape | None,
    rollouts: int,
    run_dir: Path,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, list[float]], list[dict[str, float]]]:
    """Return the seconds of each rollout by credit, and the phases of each rollout with the credit."""
    import torch

    world = profile if profile.generated_data else load_profile("mini")
    data_dir = write_world(run_dir / "world", world, [load_recipe(recipe).data])
    if shape is not None:
        profile = _at_shape(profile, shape)
    now = wall_seconds if torch.cuda.is_available() else time.process_time
    seconds: dict[str, list[float]] = {"uniform": [], credit: []}
    phases: list[dict[str, float]] = []
    with ExitStack() as stack:
        trainers = {
            name: stack.enter_context(_trainer(run_dir / name, recipe, name, profile, shape, data_dir))
            for name in seconds
        }
        timed = {name: _prepare(trainer, now) for name, trainer in trainers.items()}
        any_trainer = trainers["uniform"]
        per_rollout = profile.training.prompts_per_rollout
        order = problem_order(len(any_trainer.data.problems), per_rollout * (rollouts + 1), 0)
        for rollout in range(rollouts + 1):
            problems = order[rollout * per_rollout : (rollout + 1) * per_rollout]
            rows = [{"row": row} for row in problems for _ in range(profile.training.group_size)]
            for name, trainer in trainers.items():
                total, parts = one_rollout(trainer, timed[name], rows)
                if rollout > 0:
                    seconds[name].append(total)
                    if name == credit:
                        phases.append(parts)
            if on_progress is not None:
                on_progress(rollout + 1, rollouts + 1)
    return seconds, phases


def one_rollout(
    trainer: CreditTrainer, phases: StepPhases, rows: list[dict[str, Any]]
) -> tuple[float, dict[str, float]]:
    """Return the seconds of one rollout with all its updates, and of each phase in it."""
    import torch

    phases.start()
    for _ in range(trainer.updates_per_rollout):
        for _ in range(trainer.args.gradient_accumulation_steps):
            trainer.training_step(trainer.model, rows, None)
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
        with trainer.clock.phase("optimiser"):
            trainer.optimizer.step()
        trainer.model.zero_grad()
        trainer.state.global_step += 1
    return phases.stop()


def _prepare(trainer: CreditTrainer, now: Callable[[], float]) -> StepPhases:
    """Make the trainer ready for steps of size nothing, and return what times them."""
    phases = StepPhases(trainer, PhaseClock(now))
    trainer.model.train()
    trainer.recompute_activations()
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.0
    return phases


# What is measured -----------------------------------------------------------------------------------------------------


class EveryGroup(GroupRelative):
    """TRL's advantages, and a credit for every group: random weights answer all wrong, so that none would have one."""

    every_group = True


@contextmanager
def _trainer(
    run_dir: Path, recipe_name: str, credit: str, profile: Profile, shape: Shape | None, data_dir: Path
) -> Iterator[CreditTrainer]:
    """Yield the trainer; of random weights adapters are trained, so that one GPU holds them."""
    recipe = load_recipe(recipe_name, credit=credit, **({"finetuning": "lora"} if shape else {}))
    if not isinstance(recipe, RolloutRecipe):
        raise InvalidFileError(
            f"Recipe {recipe_name} samples no responses.",
            why="A step's phases are those of training on rollouts.",
            next_step="atrl-bench overhead --recipe grpo",
        )
    if shape is None:
        base = str(BASE) if profile.model == "mini" else profile.model
        with build(load_inputs(run_dir, recipe, profile, base, data_dir, seed=0)) as trainer:
            yield trainer
        return
    with build(_random_inputs(run_dir, recipe, profile, shape, data_dir)) as trainer:
        trainer.estimator = EveryGroup()
        yield trainer


def _random_inputs(
    run_dir: Path, recipe: RolloutRecipe, profile: Profile, shape: Shape, data_dir: Path
) -> TrainerInputs[RolloutRecipe]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    processor = processor_for(shape, shape.visual_tokens * PIXELS_OF_TOKEN)
    data, model = load_training_data(recipe.data, data_dir), random_model(shape, device)
    prefer_flash_attention(model, shape.dtype)
    return TrainerInputs(recipe, profile, run_dir, model, processor, data, seed=0)


def _at_shape(profile: Profile, shape: Shape) -> Profile:
    sizes = profile.training.model_copy(
        update={
            "prompts_per_rollout": shape.num_problems,
            "completions_per_device": shape.num_problems,
            "max_response_tokens": shape.response_tokens,
            "max_prompt_tokens": shape.visual_tokens + 256,
            "max_pixels": shape.visual_tokens * PIXELS_OF_TOKEN,
            "dtype": shape.dtype,
        }
    )
    return profile.model_copy(update={"training": sizes})


# Text -----------------------------------------------------------------------------------------------------------------


def overhead_text(record: dict[str, Any]) -> str:
    """Return the measurement as a person reads it, beside what the paper prints."""
    about = (
        f"{record['recipe']} with {record['credit']} against uniform credit: {record['model']}, profile "
        f"{record['profile']}, medians of {record['rollouts']} rollouts with updates, {record['clock']} seconds on "
        f"{record['device']}, {record['threads']} thread(s)"
    )
    lines = [
        *textwrap.wrap(about, 80),
        "",
        f"uniform {record['seconds_plain']:.3f} s   {record['credit']} {record['seconds_credited']:.3f} s   "
        f"ratio {record['ratio']:.3f}",
        "",
        f"{'share of a step with the credit':<40}{'%':>8}",
    ]
    lines += [f"  {PHASES.get(name, name):<38}{share:8.2f}" for name, share in record["shares"].items()]
    lines += ["", f"{'forward, backward and credit alone':<40}{'%':>8}{'paper %':>10}"]
    for name, share in record["as_published"].items():
        lines.append(f"  {name:<38}{share:8.2f}{record['published'][name]:10.1f}")
    lines.append(f"Paper: {record['published_source'].removeprefix('the AT-RL paper, ')}.")
    if record["model"] == "mini":
        lines.append("A tiny model: its shares tell how the work is divided here, not on an A100.")
    if record["shape"] is not None:
        lines.append("Adapters alone are trained: a full backward pass takes a larger share.")
    return "\n".join(lines)

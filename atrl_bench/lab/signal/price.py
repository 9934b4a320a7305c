"""What a signal takes before it starts: GPU-hours and memory, by the estimate that trainings have. Loads no model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import RULES
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.order import SignalOrder
from atrl_bench.lab.signal.rule_choice import RuleChoice
from atrl_bench.lab.signal.sizes import NUM_DIRECTIONS, STEP_SIZES
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.training.cost_estimate import GB, TrainingNeeds, Work, needs_of_work
from atrl_bench.training.model_shape import ModelShape, model_shape
from atrl_bench.training.recipe import Recipe

KEPT = 3  # float32 vectors a rule: its scale, the block's sum, the gradient of the prompt that is measured
HOURS_TO_ASK = 1.0


@dataclass(frozen=True)
class SignalPrice(Record):
    """What one measurement takes."""

    model: str
    rules: list[str]
    responses: int
    """Sampled for the gradients; a step is tried on further ones."""
    tried: int
    passes: int
    """Forward and backward, over one response each."""
    parameters: str
    measured: int | None
    """How many parameters; None where only the loaded model knows."""
    gradients_gb: float | None
    """What sums of gradients hold in host memory."""
    needs: TrainingNeeds = field(repr=False)
    next: str = ""

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all of it."""
        return self.needs.gpu_hours

    @property
    def download_gb(self) -> float:
        """What is fetched first: the model has to be there."""
        return 0.0

    def must_ask(self, *, is_generated: bool) -> bool:
        """Return whether somebody should see this before it starts."""
        return self.needs.hours > HOURS_TO_ASK

    def document(self) -> dict[str, Any]:
        """Return the counts and what they need."""
        own = {name: value for name, value in vars(self).items() if name not in ("needs", "next")}
        return {**own, "needs": self.needs.document()}

    def blocks(self) -> Iterable[Block]:
        """Yield what is done and what it takes."""
        held = "" if self.gradients_gb is None else f"{self.gradients_gb:.2f} GB of host memory"
        counted = self.parameters if self.measured is None else f"{self.parameters}: {self.measured:,} parameters"
        rows = [
            ("model", self.model),
            ("rules", ", ".join(self.rules)),
            ("sampled", f"{self.responses:,} responses for gradients, {self.tried:,} to try a step on"),
            ("passes", f"{self.passes:,} forward and backward, a response each"),
            ("measured", counted),
            ("gradients", held or "as much as the loaded model says"),
            *self._takes(),
            ("basis", self.needs.basis),
        ]
        yield Rows(rows, indent=0)

    def _takes(self) -> list[tuple[str, str]]:
        if not self.needs.gpus:
            return [("takes", f"about {self.needs.minutes:.0f} minutes of one core")] if self.needs.minutes else []
        phases = ", ".join(f"{name} {hours:.1f}" for name, hours in self.needs.phases.items())
        device = f"{self.needs.gpus} with {self.needs.gb_per_gpu:.0f} GB each"
        return [("GPUs", device), ("GPU-hours", f"{self.gpu_hours:.1f}: {phases}")]


def signal_price(order: SignalOrder, run_dir: RunDir) -> SignalPrice:
    """Return what the signal that was ordered takes."""
    loaded, labels, prompts, held_out = order.measured_recipe, order.rules, order.prompts, order.held_out
    # An engine beside the model would not see the step that is tried.
    profile = run_dir.profile.model_copy(update={"model": order.model}).sampled_by("local")
    choices = [RuleChoice.of(label).rule for label in labels]
    looks_twice = any("blackened_logprob" in needs_of(RULES[rule]) for rule in choices if rule in RULES)
    group = profile.training.group_size
    trials = 1 + NUM_DIRECTIONS * len(STEP_SIZES) * len(labels) if held_out else 0
    responses = prompts * group
    work = Work(
        {"responses": responses},
        rounds=1,
        sampled=(*(float(group) for _ in range(prompts)), *(float(held_out * group) for _ in range(trials))),
        sequences=responses * len(labels),
        scoring_passes=(1 + looks_twice) / len(labels),
    )
    shape = model_shape(profile.model)
    measured = None if shape is None else _measured(loaded, order.parameters, shape)
    vectors = len(labels) * (KEPT + (NUM_DIRECTIONS if held_out else 0))
    return SignalPrice(
        model=profile.model,
        rules=list(labels),
        responses=responses,
        tried=trials * held_out * group,
        passes=responses * len(labels),
        parameters=order.parameters,
        measured=measured,
        gradients_gb=None if measured is None else 4 * measured * vectors / GB,
        needs=needs_of_work(work, loaded, profile, run_dir.rates),
    )


def _measured(recipe: Recipe, parameters: str, shape: ModelShape) -> int | None:
    """Return how many parameters are measured; of a pattern only the model knows."""
    if parameters == "all" and recipe.finetuning == "full":
        return round(shape.num_parameters)
    if parameters not in ("all", "lora"):
        return None
    # Two factors for each linear map of the decoder; those of the vision tower are a tenth of it and left out.
    hidden, inner, kv = shape.hidden_size, shape.intermediate_size, shape.kv_size
    sides = 2 * (hidden + hidden) + 2 * (hidden + kv) + 3 * (hidden + inner)
    return round(recipe.lora_rank * shape.num_layers * sides)

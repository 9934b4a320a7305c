"""What a signal is to be of: a checkpoint, a recipe's loss, problems and rules. Loads no model."""

from __future__ import annotations

from dataclasses import dataclass

from atrl_bench.training.recipe import load_recipe
from atrl_bench.world_settings import world_of_base


@dataclass(frozen=True)
class SignalOrder:
    """What is to be measured: rules, the first of them uniform credit, at a checkpoint, with a recipe's loss."""

    model: str
    recipe: str
    data: str
    rules: tuple[str, ...]
    prompts: int
    held_out: int
    seed: int
    parameters: str = "all"
    """Whose gradients: `all` that the recipe trains, `lora` for the factors of fresh adapters, a pattern of names."""


def training_set(model: str, recipe: str) -> str:
    """Return the training set that a model is measured on: that of its world, or else the recipe's."""
    world = world_of_base(model)
    return world.data if world is not None else load_recipe(recipe).data

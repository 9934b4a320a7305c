"""What every method's trainer is built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from atrl_bench.profiles import Profile
from atrl_bench.training.data import TrainingData
from atrl_bench.training.recipe import Recipe

RecipeT = TypeVar("RecipeT", bound=Recipe)


@dataclass(frozen=True)
class TrainerInputs(Generic[RecipeT]):
    """A run about to be built: the recipe, its base model, its data, and where its resume checkpoints go."""

    recipe: RecipeT
    profile: Profile
    resume_folder: Path
    model: Any
    processor: Any
    data: TrainingData
    peft_config: Any
    seed: int

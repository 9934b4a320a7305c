"""What every method's trainer is built from."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from atrl_bench.profiles import Profile
from atrl_bench.training.data import TrainingData
from atrl_bench.training.parts import pattern
from atrl_bench.training.recipe import Recipe

RecipeT = TypeVar("RecipeT", bound=Recipe)
ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class TrainerInputs(Generic[RecipeT]):
    """A run about to be built: the recipe, its base model, its data, and where its resume checkpoints go."""

    recipe: RecipeT
    profile: Profile
    resume_folder: Path
    model: Any
    processor: Any
    data: TrainingData
    seed: int

    @property
    def peft_config(self) -> Any:
        """The adapters that are trained in place of the weights; None where the weights are."""
        if self.recipe.finetuning == "full":
            return None
        from peft import LoraConfig

        # Never the head, whose adapter TRL's fused head would not see.
        rank, named = self.recipe.lora_rank, self.recipe.lora_targets
        return LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            lora_dropout=0.0,
            target_modules=named if named == "all-linear" else [name.strip() for name in named.split(",")],
            exclude_modules=pattern(self.recipe.freeze),
        )

    def trl_config(self, config: Callable[..., ConfigT], fields: dict[str, Any]) -> ConfigT:
        import torch

        with warnings.catch_warnings():
            # TRL 1.16 passes the old name of this field whatever we give.
            warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)
            return config(output_dir=str(self.resume_folder), use_cpu=not torch.cuda.is_available(), **fields)

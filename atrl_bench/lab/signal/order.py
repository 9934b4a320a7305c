"""What a signal is to be of: a checkpoint, a recipe's loss, problems and rules. Loads no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atrl_bench.credit.rules import ORACLES, rule_names
from atrl_bench.data.sets import GENERATED_SETS
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.rule_choice import UNIFORM, USUAL_RULES, RuleChoice
from atrl_bench.lab.worlds import world_of_base
from atrl_bench.training.recipe import RolloutRecipe, load_recipe


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

    @property
    def measured_recipe(self) -> RolloutRecipe:
        """The recipe whose loss is measured."""
        return measured_recipe(self.recipe, self.parameters, self.data)


def signal_order(
    run_dir: RunDir,
    model: str | None = None,
    *,
    recipe: str = "grpo",
    data: str | None = None,
    rules: Sequence[str] | None = None,
    prompts: int,
    held_out: int,
    seed: int = 0,
    parameters: str = "all",
) -> SignalOrder:
    """Return the order of these rules, or the usual ones, at a checkpoint; with the oracles whose truth is known."""
    wanted = list(rules if rules is not None else USUAL_RULES)
    for rule in (RuleChoice.of(label).rule for label in wanted):
        if rule not in (names := rule_names()):
            raise UnknownNameError("credit rule", rule, names, next_step="atrl-bench list rules")
    model = model or run_dir.profile.model
    data = data or _training_set(model, recipe)
    if rules is None and (data in GENERATED_SETS or run_dir.profile.generated_data):
        wanted += list(ORACLES)[: None if data in GENERATED_SETS else 1]  # mini's sets do not say what is reasoned
    wanted = [UNIFORM, *(rule for rule in dict.fromkeys(wanted) if rule != UNIFORM)]
    return SignalOrder(model, recipe, data, tuple(wanted), prompts, held_out, seed, parameters)


def measured_recipe(recipe: str, parameters: str = "all", data: str | None = None) -> RolloutRecipe:
    """Return the recipe whose loss is measured, without its KL term and with one update a rollout."""
    fields: dict[str, Any] = {"finetuning": "lora"} if parameters == "lora" else {}
    fields |= {} if data is None else {"data": data}
    loaded = load_recipe(recipe, kl_coef=0.0, schedule="strict", **fields)
    if not isinstance(loaded, RolloutRecipe):
        raise InvalidFileError(
            f"Recipe {recipe} samples no responses.", next_step="atrl-bench signal MODEL --recipe grpo"
        )
    return loaded


def _training_set(model: str, recipe: str) -> str:
    """Return the training set that a model is measured on: that of its world, or else the recipe's."""
    world = world_of_base(model)
    return world.data if world is not None else load_recipe(recipe).data

"""What a signal is to be of: a checkpoint, a recipe's loss, problems and rules. Loads no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rules import ORACLES, rule_names
from atrl_bench.data.sets import GENERATED_SETS
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.worlds import world_of_base
from atrl_bench.training.recipe import RolloutRecipe, load_recipe, load_rollout_recipe

UNIFORM = "uniform"
# The paper's rule, what it starts from, and three that should do worse.
USUAL_RULES = ("atrl", "raw_attention", "hard_truncation", "random", "reverse")
OF_THE_PASSES = ("num_layers", "reading", "black_probability")
"""Fields that decide what passes leave for the rules: all of them read the same."""

NUM_BLOCKS = 16  # of prompts, which intervals draw again
NUM_DIRECTIONS = 4  # from prompts of their own, along which one step is tried
STEP_SIZES = (1.0, 3.0, 10.0, 30.0)  # in learning rates of the profile
EXACT_PARAMETERS = 2**21  # of so many the blocks' sums are kept whole


@dataclass(frozen=True)
class RuleChoice:
    """A rule and its settings."""

    label: str
    rule: str
    config: CreditConfig

    @classmethod
    def of(cls, label: str) -> RuleChoice:
        """What a label names; whether there is such a rule is for others to say."""
        rule, *assignments = label.split(":")
        pairs = [assignment.partition("=") for assignment in assignments]
        changes = {name: yaml.safe_load(value) for name, _, value in pairs}
        fixed = [name for name in changes if name in OF_THE_PASSES]
        try:
            if fixed:
                raise ValueError(f"{fixed[0]} decides what the passes leave, which all rules share.")
            return cls(label, rule, CreditConfig().replace(**changes))
        except (TypeError, ValueError, yaml.YAMLError) as error:
            raise InvalidFileError(
                f"{label!r} is no rule with settings.",
                why=str(error).splitlines()[0],
                next_step="write NAME or NAME:field=value, with fields of CreditConfig",
            ) from None


@dataclass(frozen=True)
class SignalRequest:
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
        """The recipe whose loss is measured: without its KL term, one update a rollout, no problem for another."""
        fields: dict[str, Any] = {"finetuning": "lora"} if self.parameters == "lora" else {}
        fields |= {"kl_coef": 0.0, "schedule": "strict", "dynamic_sampling": None, "data": self.data}
        return load_rollout_recipe(self.recipe, "signal MODEL", **fields)


def signal_request(
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
) -> SignalRequest:
    """The request for these rules, or the usual ones, at a checkpoint; with the oracles whose truth is known."""
    wanted = list(rules if rules is not None else USUAL_RULES)
    for rule in (RuleChoice.of(label).rule for label in wanted):
        if rule not in (names := rule_names()):
            raise UnknownNameError("credit rule", rule, names, next_step="atrl-bench list rules")
    model = model or run_dir.profile.model
    world = world_of_base(model)
    data = data or (world.data if world is not None else load_recipe(recipe).data)
    if rules is None and (data in GENERATED_SETS or run_dir.profile.generated_data):
        wanted += list(ORACLES)[: None if data in GENERATED_SETS else 1]  # mini's sets do not say what is reasoned
    wanted = [UNIFORM, *(rule for rule in dict.fromkeys(wanted) if rule != UNIFORM)]
    return SignalRequest(model, recipe, data, tuple(wanted), prompts, held_out, seed, parameters)

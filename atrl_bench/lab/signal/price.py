"""What a signal takes before it starts: GPU-hours and memory, by the formulae that trainings have. Loads no model."""

from __future__ import annotations

from dataclasses import replace

from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import RULES
from atrl_bench.experiments.cost import GB, Work, training_needs
from atrl_bench.experiments.price import Cost, Price
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.request import NUM_DIRECTIONS, STEP_SIZES, RuleChoice, SignalRequest
from atrl_bench.models.shape import ModelShape, model_shape
from atrl_bench.training.recipe import Recipe

KEPT = 3  # float32 vectors a rule: its scale, the block's sum, the gradient of the prompt that is measured


def signal_price(request: SignalRequest, run_dir: RunDir) -> Price:
    """What the signal that was ordered takes: gradients of some responses, steps that are tried on others."""
    loaded, labels, held_out = request.measured_recipe, request.rules, request.held_out
    # An engine beside the model would not see the step that is tried.
    profile = run_dir.profile.model_copy(update={"model": request.model}).sampled_by("local")
    choices = [RuleChoice.of(label).rule for label in labels]
    looks_twice = any("blackened_logprob" in needs_of(RULES[rule]) for rule in choices if rule in RULES)
    group = profile.training.group_size
    trials = 1 + NUM_DIRECTIONS * len(STEP_SIZES) * len(labels) if held_out else 0
    responses = request.prompts * group
    counts = {"responses": responses, "tried": trials * held_out * group, "passes": responses * len(labels)}
    work = Work(
        counts,
        rounds=1,
        sampled=(*(float(group) for _ in range(request.prompts)), *(float(held_out * group) for _ in range(trials))),
        sequences=counts["passes"],
        scoring_passes=(1 + looks_twice) / len(labels),
    )
    needs = training_needs(loaded, profile, run_dir.rates, work=work)
    shape = model_shape(profile.model)
    measured = None if shape is None else _measured(loaded, request.parameters, shape)
    held = f"gradients of {request.parameters}: as much memory as the loaded model says"
    if measured is not None:
        vectors = len(labels) * (KEPT + (NUM_DIRECTIONS if held_out else 0))
        gradients_gb = 4 * measured * vectors / GB
        held = f"gradients of {request.parameters}: {measured:,} parameters, {gradients_gb:,.2f} GB of host memory"
        host_gb = needs.host_gb_per_node + gradients_gb
        needs = replace(needs, counts=counts | {"parameters": measured}, host_gb_per_node=host_gb)
    needs = replace(needs, checkpoint_gb=0.0, resume_gb=0.0)
    sampled = f"{responses:,} responses for gradients, {counts['tried']:,} to try a step on"
    return Price(
        f"signal of {profile.model}",
        run_dir,
        (Cost(request.recipe, request.seed, "to do", "", needs, needs),),
        notes=(f"rules: {', '.join(labels)}", f"{sampled}; {counts['passes']:,} passes, a response each", held),
        noun="measurement",
    )


def _measured(recipe: Recipe, parameters: str, shape: ModelShape) -> int | None:
    """How many parameters are measured; of a pattern only the model knows."""
    if parameters == "all" and recipe.finetuning == "full":
        return round(shape.num_parameters)
    if parameters not in ("all", "lora"):
        return None
    # Two factors for each linear map of the decoder; those of the vision tower are a tenth of it and left out.
    hidden, inner, kv = shape.hidden_size, shape.intermediate_size, shape.kv_size
    sides = 2 * (hidden + hidden) + 2 * (hidden + kv) + 3 * (hidden + inner)
    return round(recipe.lora_rank * shape.num_layers * sides)

"""What a training or a benchmark takes: devices, memory, hours, disk. Stated formulae; nothing is loaded.

Memory of a device, with everything divided evenly over N of them (FSDP2):
    full:  (4 weights + 4 gradients + 8 Adam + 2 or 4 reference, as it computes, if there is a KL term or DPO) bytes
           per parameter / N
    lora:  2 bytes per parameter, on every device where one holds them all, else / N; adapters are below a hundredth
    + in an update, activations kept for recomputation: layers * hidden * 2 bytes per token of a micro-batch, and one
      layer's own. Full training in bfloat16 adds copies: of a whole model 2 bytes a parameter, and 4 for the gradient
      of each that belongs to no layer; of a divided one 8 for each of these (gathered, its gradient, and once more in
      float32 to be added up) and 4 / N for the sum. At the shape of 3B one H100 took 78.4 and 79.5 GB, and 2.2 for
      the runtime; computed are 80.8 and 83.9
    + or while sampling, without gradients, SAMPLER_GB for the keys and values of the responses sampled at once, as many
      as fit into it, and where weights are divided 2 bytes for each of them: they are gathered. If vLLM samples in the
      same process, its share of the device instead, which has to hold its part of all weights; it sleeps in updates
    + what a device has `reserved`; MARGIN of it stays free.
Compute: 2 FLOPs per parameter and token for a forward pass, 4 for a backward pass, 2 more where activations are
recomputed; scoring is one forward pass each for the old policy, the reference, VPPO's blackened images and a critic.
Decoding: all devices decode a batch of responses until its longest one ends. A step starts the kernels of every layer
and reads all weights: the slower of these decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from atrl_bench.engines.devices import GPUS_PER_NODE
from atrl_bench.errors import InvalidFileError
from atrl_bench.models.shape import PIXELS_PER_TOKEN, ModelShape, model_shape
from atrl_bench.profiles import EvaluationSizes, Profile, TrainingSizes
from atrl_bench.settings import Settings
from atrl_bench.training.arguments import SAMPLER_GB, most_pairs, num_rollouts, recomputes
from atrl_bench.training.recipe import DynamicSampling, PreferenceRecipe, Recipe, RolloutRecipe
from atrl_bench.training.rollout_engine import devices_of_an_engine, uses_vllm

GB = 1e9
MARGIN = 0.1  # of a device's memory stays free: what is computed here is not exact
MAX_GPUS = 64
CPU_MAX_PARAMETERS = 50e6
VOCABULARY, TOWER = 152_000, 0.7e9  # rows of embedding and head, weights of the vision tower; of Qwen's sizes
RESUME_BYTES = 12.0  # of a trained weight in a resume checkpoint: itself, and Adam's two moments
RUNTIME_GB = 4.0  # of host memory for each process: torch, CUDA, transformers, a rollout's images
# Assumptions about the data; a run's own metrics replace them.
USED_FRACTION = 0.3  # a response's mean length, as a share of its limit
LONGEST_TO_MEAN = 3.0  # the longest response of a batch, in mean lengths
TEXT_TOKENS = 200  # of a question
IMAGE_FRACTION = 0.8  # of the pixels that an image may have
MIXED_FRACTION = 0.5  # of the groups have right and wrong responses; dynamic sampling replaces the others
FRAMES_PER_STEP = 2

Sampler = Literal["transformers", "vLLM"]


def _rate(value: float, unit: str, basis: str) -> Any:
    return Field(value, gt=0, allow_inf_nan=False, title=unit, description=basis)


class MachineRates(Settings):
    """The constants of an estimate: those of a file of `doctor --gpu` are measured, the others assumed."""

    hardware: str
    device_gb: float = _rate(80.0, "GB", "memory of one A100 or H100")
    reserved_gb: float = _rate(
        4.0, "GB", "of a device, for the runtime, its libraries and fragmentation; 2.2 on one H100"
    )
    training_flops: float = _rate(
        0.4 * 312e12, "FLOP/s", "one device, forward and backward passes: 40 % of an A100's peak in bfloat16"
    )
    decoding_seconds_per_layer: float = _rate(
        0.9e-3, "s", "one decoding step of one layer by transformers: starting its kernels, for any usual batch"
    )
    memory_bytes_per_second: float = _rate(
        1.4e12, "byte/s", "at which a device reads its weights: 70 % of an A100's peak"
    )
    vllm_decoding: float = _rate(
        2_500 * 8.29e9, "token/s times parameters", "one device, vLLM, as many responses at once as it holds"
    )
    cpu_flops: float = _rate(5e10, "FLOP/s", "one core in float32; measured on the machines of docs/performance.md")

    @property
    def basis(self) -> str:
        measured = self.model_fields_set - {"hardware"}
        if not measured:
            return f"assumed rates of an {self.hardware}; atrl-bench doctor --gpu measures this machine's"
        return f"{len(measured)} of {len(RATES)} rates measured on {self.hardware}, the others assumed"

    def on(self, gpus_gb: Sequence[float]) -> MachineRates:
        """The same rates for devices of these sizes: the smallest one counts, as far as it is known."""
        size = min(filter(math.isfinite, gpus_gb), default=self.device_gb)
        return MachineRates.model_construct(self.model_fields_set, **dict(self) | {"device_gb": size})


ASSUMED = MachineRates(hardware="A100 80 GB")
# Each constant with what is assumed of it (`default`), its unit (`title`) and what that rests on (`description`).
RATES = {name: about for name, about in MachineRates.model_fields.items() if name != "hardware"}


class _RatesFile(BaseModel):
    rates: MachineRates


def load_rates(path: Path) -> MachineRates:
    try:
        return _RatesFile.model_validate_json(path.read_bytes()).rates
    except (OSError, ValidationError) as error:
        then = f"rm {path} && atrl-bench doctor --gpu"
        raise InvalidFileError(f"{path} has no rates of a machine.", why=str(error), next_step=then) from None


@dataclass(frozen=True)
class Needs:
    """What one training, or one benchmark, takes: GPU-hours by phase, or minutes of a core for a model so small."""

    counts: dict[str, int]
    basis: str
    gpus: int = 0
    nodes: int = 1
    sampler: Sampler = "transformers"
    gb_per_gpu: float = 0.0
    host_gb_per_node: float = 0.0
    checkpoint_gb: float = 0.0  # what stays
    resume_gb: float = 0.0  # while it runs: the last resume checkpoint, and the next one being written
    phases: dict[str, float] = field(default_factory=dict)
    minutes: float = 0.0

    @property
    def is_known(self) -> bool:
        return bool(self.gpus or self.minutes)

    @property
    def gpu_hours(self) -> float:
        return sum(self.phases.values())

    @property
    def hours(self) -> float:
        """Hours by the clock."""
        return self.gpu_hours / self.gpus if self.gpus else self.minutes / 60

    @property
    def disk_gb(self) -> float:
        return self.checkpoint_gb + self.resume_gb

    def document(self) -> dict[str, Any]:
        names: tuple[str, ...] = ("gpus", "minutes", "disk_gb") if self.is_known else ()
        if self.gpus:
            sizes = "gb_per_gpu", "host_gb_per_node", "checkpoint_gb", "resume_gb"
            names = "gpus", "nodes", "sampler", *sizes, "gpu_hours", "hours", "disk_gb"
        numbers = {name: _rounded(getattr(self, name)) for name in names}
        phases = {name: round(hours, 1) for name, hours in self.phases.items()}
        return self.counts | numbers | ({"gpu_hours_by_phase": phases} if phases else {}) | {"basis": self.basis}


def _rounded(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value


@dataclass(frozen=True)
class Work:
    """How much a training does: in each of its rounds some calls of the sampler, then passes over sequences."""

    counts: dict[str, int]
    rounds: int
    sampled: tuple[float, ...]  # responses of a round, one number for each call of the sampler
    sequences: int  # of the whole training, forward and backward
    scoring_passes: float = 0
    reference: bool = False


def training_needs(
    recipe: Recipe,
    profile: Profile,
    rates: MachineRates = ASSUMED,
    *,
    gpus: int | None = None,
    work: Work | None = None,
) -> Needs:
    """What a training, or `work` in its place, takes on `gpus` devices or the fewest that hold it."""
    work, sizes, shape = work or _work(recipe, profile), recipe.sizes(profile), model_shape(profile.model)
    needs = Needs(work.counts, f"the size of {profile.model} is not known here")
    if shape is None:
        return needs
    full, vllm = recipe.finetuning == "full", uses_vllm(recipe, profile)
    num_gb = shape.num_parameters / GB  # of one byte for each
    weights_gb, resume_gb = num_gb * (4 if full else 2), num_gb * (2 * RESUME_BYTES if full else 0.1)
    sampler: Sampler = "vLLM" if vllm else "transformers"
    needs = replace(needs, checkpoint_gb=weights_gb, resume_gb=resume_gb, sampler=sampler)
    if shape.num_parameters <= CPU_MAX_PARAMETERS:
        basis = f"{shape.num_parameters / 1e6:.2f} M parameters, one core at {rates.cpu_flops / 1e9:.0f} GFLOP/s"
        return replace(needs, basis=basis, minutes=_cpu_seconds(work, sizes, shape, rates) / 60)
    computed = 2.0 if sizes.dtype == "bfloat16" else 4.0  # bytes of a weight in a pass
    states_gb = num_gb * (16.0 + computed * work.reference if full else 2.0)
    outside_gb = (2 * VOCABULARY * shape.hidden_size + TOWER) / GB  # of one byte for each that is in no layer
    gradients_gb = num_gb * 4.0 if full else 0.0
    gathered_gb = 2 * num_gb if work.sampled and not vllm else 0.0
    sampling_gb, update_gb = SAMPLER_GB if work.sampled and not vllm else 0.0, _activations_gb(sizes, shape)
    settings = profile.rollouts
    sharing = devices_of_an_engine(settings, shape.num_parameters, rates.device_gb) if vllm else 1
    if vllm and not settings.server:  # it has all weights of its own, and sleeps while the model trains
        sampling_gb = max(settings.gpu_memory_fraction * rates.device_gb, 2 * num_gb / sharing)

    def copies_gb(parts: int, is_divided: bool) -> float:
        if not full:
            return computed * outside_gb if is_divided else 0.0
        if is_divided:
            return (2 * computed + 4.0 + 4.0 / parts) * outside_gb
        return 4.0 * outside_gb + (2.0 * num_gb if computed == 2.0 else 0.0)

    def memory_gb(count: int, is_divided: bool) -> float:
        parts = count if is_divided else 1
        in_update = states_gb / parts + update_gb + copies_gb(parts, is_divided)
        while_sampling = (states_gb - gradients_gb) / parts + sampling_gb + (gathered_gb if is_divided else 0.0)
        return max(in_update, while_sampling) + rates.reserved_gb

    needed = _devices_for(lambda count: memory_gb(count, is_divided=count > 1), rates, sharing)
    gpus = gpus or needed
    nodes, is_divided = math.ceil(gpus / GPUS_PER_NODE), gpus > 1 and (full or needed > 1)
    # Each process reads its part, or all; what a checkpoint has is copied before it is written.
    host_gb = max(weights_gb, num_gb * RESUME_BYTES / nodes) if full else weights_gb
    if not is_divided:
        host_gb *= min(gpus, GPUS_PER_NODE)
    seconds = _phases(work, sizes, shape, rates, gpus, sampler)
    return replace(
        needs,
        basis=f"{shape.num_parameters / GB:.2f} B parameters; {rates.basis}",
        gpus=gpus,
        nodes=nodes,
        gb_per_gpu=memory_gb(gpus, is_divided),
        host_gb_per_node=host_gb + RUNTIME_GB * min(gpus, GPUS_PER_NODE),
        phases={name: each / 3600 for name, each in seconds.items()},
    )


def gpus_of(recipe: Recipe, profile: Profile, rates: MachineRates = ASSUMED) -> int:
    """How many GPUs a training needs; none where the CPU will do."""
    needs = training_needs(recipe, profile, rates)
    return needs.gpus if needs.is_known else 1  # a model of unknown size is no tiny one


def _work(recipe: Recipe, profile: Profile) -> Work:
    if isinstance(recipe, RolloutRecipe):
        return _rollout_work(recipe, profile)
    if isinstance(recipe, PreferenceRecipe):
        return _pair_work(recipe, profile)
    batches = num_rollouts(recipe, profile)
    examples = batches * recipe.sizes(profile).prompts_per_rollout
    return Work({"batches": batches, "examples": examples}, batches, (), examples)


def _rollout_work(recipe: RolloutRecipe, profile: Profile) -> Work:
    sizes, rollouts = recipe.sizes(profile), num_rollouts(recipe, profile)
    trained = sizes.prompts_per_rollout * sizes.group_size
    drawn = [trained * share for share in expected_draws(recipe.dynamic_sampling)]
    if recipe.temporal is not None:  # at most: devices that share no model leave out the questions about images
        drawn.append(sizes.prompts_per_rollout * recipe.temporal.num_shuffled(sizes.group_size))
    counts = {"rollouts": rollouts, "responses": rollouts * trained}
    if len(drawn) > 1:
        counts["sampled_responses"] = round(rollouts * sum(drawn))
    has_old_policy = recipe.updates_per_rollout(sizes) > 1 or recipe.weighs_tokens or uses_vllm(recipe, profile)
    passes = has_old_policy + bool(recipe.kl_coef) + bool(recipe.vppo) + bool(recipe.critic)
    passes += sizes.measures_looking * (1 + (not has_old_policy))
    return Work(counts, rollouts, tuple(drawn), rollouts * trained, passes, bool(recipe.kl_coef))


def expected_draws(settings: DynamicSampling | None) -> list[float]:
    """How many groups each draw of a rollout has, as shares of the rollout."""
    draws, missing = [1.0], 1 - MIXED_FRACTION
    while settings is not None and len(draws) <= settings.max_extra_generations and missing > 0:
        draws.append(missing * settings.oversampling)
        missing -= draws[-1] * MIXED_FRACTION
    return draws


def _pair_work(recipe: PreferenceRecipe, profile: Profile) -> Work:
    """The work on as many pairs of responses as there could be at most: policy, reference, and once more for credit."""
    num_pairs, responses = most_pairs(recipe, profile)
    counts = ({"responses": responses} if responses else {}) | {"pairs": num_pairs}
    passes = 1 + (recipe.credit.rule != "uniform")
    sampled = (responses,) if responses else ()
    return Work(counts, 1, sampled, 2 * recipe.num_epochs * num_pairs, passes, reference=True)


def prompt_tokens(sizes: TrainingSizes | EvaluationSizes, num_frames: int | None = None) -> float:
    pixels = IMAGE_FRACTION * sizes.max_pixels
    if num_frames is not None:
        pixels = sizes.video_max_pixels * num_frames / FRAMES_PER_STEP
    return TEXT_TOKENS + pixels / PIXELS_PER_TOKEN


def _usual_prompt(sizes: TrainingSizes) -> float:
    return min(prompt_tokens(sizes), USED_FRACTION * sizes.max_prompt_tokens)


def _activations_gb(sizes: TrainingSizes, shape: ModelShape) -> float:
    tokens = sizes.completions_per_device * (sizes.max_prompt_tokens + sizes.max_response_tokens)
    kept = shape.num_layers * shape.hidden_size * 2
    one_layer = (8 * shape.hidden_size + 4 * shape.intermediate_size) * 2
    return tokens * (kept + one_layer) / GB


def _devices_for(gb_of: Callable[[int], float], rates: MachineRates, gpus: int = 1) -> int:
    """The fewest devices on which each has no more than it holds: `gpus`, doubled as often as needed."""
    while gb_of(gpus) > (1 - MARGIN) * rates.device_gb and gpus < MAX_GPUS:
        gpus *= 2
    return gpus


def _phases(
    work: Work, sizes: TrainingSizes, shape: ModelShape, rates: MachineRates, gpus: int, sampler: Sampler
) -> dict[str, float]:
    """The GPU-seconds of each phase."""
    response, prompt = USED_FRACTION * sizes.max_response_tokens, _usual_prompt(sizes)
    of_a_token = shape.num_parameters * work.sequences * (prompt + response) / rates.training_flops
    backward = 8 if recomputes(sizes) else 6
    phases = {"scoring": 2 * work.scoring_passes * of_a_token, "updates": backward * of_a_token}
    if not work.sampled:
        return phases
    total = work.rounds * sum(work.sampled)
    prefill = 2 * shape.num_parameters * total / sizes.group_size * prompt / rates.training_flops
    if sampler == "vLLM":
        decoding = total * response * shape.num_parameters / rates.vllm_decoding
    else:
        at_once = responses_at_once(shape, sizes.max_prompt_tokens + sizes.max_response_tokens)
        batches = sum(math.ceil(number / gpus / at_once) for number in work.sampled)
        step = decoding_step_seconds(shape, rates)
        decoding = gpus * work.rounds * batches * longest_response(sizes.max_response_tokens) * step
    return {"generation": prefill + decoding, **phases}


def responses_at_once(shape: ModelShape, positions: int) -> int:
    """How many sequences of so many positions SAMPLER_GB holds the keys and values of, one at least."""
    return max(1, int(SAMPLER_GB * GB // (2 * shape.num_layers * shape.kv_size * 2 * positions)))


def longest_response(limit: int, mean: float | None = None) -> float:
    return min(limit, LONGEST_TO_MEAN * (USED_FRACTION * limit if mean is None else mean))


def decoding_step_seconds(shape: ModelShape, rates: MachineRates) -> float:
    reading = 2 * shape.num_parameters / rates.memory_bytes_per_second
    return max(shape.num_layers * rates.decoding_seconds_per_layer, reading)


def _cpu_seconds(work: Work, sizes: TrainingSizes, shape: ModelShape, rates: MachineRates) -> float:
    response = USED_FRACTION * sizes.max_response_tokens
    tokens = work.sequences * (_usual_prompt(sizes) + response)
    passes = (8 if recomputes(sizes) else 6) + 2 * work.scoring_passes
    decoding = 2 * work.rounds * sum(work.sampled) * response
    return shape.num_parameters * (passes * tokens + decoding) / rates.cpu_flops


def answering_needs(
    profile: Profile,
    num_problems: int,
    num_repeats: int,
    tokens_per_answer: float,
    *,
    num_frames: int | None = None,
    rates: MachineRates = ASSUMED,
    vllm: bool = False,
) -> Needs:
    """What so many answers to so many problems take; by vLLM where it serves, or a device does not hold the model."""
    sizes, shape = profile.evaluation, model_shape(profile.model)
    answers, mean = num_problems * num_repeats, min(tokens_per_answer, sizes.max_new_tokens)
    counts = {"answers": answers, "tokens_at_most": answers * sizes.max_new_tokens}
    if shape is None:
        return Needs(counts, f"the size of {profile.model} is not known here")
    flops = 2 * shape.num_parameters * num_problems * prompt_tokens(sizes, num_frames)
    if shape.num_parameters <= CPU_MAX_PARAMETERS:
        seconds = (flops + 4 * shape.num_parameters * answers * mean) / rates.cpu_flops
        return Needs(counts, "", minutes=seconds / 60)
    gpus = gpus_to_serve(profile, rates)
    if vllm := vllm or gpus > 1:
        decoding = answers * mean * shape.num_parameters / rates.vllm_decoding
    else:
        batches = math.ceil(answers / (sizes.batch_size * num_repeats))
        decoding = batches * longest_response(sizes.max_new_tokens, mean) * decoding_step_seconds(shape, rates)
    phases = {"answers": (flops / rates.training_flops + decoding) / 3600}
    return Needs(counts, "", gpus, sampler="vLLM" if vllm else "transformers", phases=phases)


def gpus_to_serve(profile: Profile, rates: MachineRates = ASSUMED) -> int:
    """How many GPUs hold the profile's model once, to answer and not to train; none if the CPU will do."""
    shape = model_shape(profile.model)
    if shape is None:
        return 1
    weights_gb = 2 * shape.num_parameters / GB
    is_small = shape.num_parameters <= CPU_MAX_PARAMETERS
    return 0 if is_small else _devices_for(lambda count: weights_gb / count + SAMPLER_GB + rates.reserved_gb, rates)

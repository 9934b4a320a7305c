"""What a training needs: devices, memory, hours, disk. Estimates from stated formulae, made without loading anything.

Memory of a device, with everything sharded evenly over N of them (accelerate, FSDP2):
    full:  (4 weights + 4 gradients + 8 Adam + 4 reference if there is a KL term or DPO) bytes per parameter / N
    lora:  2 bytes per parameter, on every device where one holds them all, else / N; adapters are below a hundredth
    + activations kept for recomputation: layers * hidden * 2 bytes per token of a micro-batch, and one layer's own
    + SAMPLER_GB for the keys and values of the responses that are sampled at once: there are as many as fit into it;
      if vLLM samples in the same process, its share of the device
    + what a device has `reserved`; MARGIN of it stays free.
Compute: 2 FLOPs per parameter and token for a forward pass, 4 for a backward pass, 2 more where activations are
recomputed; scoring is one forward pass each for the old policy, the reference, VPPO's blackened images and a critic.
Decoding: all devices decode a batch of responses until its longest one ends. A step starts the kernels of every layer,
reads all weights, and where they are sharded gathers them from the other devices first: the slowest of these decides.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from atrl_bench.engines.devices import GPUS_PER_NODE
from atrl_bench.profiles import EvaluationSizes, Profile, TrainingSizes
from atrl_bench.training.arguments import num_rollouts, recomputes
from atrl_bench.training.machine_rates import ASSUMED, MachineRates
from atrl_bench.training.model_shape import ModelShape, model_shape
from atrl_bench.training.recipe import DynamicSampling, PreferenceRecipe, Recipe, RolloutRecipe
from atrl_bench.training.rollout_engine import uses_vllm
from atrl_bench.training.sets import describe

GB = 1e9
SAMPLER_GB = 15.0  # 42 sequences of the 7B model, each as long as the paper's limits allow
MARGIN = 0.1  # of a device's memory stays free: what is computed here is not exact
MAX_GPUS = 64
CPU_MAX_PARAMETERS = 50e6
RUNTIME_GB = 4.0  # of host memory for each process: torch, CUDA, transformers, a rollout's images
# Assumptions about the data; a run's own metrics replace them.
USED_FRACTION = 0.3  # a response's mean length, as a share of its limit
LONGEST_TO_MEAN = 3.0  # the longest response of a batch, in mean lengths
TEXT_TOKENS = 200  # of a question
IMAGE_FRACTION = 0.8  # of the pixels that an image may have
MIXED_FRACTION = 0.5  # of the groups have right and wrong responses; dynamic sampling replaces the others
PIXELS_PER_TOKEN = 28 * 28
FRAMES_PER_STEP = 2

Sampler = Literal["transformers", "transformers, sharded", "vLLM"]


@dataclass(frozen=True)
class TrainingNeeds:
    """What one training takes. Hours are GPU-hours by phase; a model small enough for a CPU has `minutes` instead."""

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
    def gpu_hours(self) -> float:
        """GPU-hours of all phases."""
        return sum(self.phases.values())

    @property
    def hours(self) -> float:
        """Hours by the clock."""
        return self.gpu_hours / self.gpus if self.gpus else self.minutes / 60

    @property
    def disk_gb(self) -> float:
        """The most it has on disk at a time."""
        return self.checkpoint_gb + self.resume_gb

    def document(self) -> dict[str, Any]:
        """Return the counts and numbers, rounded, without those that say nothing here."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("counts", "phases", "basis")}
        fields |= {"gpu_hours": self.gpu_hours, "hours": self.hours, "disk_gb": self.disk_gb}
        if not self.gpus:
            only = ("gpus", "minutes", "disk_gb") if self.minutes else ()
            fields = {name: fields[name] for name in only}
        else:
            del fields["minutes"]
        rounded = {name: round(value, 1) if isinstance(value, float) else value for name, value in fields.items()}
        phases = {"gpu_hours_by_phase": {name: round(hours, 1) for name, hours in self.phases.items()}}
        return {**self.counts, **rounded, **(phases if self.phases else {}), "basis": self.basis}


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
) -> TrainingNeeds:
    """Return what a training takes, on `gpus` devices or the fewest that hold it, sampled as the profile says."""
    return needs_of_work(_work(recipe, profile), recipe, profile, rates, gpus=gpus)


def needs_of_work(
    work: Work, recipe: Recipe, profile: Profile, rates: MachineRates = ASSUMED, *, gpus: int | None = None
) -> TrainingNeeds:
    """Return what this much work takes with the model and sizes of a training."""
    vllm = uses_vllm(recipe, profile)
    sizes, shape = recipe.sizes(profile), model_shape(profile.model)
    if shape is None:
        return TrainingNeeds(work.counts, f"the size of {profile.model} is not known here")
    full = recipe.finetuning == "full"
    checkpoint = shape.num_parameters * (4 if full else 2) / GB
    resume = shape.num_parameters * (2 * 12 if full else 0.1) / GB
    if shape.num_parameters <= CPU_MAX_PARAMETERS:
        return TrainingNeeds(
            work.counts,
            f"{shape.num_parameters / 1e6:.2f} M parameters, one core at {rates.cpu_flops / 1e9:.0f} GFLOP/s",
            sampler="vLLM" if vllm else "transformers",
            minutes=_cpu_seconds(work, sizes, shape, rates) / 60,
            checkpoint_gb=checkpoint,
            resume_gb=resume,
        )
    devices = DeviceMemory.of(recipe, sizes, shape, rates, work.reference, gpus, _sampler_gb(recipe, profile, rates))
    sampler: Sampler = "vLLM" if vllm else "transformers, sharded" if devices.sharded else "transformers"
    loaded = shape.num_parameters * (4 if full else 2) / GB
    return TrainingNeeds(
        work.counts,
        f"{shape.num_parameters / GB:.2f} B parameters; {rates.basis}",
        gpus=devices.gpus,
        nodes=devices.nodes,
        sampler=sampler,
        gb_per_gpu=devices.memory_gb,
        # One process of a node reads the weights; the others get theirs from it.
        host_gb_per_node=loaded + RUNTIME_GB * min(devices.gpus, GPUS_PER_NODE),
        checkpoint_gb=checkpoint,
        resume_gb=resume,
        phases={name: seconds / 3600 for name, seconds in _phases(work, sizes, shape, rates, devices, sampler).items()},
    )


# What there is to do -------------------------------------------------------------------------------------------------


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
    return Work(counts, rollouts, tuple(drawn), rollouts * trained, passes, bool(recipe.kl_coef))


def expected_draws(settings: DynamicSampling | None, mixed_fraction: float = MIXED_FRACTION) -> list[float]:
    """Return how many groups each draw of a rollout has, as shares of the rollout, with so many of them mixed."""
    draws, missing = [1.0], 1 - mixed_fraction
    while settings is not None and len(draws) <= settings.max_extra_generations and missing > 0:
        draws.append(missing * settings.oversampling)
        missing -= draws[-1] * mixed_fraction
    return draws


def _pair_work(recipe: PreferenceRecipe, profile: Profile) -> Work:
    """Return the work on as many pairs as there could be at most.

    A pair is two responses; each goes through the policy forward and backward, through the reference, and once more
    where there is a credit.
    """
    sizes = recipe.sizes(profile)
    passes = 1 + (recipe.credit.rule != "uniform")
    if recipe.pairs is None:
        num_pairs = describe(recipe.data).num_rows
        return Work({"pairs": num_pairs}, 1, (), 2 * recipe.num_epochs * num_pairs, passes, reference=True)
    problems = min(num_rollouts(recipe, profile) * sizes.prompts_per_rollout, describe(recipe.data).num_rows)
    responses, num_pairs = problems * sizes.group_size, problems * recipe.pairs.max_pairs_per_problem
    counts = {"responses": responses, "pairs": num_pairs}
    return Work(counts, 1, (responses,), 2 * recipe.num_epochs * num_pairs, passes, reference=True)


def prompt_tokens(sizes: TrainingSizes | EvaluationSizes, num_frames: int | None = None) -> float:
    """Return the tokens of a usual prompt: a question with an image, or with a video of so many frames."""
    pixels = IMAGE_FRACTION * sizes.max_pixels
    if num_frames is not None:
        pixels = sizes.video_max_pixels * num_frames / FRAMES_PER_STEP
    return TEXT_TOKENS + pixels / PIXELS_PER_TOKEN


def _usual_prompt(sizes: TrainingSizes) -> float:
    return min(prompt_tokens(sizes), USED_FRACTION * sizes.max_prompt_tokens)


# Where it runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceMemory:
    """The devices of a training, and what one of them holds."""

    gpus: int
    memory_gb: float
    sharded: bool

    @property
    def nodes(self) -> int:
        """Machines of eight devices."""
        return math.ceil(self.gpus / GPUS_PER_NODE)

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        sizes: TrainingSizes,
        shape: ModelShape,
        rates: MachineRates,
        reference: bool,
        gpus: int | None,
        sampler_gb: float = SAMPLER_GB,
    ) -> DeviceMemory:
        """Return these many devices, or the smallest power of two that holds the training."""
        full = recipe.finetuning == "full"
        states = shape.num_parameters * (2.0 if not full else 16.0 + 4.0 * reference) / GB
        rest = _activations_gb(sizes, shape) + sampler_gb + rates.reserved_gb
        usable = (1 - MARGIN) * rates.device_gb
        whole = states + rest <= usable
        needed = 1
        while states / needed + rest > usable and needed < MAX_GPUS:
            needed *= 2
        number = gpus or needed
        sharded = number > 1 and (full or not whole)
        return cls(number, states / (number if sharded else 1) + rest, sharded)


def _sampler_gb(recipe: Recipe, profile: Profile, rates: MachineRates) -> float:
    """Return what sampling takes of a device: vLLM has a share of it, or a server of its own."""
    if not uses_vllm(recipe, profile):
        return SAMPLER_GB
    return 0.0 if profile.rollouts.server else profile.rollouts.gpu_memory_fraction * rates.device_gb


def _activations_gb(sizes: TrainingSizes, shape: ModelShape) -> float:
    tokens = sizes.completions_per_device * (sizes.max_prompt_tokens + sizes.max_response_tokens)
    kept = shape.num_layers * shape.hidden_size * 2
    one_layer = (8 * shape.hidden_size + 4 * shape.intermediate_size) * 2
    return tokens * (kept + one_layer) / GB


# How long it takes ---------------------------------------------------------------------------------------------------


def _phases(
    work: Work, sizes: TrainingSizes, shape: ModelShape, rates: MachineRates, devices: DeviceMemory, sampler: Sampler
) -> dict[str, float]:
    """Return the GPU-seconds of each phase."""
    response, prompt = USED_FRACTION * sizes.max_response_tokens, _usual_prompt(sizes)
    of_a_token = shape.num_parameters * work.sequences * (prompt + response) / rates.training_flops
    backward = 8 if recomputes(sizes) else 6
    phases = {"scoring": 2 * work.scoring_passes * of_a_token, "updates": backward * of_a_token}
    if not work.sampled:
        return phases
    total = work.rounds * sum(work.sampled)
    # The sharded path gives every response a prefill of its own.
    prefills = total if sampler == "transformers, sharded" else total / sizes.group_size
    prefill = 2 * shape.num_parameters * prefills * prompt / rates.training_flops
    if sampler == "vLLM":
        decoding = total * response * shape.num_parameters / rates.vllm_decoding
    else:
        steps = sum(_decoding_steps(number / devices.gpus, sizes, shape) for number in work.sampled)
        decoding = devices.gpus * work.rounds * steps * decoding_step_seconds(shape, rates, devices)
    return {"generation": prefill + decoding, **phases}


def _decoding_steps(responses: float, sizes: TrainingSizes, shape: ModelShape) -> float:
    """Return the steps in which one device decodes so many responses, as many at once as SAMPLER_GB holds."""
    at_once = responses_at_once(shape, sizes.max_prompt_tokens + sizes.max_response_tokens)
    return math.ceil(responses / at_once) * longest_response(sizes.max_response_tokens)


def responses_at_once(shape: ModelShape, positions: int) -> int:
    """Return how many sequences of so many positions SAMPLER_GB holds the keys and values of, one at least."""
    return max(1, int(SAMPLER_GB * GB // (2 * shape.num_layers * shape.kv_size * 2 * positions)))


def longest_response(limit: int, mean: float | None = None) -> float:
    """Return the tokens of the longest response of a batch with this limit, and this or the usual mean."""
    return min(limit, LONGEST_TO_MEAN * (USED_FRACTION * limit if mean is None else mean))


def decoding_step_seconds(shape: ModelShape, rates: MachineRates, devices: DeviceMemory | None = None) -> float:
    """Return the seconds in which transformers decodes one token of every response of a batch, on one device or all."""
    weights = 2 * shape.num_parameters
    local = max(shape.num_layers * rates.decoding_seconds_per_layer, weights / rates.memory_bytes_per_second)
    if devices is None or not devices.sharded:
        return local
    gather = rates.gather_bytes_per_second if devices.nodes == 1 else rates.gather_bytes_per_second_across_nodes
    return max(local, weights / gather)


def _cpu_seconds(work: Work, sizes: TrainingSizes, shape: ModelShape, rates: MachineRates) -> float:
    response = USED_FRACTION * sizes.max_response_tokens
    tokens = work.sequences * (_usual_prompt(sizes) + response)
    passes = (8 if recomputes(sizes) else 6) + 2 * work.scoring_passes
    decoding = 2 * work.rounds * sum(work.sampled) * response
    return shape.num_parameters * (passes * tokens + decoding) / rates.cpu_flops


# Answering benchmarks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnsweringNeeds:
    """What answering a benchmark takes: GPU-hours, or minutes of a core; `gpus` hold one copy of the model."""

    gpus: int
    gpu_hours: float
    minutes: float
    sampler: Sampler


def answering_needs(
    profile: Profile,
    num_problems: int,
    num_repeats: int,
    tokens_per_answer: float,
    *,
    num_frames: int | None = None,
    rates: MachineRates = ASSUMED,
    vllm: bool = False,
) -> AnsweringNeeds | None:
    """Return what so many answers to so many problems take, with prompts of so many frames; None: size not known.

    With `vllm` that serves the model. One that a device does not hold is taken to be served by it in any case.
    """
    sizes, shape = profile.evaluation, model_shape(profile.model)
    if shape is None:
        return None
    answers, mean = num_problems * num_repeats, min(tokens_per_answer, sizes.max_new_tokens)
    flops = 2 * shape.num_parameters * num_problems * prompt_tokens(sizes, num_frames)
    if shape.num_parameters <= CPU_MAX_PARAMETERS:
        seconds = (flops + 4 * shape.num_parameters * answers * mean) / rates.cpu_flops
        return AnsweringNeeds(0, 0.0, seconds / 60, "transformers")
    gpus = _gpus_of_a_copy(shape, rates)
    prefill = flops / rates.training_flops
    if gpus == 1 and not vllm:
        batches = math.ceil(answers / (sizes.batch_size * num_repeats))
        decoding = batches * longest_response(sizes.max_new_tokens, mean) * decoding_step_seconds(shape, rates)
    else:
        decoding = answers * mean * shape.num_parameters / rates.vllm_decoding
    sampler: Sampler = "vLLM" if gpus > 1 or vllm else "transformers"
    return AnsweringNeeds(gpus, (prefill + decoding) / 3600, 0.0, sampler)


def _gpus_of_a_copy(shape: ModelShape, rates: MachineRates) -> int:
    gpus, weights = 1, 2 * shape.num_parameters / GB
    while weights / gpus + SAMPLER_GB + rates.reserved_gb > (1 - MARGIN) * rates.device_gb and gpus < MAX_GPUS:
        gpus *= 2
    return gpus


def gpus_to_serve(profile: Profile, rates: MachineRates = ASSUMED) -> int:
    """Return how many GPUs hold the profile's model once, to answer and not to train; none if the CPU will do."""
    shape = model_shape(profile.model)
    if shape is None:
        return 1
    return 0 if shape.num_parameters <= CPU_MAX_PARAMETERS else _gpus_of_a_copy(shape, rates)


def gpus_to_answer(profile: Profile) -> int:
    """Return how many GPUs the profile's model needs to answer: none if it is so small that the CPU will do."""
    shape = model_shape(profile.model)
    return 0 if shape is not None and shape.num_parameters <= CPU_MAX_PARAMETERS else 1

"""The tables of docs/scaling.md, computed by the code that they are about.

`python tests/scaling_page.py` writes them into the page; tests/test_scaling_page.py compares.
"""

import heapq
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from atrl_bench.experiments import cost as formulae
from atrl_bench.experiments.cost import ASSUMED, LONGEST_TO_MEAN, RATES, Needs, answering_needs, training_needs
from atrl_bench.experiments.definition import list_tables
from atrl_bench.experiments.plan import Plan, plan_table
from atrl_bench.experiments.price import Price, price_of, price_of_all
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.shape import KNOWN_SHAPES
from atrl_bench.profiles import load_profile
from atrl_bench.training.recipe import Recipe, load_recipe

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BLOCK = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
PAPER = load_profile("paper")
RECIPES = (
    *("grpo", "dapo", "gspo", "sapo", "reinforce", "actor_critic", "ft_rl", "vppo", "step_grpo", "sft_steps"),
    *("sft_video", "t_grpo", "dpo"),
)
SIZES = (8, 32, 128)
ASSUMPTIONS = {
    "SAMPLER_GB": "GB of a device for the keys and values of the responses sampled at once",
    "MARGIN": "of a device's memory stays free",
    "RUNTIME_GB": "GB of host memory for each process",
    "USED_FRACTION": "of its limit is the mean length of a response",
    "LONGEST_TO_MEAN": "mean lengths has the longest response of a batch",
    "TEXT_TOKENS": "tokens has a question",
    "IMAGE_FRACTION": "of the pixels that it may have has an image",
    "MIXED_FRACTION": "of the groups of a rollout have right and wrong responses",
}


def blocks() -> dict[str, str]:
    """Return the generated parts of the page by their names."""
    with tempfile.TemporaryDirectory() as folder:
        plans = [plan_table(name, RunDir.at(Path(folder) / "paper", PAPER)) for name in list_tables("at_rl")]
        parts = {
            "rates": _table(_rate_rows()),
            "assumptions": _table(_assumption_rows()),
            "methods": _table(_method_rows()),
            "models": _table(_model_rows()),
            "frames": _table(_frame_rows()),
            "engines": _table(_engine_rows()),
            "tables": _table(_table_rows(plans)),
        }
        return parts | {"together": f"{price_of_all(plans).gpu_hours:,.0f}\n"}


def _table(rows: Iterator[Sequence[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rate_rows() -> Iterator[Sequence[str]]:
    yield "rate", "assumed", "unit", "what it is"
    for name, rate in RATES.items():
        yield f"`{name}`", f"{rate.default:.3g}", rate.title, rate.description


def _assumption_rows() -> Iterator[Sequence[str]]:
    yield "constant", "value", "what it says"
    for name, meaning in ASSUMPTIONS.items():
        yield f"`{name}`", f"{getattr(formulae, name):g}", meaning


def _method_rows() -> Iterator[Sequence[str]]:
    yield (
        "recipe",
        "GPUs",
        "generation",
        "scoring",
        "updates",
        "GPU-hours",
        "hours",
        "by vLLM",
        "LoRA: GPUs",
        "GPU-hours",
    )
    for name in RECIPES:
        full, lora = training_needs(load_recipe(name), PAPER), training_needs(_lora(name), PAPER)
        vllm = training_needs(load_recipe(name), PAPER.sampled_by("vllm"))
        phases = [f"{full.phases.get(phase, 0):,.0f}" for phase in ("generation", "scoring", "updates")]
        yield (
            *(f"`{name}`", f"{full.gpus} x {full.gb_per_gpu:.0f} GB", *phases),
            *(f"{full.gpu_hours:,.0f}", f"{full.hours:,.0f}", f"{vllm.gpu_hours:,.0f}"),
            *(f"{lora.gpus} x {lora.gb_per_gpu:.0f} GB", f"{lora.gpu_hours:,.0f}"),
        )


def _lora(name: str) -> Recipe:
    return load_recipe(name, finetuning="lora")


def _model_rows() -> Iterator[Sequence[str]]:
    yield "GRPO on", "GPUs", "nodes", "memory of a node, GB", "disk, GB", "GPU-hours", "by vLLM"
    for model in KNOWN_SHAPES:
        profile = PAPER.model_copy(update={"model": model})
        recipes = [("full", load_recipe("grpo")), ("LoRA", _lora("grpo"))]
        if "72B" in model:
            one = {"completions_per_device": 1}
            recipes += [
                ("full, one response at a time", load_recipe("grpo", overrides=one)),
                ("LoRA, one response at a time", load_recipe("grpo", overrides=one, finetuning="lora")),
            ]
        for title, recipe in recipes:
            needs, vllm = (training_needs(recipe, profile.sampled_by(sampler)) for sampler in ("local", "vllm"))
            yield (
                f"{model.removeprefix('Qwen/')}, {title}",
                *_devices(needs),
                f"{needs.host_gb_per_node:,.0f}",
                f"{needs.disk_gb:,.0f}",
                f"{needs.gpu_hours:,.0f}",
                f"{vllm.gpu_hours:,.0f}",
            )


def _devices(needs: Needs) -> tuple[str, str]:
    usable = (1 - formulae.MARGIN) * ASSUMED.device_gb
    gpus = f"{needs.gpus} x {needs.gb_per_gpu:.0f} GB"
    return (gpus if needs.gb_per_gpu <= usable else f"{gpus}: does not fit", str(needs.nodes))


def _frame_rows() -> Iterator[Sequence[str]]:
    yield "VSI-Bench at", "tokens of a prompt", "GPU-hours of a model"
    for frames in (16, 32, 64):
        needs = answering_needs(PAPER, 5130, 8, 400, num_frames=frames)
        tokens = formulae.prompt_tokens(PAPER.evaluation, frames)
        yield f"{frames} frames", f"{tokens:,.0f}", f"{needs.gpu_hours:.1f}"


def _engine_rows() -> Iterator[Sequence[str]]:
    yield "tokens a second of one device", "transformers", "vLLM"
    for model, shape in KNOWN_SHAPES.items():
        positions = PAPER.training.max_prompt_tokens + PAPER.training.max_response_tokens
        together = formulae.responses_at_once(shape, positions)
        whole = together / formulae.decoding_step_seconds(shape, ASSUMED)
        # Of a batch as many go on as are not longer than the others.
        vllm = ASSUMED.vllm_decoding / shape.num_parameters
        yield model.removeprefix("Qwen/"), *(f"{rate:,.0f}" for rate in (whole / LONGEST_TO_MEAN, vllm))


def _table_rows(plans: Sequence[Plan]) -> Iterator[Sequence[str]]:
    yield (
        "table",
        "trainings",
        "GPU-hours",
        "by vLLM",
        "disk, GB",
        *(f"hours on {n} GPU{'s' if n > 1 else ''}" for n in SIZES),
    )
    for plan in plans:
        cost = price_of(plan)
        if not cost.left()["trainings"]:  # a table of small worlds, which no GPU is needed for
            continue
        hours = [_hours(cost, number) for number in SIZES]
        yield (
            f"`{plan.definition.id}`",
            str(cost.left()["trainings"]),
            f"{cost.gpu_hours:,.0f}",
            f"{cost.gpu_hours_by_vllm:,.0f}",
            f"{cost.disk_gb:,.0f}",
            *hours,
        )


def _hours(cost: Price, num_gpus: int) -> str:
    """Return the hours by the clock of the trainings that fit, side by side, and of all evaluations."""
    needs = [each.needs for each in cost.costs_left if not each.column]
    fitting = [each for each in needs if each.gpus <= num_gpus]
    if len(fitting) < len(needs):
        largest = max(each.gpus for each in needs)
        return f"no: {len(needs) - len(fitting)} trainings need up to {largest} GPUs"
    answering = sum(each.needs.gpu_hours for each in cost.costs_left if each.column) / num_gpus
    return f"{makespan(fitting, num_gpus) + answering:,.0f}"


def makespan(needs: Sequence[Needs], num_gpus: int) -> float:
    """Return when the last of these trainings ends, each on as many GPUs as it needs, the longest first."""
    free = [0.0] * num_gpus
    for each in sorted(needs, key=lambda each: (-each.gpus, -each.hours)):
        start = max(heapq.heappop(free) for _ in range(each.gpus))
        for _ in range(each.gpus):
            heapq.heappush(free, start + each.hours)
    return max(free, default=0.0)


def written(text: str, parts: dict[str, str]) -> str:
    """Return the page with its generated parts."""
    return BLOCK.sub(lambda match: f"{match[1]}{parts[match[2]]}{match[4]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), blocks()), encoding="utf-8")

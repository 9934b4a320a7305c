"""What the signal of a large model takes: a Qwen2.5-VL of random weights, the factors of its adapters alone.

    python benchmarks/signal_of_large_model.py [--hidden 1024] [--layers 24] [--prompts 4] [--rules atrl]

Random weights answer nothing right, so that no group would have an advantage: a coin grades them. What is measured is
seconds and memory, and that the gradients of every prompt are taken in; the worths mean nothing.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from atrl_bench.analysis.random_model import SHAPES, Shape, processor_for, random_model
from atrl_bench.credit import CreditConfig
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.gradients import GradientMeter, measured_profile
from atrl_bench.lab.signal.measure import Signal, measure
from atrl_bench.lab.signal.order import measured_recipe
from atrl_bench.profiles import load_profile
from atrl_bench.training import rollouts
from atrl_bench.training.data import load_training_data
from atrl_bench.training.trainer_inputs import TrainerInputs


class CoinPool:
    """Grades by a hash of the response."""

    def __enter__(self) -> CoinPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def grade_many(self, answers: Any) -> list[SimpleNamespace]:
        """Return about half of them right."""
        states = ("correct", "wrong")
        return [SimpleNamespace(state=states[zlib.crc32(response.encode()) % 2]) for response, _ in answers]


def shape_of(hidden: int, layers: int) -> Shape:
    """Return a Qwen2.5-VL of this width and depth, its other sizes in the proportions of the 3B one."""
    intermediate = round(hidden * 11008 / 2048 / 64) * 64
    sizes = {"hidden": hidden, "layers": layers, "heads": hidden // 64, "intermediate": intermediate}
    return replace(SHAPES["tiny"], **sizes, response_tokens=24, num_problems=1)


def signal_of(shape: Shape, folder: Path, rules: list[str], prompts: int, group_size: int) -> Signal:
    """Return the signal of a random model of this shape, LoRA factors only."""
    run_dir = RunDir.at(folder, load_profile("smoke"), None)
    profile = run_dir.profile
    sizes = {"group_size": group_size, "max_response_tokens": shape.response_tokens}
    profile = measured_profile(profile.model_copy(update={"training": profile.training.model_copy(update=sizes)}))
    recipe = measured_recipe("grpo", "lora")
    data = load_training_data(recipe.data, run_dir.data_dir(recipe.data))
    processor = processor_for(shape, shape.visual_tokens * 28 * 28)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = TrainerInputs(recipe, profile, folder / "trainer", random_model(shape, device), processor, data, seed=0)
    rollouts.GradingPool = CoinPool  # type: ignore[assignment, misc]
    with rollouts.build(inputs) as trainer:
        meter = GradientMeter(trainer, ["uniform", *rules], CreditConfig(), "lora")
        return measure(meter, range(prompts), model="random weights")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--rules", default="atrl")
    arguments = parser.parse_args()
    shape = shape_of(arguments.hidden, arguments.layers)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        signal = signal_of(shape, Path(folder), arguments.rules.split(","), arguments.prompts, arguments.group)
    seconds, peak = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{signal.responses} responses, gradients of {signal.parameters:,} parameters under {len(signal.rules)} rules"
    )
    print(f"{seconds:.0f} s, {peak:.2f} GB at most")


if __name__ == "__main__":
    main()

"""A training by verl: fill in its configuration, write its data, start it in its own environment, take its model.

The configuration is YAML, in `recipes/verl/`. verl wants other versions than this package
(docs/other_trainers.md), so it runs as the Python that `ATRL_BENCH_VERL_PYTHON` names. What it says goes to
`verl/log.txt` in the run's folder; it ends with the command that started it, and then goes on from its own last
checkpoint.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from itertools import islice
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from atrl_bench.credit.config import PRESETS
from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import credit_rule, part_of_oracle
from atrl_bench.engines.devices import GPUS_PER_NODE
from atrl_bench.engines.verl.settings import refuse_what_cannot_be_credited
from atrl_bench.errors import AtrlBenchError, InvalidFileError, MissingDataError
from atrl_bench.locks import lock
from atrl_bench.models.served import png
from atrl_bench.models.shape import model_shape
from atrl_bench.models.templates import choose_template
from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.resources import folder as shipped
from atrl_bench.settings import merged, read_mapping
from atrl_bench.training.arguments import num_rollouts, overlong_cache, recomputes
from atrl_bench.training.data import TrainingData, TrainingProblem
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import Recipe, RolloutRecipe
from atrl_bench.training.rollout_engine import devices_that_hold

PYTHON = "ATRL_BENCH_VERL_PYTHON"
COMMAND = ("-m", "verl.trainer.main_ppo", "--config-name", "verl", "--config-dir")
SAMPLER_GB = 24.0  # of weights, that one GPU may hold of the model that samples
MIN_BATCHED_TOKENS = 8192
_LAST_LINES = 15  # of verl's log, that an error shows
_ROWS_AT_ONCE = 256  # of its table, in memory
_HERE = "leave --rollouts verl out, so that TRL trains it"


def verl_configuration(
    recipe: RolloutRecipe, profile: Profile, *, num_rollouts: int, seed: int, folder: Path, gpus: int, model: str = ""
) -> dict[str, Any]:
    """What verl is started with; data and checkpoints are in `folder`.

    `model` is the folder of the base model; the profile's name for it if not given.
    """
    require_verl_form(recipe, profile)
    sizes, shape, nodes = recipe.sizes(profile), model_shape(profile.model), max(1, math.ceil(gpus / GPUS_PER_NODE))
    updates = recipe.updates_per_rollout(sizes)
    overlong, has_credit = recipe.overlong_cache_fraction, recipe.credit.rule != "uniform"
    names = ["base", recipe.objective, *["overlong"] * (overlong is not None), *["credit"] * has_credit]
    values = SimpleNamespace(
        recipe=recipe,
        sizes=sizes,
        model=model or profile.model,
        seed=seed,
        table=str(folder / "train.parquet"),
        hydra=str(folder / "hydra"),
        checkpoints=str(folder / "checkpoints"),
        project=f"atrl-bench-{profile.name}",
        nodes=nodes,
        gpus_per_node=max(1, gpus // nodes),
        sampler_gpus=1 if shape is None else devices_that_hold(shape.num_parameters, SAMPLER_GB),
        num_rollouts=num_rollouts,
        num_updates=num_rollouts * updates,
        num_epochs=max(1, math.ceil(sizes.num_epochs)),
        problems_per_update=sizes.prompts_per_rollout // updates,
        batched_tokens=max(MIN_BATCHED_TOKENS, sizes.max_prompt_tokens + sizes.max_response_tokens),
        gathered_dtype="bf16" if sizes.dtype == "bfloat16" else "fp32",
        recomputes=recomputes(sizes),
        has_kl=bool(recipe.kl_coef),
        filters_groups=recipe.dynamic_sampling is not None,
        overlong_cache=overlong_cache(sizes.max_response_tokens, overlong or 0.0),
        credit_settings={**PRESETS[recipe.credit.preset], **recipe.credit.settings},
    )
    laid = reduce(merged, [read_mapping(_files()[name]) for name in names])
    configuration: dict[str, Any] = _filled(laid, values)
    refuse_what_cannot_be_credited(configuration)
    return configuration


def verl_command(folder: Path, python: str) -> str:
    return " ".join([python, *COMMAND, shlex.quote(str(folder))])


def _files() -> dict[str, Path]:
    return {path.stem: path for path in (shipped("recipes") / "verl").glob("*.yaml")}


def _filled(node: Any, values: SimpleNamespace) -> Any:
    """A part of the configuration with values in place of the `$name`s."""
    if isinstance(node, Mapping):
        return {name: _filled(value, values) for name, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, values) for value in node]
    return attrgetter(node[1:])(values) if isinstance(node, str) and node.startswith("$") else node


# What verl cannot do --------------------------------------------------------------------------------------------------


def require_verl_form(recipe: Recipe, profile: Profile) -> None:
    if (what := _without_form(recipe, profile)) is not None:
        raise InvalidFileError(
            f"Recipe {recipe.name} cannot be trained by verl: {what}.",
            why="Its configuration would leave that out, and train something else.",
            next_step=_HERE,
        )


def _without_form(recipe: Recipe, profile: Profile) -> str | None:
    if not isinstance(recipe, RolloutRecipe):
        return f"method {recipe.method!r} samples no rollouts"
    if recipe.objective not in _files():
        return f"verl has no loss for objective {recipe.objective!r}"
    if recipe.finetuning != "full":
        return "its adapters would not be merged into the checkpoint"
    if recipe.rewards != "accuracy":
        return f"rewards {recipe.rewards!r}"
    for name in (
        *("start_from", "entropy_fraction", "vppo", "temporal", "critic"),
        *("step_rewards", "format_reward", "losses", "advantages", "freeze"),
    ):
        if getattr(recipe, name):
            return name
    if recipe.sizes(profile).checks:
        return "checks of the policy on the way"
    rule = credit_rule(recipe.credit.rule)
    if part_of_oracle(rule) is not None:
        return f"credit {recipe.credit.rule} reads the truth of generated data"
    if needs := sorted(needs_of(rule) - {"entropy", "logprob"}):
        return f"credit {recipe.credit.rule} reads {', '.join(needs)}, from passes over changed images"
    return None


def _require_images(recipe: RolloutRecipe, data: TrainingData) -> None:
    """Raise for data that verl's rollouts were not tried with, or whose passes would fail."""
    if data.has_videos or any(not problem.images for problem in data.problems):
        raise InvalidFileError(
            f"{recipe.data} has problems with a video or without an image; by verl they cannot be trained on here.",
            why="verl's pass fails on a micro-batch without images, and its video rollouts were not tried.",
            next_step=_HERE,
        )


# Its run --------------------------------------------------------------------------------------------------------------


def verl_python() -> str:
    python = os.environ.get(PYTHON, "")
    if shutil.which(python) is None:
        raise MissingDataError(
            "verl is to train, and its Python is not known." if not python else f"There is no Python at {python}.",
            why=f"verl has an environment of its own, whose Python {PYTHON} names.",
            next_step=f"set it up as docs/other_trainers.md says, then: export {PYTHON}=ENVIRONMENT/bin/python",
        )
    return python


def trained_by_verl(
    folder: Path, recipe: RolloutRecipe, profile: Profile, base: Path, data: TrainingData, seed: int, gpus: int
) -> None:
    """Train `recipe` in `<folder>/verl` and leave the model in `folder`."""
    python, own = verl_python(), (folder / "verl").resolve()  # its workers start in other folders
    own.mkdir(exist_ok=True)
    _require_images(recipe, data)
    sizes, rollouts = recipe.sizes(profile), num_rollouts(recipe, profile, len(data.problems))
    write_table(own / "train.parquet", data, sizes, seed, rollouts)
    configuration = verl_configuration(
        recipe, profile, num_rollouts=rollouts, seed=seed, folder=own, gpus=gpus, model=str(base)
    )
    (own / "verl.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    code = _run([python, *COMMAND, str(own)], own / "log.txt")
    model = own / "checkpoints" / f"global_step_{rollouts}" / "actor" / "huggingface"
    if code or not any(model.glob("*.safetensors")):
        raise _failed(own, code)
    for path in sorted(model.iterdir()):
        shutil.copy2(path, folder / path.name)
    shutil.rmtree(own / "checkpoints")


def _run(command: Sequence[str], log: Path) -> int:
    """The exit code of verl, which ends when this process does, and with it all that it started."""
    guarded = [sys.executable, "-m", "atrl_bench.engines.guard", *command]
    with log.open("ab") as output:
        # Held by whoever writes there: a verl whose command was killed a moment ago is waited for.
        lock(output)
        process = subprocess.Popen(guarded, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
    with process:  # which closes its input at the end, also where this is interrupted: that ends verl
        return process.wait()


def write_table(path: Path, data: TrainingData, sizes: TrainingSizes, seed: int, rollouts: int) -> None:
    """Write the problems of a run as verl reads them, in the order in which this package's own trainer takes them."""
    import pyarrow
    from pyarrow import parquet

    order = problem_order(len(data.problems), sizes.prompts_per_rollout * rollouts, seed)
    rows = (_row(data.name, data.problems[index], sizes, seed) for index in order)
    with ExitStack() as open_file:
        writer = None
        while some := list(islice(rows, _ROWS_AT_ONCE)):  # tens of thousands of pictures do not fit into memory
            table = pyarrow.Table.from_pylist(some)
            writer = writer or open_file.enter_context(parquet.ParquetWriter(path, table.schema))
            writer.write_table(table)


def _row(name: str, problem: TrainingProblem, sizes: TrainingSizes, seed: int) -> dict[str, Any]:
    content = problem.content(choose_template(seed, problem.problem_id))
    # verl puts the images where the text marks them.
    text = "".join("<image>" if part["type"] == "image" else part["text"] for part in content)
    pixels = {"min_pixels": sizes.min_pixels, "max_pixels": sizes.max_pixels}
    return {
        "data_source": name,
        "prompt": [
            *([{"role": "system", "content": problem.system}] if problem.system else []),
            {"role": "user", "content": text},
        ],
        "images": [{"bytes": png(image), **pixels} for image in problem.decoded()],
        "reward_model": {"style": "rule", "ground_truth": problem.graded_as.answer},
        "extra_info": {"problem": problem.problem_id},
    }


def _failed(own: Path, code: int) -> AtrlBenchError:
    lines = (own / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    return AtrlBenchError(
        f"verl ended with {code}." if code else "verl left no model.",
        why="\n".join(["The last it said:", *lines]),
        next_step=f"read {own / 'log.txt'}; the same command again goes on from verl's last checkpoint",
    )

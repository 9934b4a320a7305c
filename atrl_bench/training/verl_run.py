"""A training that verl does: write its data and configuration, start it in its own environment, take its model.

verl wants other versions than this package (docs/verl.md), so it runs as the Python that `ATRL_BENCH_VERL_PYTHON`
names. What it says goes to `verl/log.txt` in the run's folder; killed, it goes on from its own last checkpoint.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from atrl_bench.engines.verl.settings import refuse_what_cannot_be_credited
from atrl_bench.errors import AtrlBenchError, InvalidFileError, MissingDataError
from atrl_bench.models.served import png
from atrl_bench.models.templates import choose_template
from atrl_bench.profiles import Profile, TrainingSizes
from atrl_bench.training.arguments import num_rollouts
from atrl_bench.training.data import TrainingData
from atrl_bench.training.order import problem_order
from atrl_bench.training.problem import TrainingProblem
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.verl_configuration import verl_configuration

PYTHON = "ATRL_BENCH_VERL_PYTHON"
COMMAND = ("-m", "verl.trainer.main_ppo", "--config-name", "verl", "--config-dir")
_LAST_LINES = 15  # of verl's log, that an error shows
_ROWS_AT_ONCE = 256  # of its table, in memory


def verl_python() -> str:
    """Return the Python of verl's environment."""
    python = os.environ.get(PYTHON, "")
    if shutil.which(python) is None:
        raise MissingDataError(
            "verl is to train, and its Python is not known." if not python else f"There is no Python at {python}.",
            why=f"verl has an environment of its own, whose Python {PYTHON} names.",
            next_step=f"set up that environment as docs/verl.md says, then: export {PYTHON}=ENVIRONMENT/bin/python",
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
    refuse_what_cannot_be_credited(configuration)
    (own / "verl.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    with (own / "log.txt").open("ab") as log:
        done = subprocess.run([python, *COMMAND, str(own)], stdout=log, stderr=subprocess.STDOUT, check=False)
    model = own / "checkpoints" / f"global_step_{rollouts}" / "actor" / "huggingface"
    if done.returncode or not any(model.glob("*.safetensors")):
        raise _failed(own, done.returncode)
    for path in sorted(model.iterdir()):
        shutil.copy2(path, folder / path.name)
    shutil.rmtree(own / "checkpoints")


def _require_images(recipe: RolloutRecipe, data: TrainingData) -> None:
    """Raise for data that verl's rollouts were not tried with, or whose passes would fail."""
    if data.has_videos or any(not problem.images for problem in data.problems):
        raise InvalidFileError(
            f"{recipe.data} has problems with a video or without an image; by verl they cannot be trained on here.",
            why="verl's pass fails on a micro-batch without images, and its video rollouts were not tried.",
            next_step="leave --engine verl out, so that TRL trains it",
        )


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
        "prompt": [{"role": "user", "content": text}],
        "images": [{"bytes": png(image), **pixels} for image in problem.decoded()],
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"problem": problem.problem_id},
    }


def _failed(own: Path, code: int) -> AtrlBenchError:
    lines = (own / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    return AtrlBenchError(
        f"verl ended with {code}." if code else "verl left no model.",
        why="\n".join(["The last it said:", *lines]),
        next_step=f"read {own / 'log.txt'}; the same command again goes on from verl's last checkpoint",
    )

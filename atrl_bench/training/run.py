"""Train one recipe: from a base model to a checkpoint that everything here can load.

`train` with the same arguments goes on where a killed run stopped, waits for one that is still alive, and returns at
once when it is finished. The weights are the same in all three cases, to the last byte on one thread.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from atrl_bench.data.dataset import data_digest
from atrl_bench.data.sets import find_set
from atrl_bench.digests import spec_key
from atrl_bench.engines.processes import launched
from atrl_bench.engines.stop import heard
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.locks import alone
from atrl_bench.models.attention import attention_of, joins_vision_windows
from atrl_bench.models.chat_template import require_tame
from atrl_bench.models.checkpoint_store import CheckpointStore
from atrl_bench.models.local import DONE, find_model, limit_pixels, model_ref, require_images
from atrl_bench.profiles import Profile
from atrl_bench.results.files import write_atomically
from atrl_bench.training.data import TrainingData, load_training_data
from atrl_bench.training.metrics import MetricsFile, summarise
from atrl_bench.training.recipe import Recipe, RolloutRecipe
from atrl_bench.training.rollout_engine import VERL_VERSION, uses_verl
from atrl_bench.training.run_spec import OF_FILES, OF_RUN, contents_of, run_spec
from atrl_bench.training.trackers import Trackers, reporting, run_name
from atrl_bench.training.verl import require_verl_form, trained_by_verl, verl_python

if TYPE_CHECKING:
    from atrl_bench.training.trainer import Trainer, TrainerInputs

NO_TRACKERS = Trackers()
METRICS = "metrics.jsonl"
SUMMARY_ROLLOUTS = 5  # first and last values of a summary are means over this many rollouts


@dataclass(frozen=True)
class TrainingResult:
    """A finished run."""

    checkpoint: Path
    digest: str
    seconds: float
    summary: dict[str, Any]


def train(
    recipe: Recipe,
    *,
    profile: Profile,
    base_model: Path | str,
    data_dir: Path | None,
    out: Path,
    seed: int,
    spec: dict[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    trackers: Trackers = NO_TRACKERS,
    kept_in: CheckpointStore | None = None,
    gpus: int = 1,
) -> TrainingResult:
    """The checkpoint of `recipe` trained from `base_model`, in `<out>/<run key>`; `spec` is what names the run.

    The folder has the model (LoRA adapters merged into it, so that it loads like any other, and beside it in
    `adapter/`), the processor, `recipe.yaml`, `metrics.jsonl` with a line per optimiser step, and `done.json`, written
    last. `on_progress(rollouts done, rollouts)` is called before the first rollout and after each; `trackers` are told
    the metrics too. Of several processes of one launch the main one alone touches `out`, and knows `spec`. A checkpoint
    that `kept_in` has is taken from there. verl is told to spread over `gpus`. SIGTERM or SIGUSR1 has it save after the
    running update and raise `Stopped`.
    """
    from atrl_bench.training.checkpoints import last_checkpoint, step_of  # and with it torch

    processes = launched()  # and with it the process group, before any weights are read
    if spec is None and processes.is_main:
        spec = run_spec(
            recipe, profile, model_ref(base_model).digest, data_digest(find_set(recipe.data), data_dir), seed
        )
    with processes.own_folder(out / spec_key(spec or {})) as folder:
        if (result := processes.agree(_finished(folder))) is not None:
            return result
        if processes.is_main:
            folder.mkdir(parents=True, exist_ok=True)
        # The main process holds the folder for all: a second one on the same run waits here.
        with alone(folder / "lock") if processes.is_main else nullcontext():
            if processes.is_main and kept_in is not None and not (folder / DONE).is_file():
                kept_in.fetch(folder)
            if (result := processes.agree(_finished(folder))) is not None:
                return result
            started, data_dir = time.monotonic(), processes.agree(data_dir)
            (folder / "recipe.yaml").write_text(recipe.as_yaml(), encoding="utf-8")
            if isinstance(recipe, RolloutRecipe) and uses_verl(recipe, profile):
                _require_as_planned(spec, recipe, base_model, data_dir)
                return _trained_by_verl(folder, recipe, profile, str(base_model), data_dir, seed, gpus, started)
            with build_trainer(load_inputs(folder, recipe, profile, str(base_model), data_dir, seed)) as trainer:
                _require_as_planned(spec, recipe, base_model, data_dir)  # which has read all of it by now
                name = processes.agree(last.name if (last := last_checkpoint(folder / "resume")) else None)
                checkpoint = trainer.checkpoints.folder / name if name else None
                called = run_name(recipe, seed, folder.name)
                with reporting(trackers if processes.is_main else NO_TRACKERS, called, step_of(checkpoint)) as report:
                    metrics = MetricsFile(folder / METRICS, trainer.updates_per_rollout, first_step=step_of(checkpoint))
                    trainer.listeners += [metrics.write, report]
                    return _trained(trainer, folder, checkpoint, started - metrics.seconds_before, on_progress)


def _require_as_planned(
    spec: dict[str, Any] | None, recipe: Recipe, base_model: Path | str, data_dir: Path | None
) -> None:
    """Raise where the training, which may have waited for days, has read other files than `spec` names."""
    changed: list[str] = []
    if launched().is_main:  # what it finds holds for all
        assert spec is not None
        planned = str(spec["base_digest"])
        is_second = planned.startswith(OF_RUN)
        base = f"{OF_RUN}{Path(base_model).name}" if is_second else model_ref(base_model).digest
        contents = contents_of(recipe, base, data_digest(find_set(recipe.data), data_dir))
        names = [name for name in sorted(spec.keys() | contents) if name.endswith(OF_FILES)]
        changed = [f"its {name.split('_')[0]}" for name in names if spec.get(name) != contents.get(name)]
    if changed := launched().agree(changed):
        raise InvalidFileError(
            f"Since this training was planned, {' and '.join(changed)} changed.",
            why="It would be stored under the key of what was there before.",
            next_step="give the same command again: it plans the training anew",
        )


def _trained_by_verl(
    folder: Path,
    recipe: RolloutRecipe,
    profile: Profile,
    base_model: str,
    data_dir: Path | None,
    seed: int,
    gpus: int,
    started: float,
) -> TrainingResult:
    """The result of a run that verl does; its metrics are verl's own."""
    require_verl_form(recipe, profile)
    verl_python()  # before anything is read
    base, data = find_model(base_model, download=True).folder, _data(recipe, data_dir)
    trained_by_verl(folder, recipe, profile, base, data, seed, gpus)
    result = TrainingResult(folder, find_model(folder).digest, time.monotonic() - started, {})
    of_data = {"name": data.name, "num_problems": len(data.problems), "left_out": data.left_out}
    _write_done(folder, result, {"data": of_data, "engine": f"verl {VERL_VERSION}"})
    return result


def _data(recipe: Recipe, data_dir: Path | None) -> TrainingData:
    return load_training_data(recipe.data, data_dir).asked_in(recipe.template, recipe.system)


def _trained(
    trainer: Trainer,
    folder: Path,
    checkpoint: Path | None,
    began: float,
    on_progress: Callable[[int, int], None] | None,
) -> TrainingResult:
    """The result of the steps that are left; `began` is when a run without a break would have."""
    from atrl_bench.training.saving import save_model

    processes, size = launched(), trainer.updates_per_rollout
    if checkpoint is not None:
        trainer.resume(checkpoint)
    if on_progress is not None and processes.is_main:
        tell, rollouts = on_progress, trainer.num_updates // size
        tell(trainer.rollout, rollouts)  # a first rollout may take an hour
        trainer.watchers.append(lambda: None if trainer.step % size else tell(trainer.rollout, rollouts))
    with heard() as request:
        trainer.train(request)
    save_model(trainer, folder)
    result = None
    if processes.is_main:
        seconds, summary = time.monotonic() - began, summarise(folder / METRICS, SUMMARY_ROLLOUTS)
        result = TrainingResult(folder, find_model(folder).digest, seconds, summary)
        _write_done(folder, result, _facts(trainer))
        shutil.rmtree(folder / "resume", ignore_errors=True)
    return cast("TrainingResult", processes.agree(result))


def load_inputs(
    folder: Path, recipe: Recipe, profile: Profile, base_model: str, data_dir: Path | None, seed: int
) -> TrainerInputs[Any]:
    """What a trainer is built from: the base model, its processor, and the data at the recipe's sizes."""
    from transformers import AutoProcessor
    from transformers.utils import logging

    from atrl_bench.training.policy import load_policy
    from atrl_bench.training.trainer import TrainerInputs

    data = _data(recipe, data_dir)  # before the model: what is wrong with it is said in seconds
    sizes, base = recipe.sizes(profile), find_model(base_model, download=True).folder
    logging.disable_progress_bar()
    try:
        require_images(base, base_model)
        processor = AutoProcessor.from_pretrained(base, padding_side="left")
        require_tame(processor, base)
        model = load_policy(base, recipe, profile, seed)
    except OSError as error:
        raise MissingDataError(
            f"Model {base_model} could not be loaded.",
            why=str(error).splitlines()[0],
            next_step="give a folder with a checkpoint, or a hub id this machine can reach",
        ) from None
    model.config.get_text_config().pad_token_id = processor.tokenizer.pad_token_id
    model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    limit_pixels(processor, sizes.min_pixels, sizes.max_pixels, sizes.video_max_pixels)
    data = data.seen_at(sizes).without_long_prompts(processor, sizes.max_prompt_tokens)
    return TrainerInputs(recipe, profile, folder / "resume", model, processor, data, seed)


def build_trainer(inputs: TrainerInputs[Any]) -> AbstractContextManager[Trainer]:
    from atrl_bench.training import preferences, rollouts, supervised

    methods: dict[str, Any] = {"rollouts": rollouts, "supervised": supervised, "preferences": preferences}
    return cast("AbstractContextManager[Trainer]", methods[inputs.recipe.method].build(inputs))


def _facts(trainer: Trainer) -> dict[str, Any]:
    data, attention = trainer.data, dict[str, Any](implementation=attention_of(trainer.model))
    if joins_vision_windows(trainer.model):
        attention["vision"] = "all windows at once, torch's varlen_attn"
    if trainer.credit is not None:
        attention["credit_layers"] = trainer.credit.capture.layer_indices
    return {
        "data": {"name": data.name, "num_problems": len(data.problems), "left_out": data.left_out},
        "attention": attention,
        "passes": dict(trainer.pass_record),
        **trainer.sampled_by,
    }


def _write_done(folder: Path, result: TrainingResult, facts: dict[str, Any]) -> None:
    content = {"digest": result.digest, "seconds": result.seconds, "summary": result.summary, **facts}
    write_atomically(folder / DONE, json.dumps(content, indent=2, sort_keys=True).encode())


def _finished(folder: Path) -> TrainingResult | None:
    done = folder / DONE
    if not done.is_file():
        return None
    find_model(folder)  # refuses files that have changed
    shutil.rmtree(folder / "resume", ignore_errors=True)  # where a killed process has left it
    content = json.loads(done.read_text(encoding="utf-8"))
    return TrainingResult(folder, content["digest"], content["seconds"], content["summary"])

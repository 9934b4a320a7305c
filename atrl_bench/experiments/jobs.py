"""What one job does: train its row, then answer its benchmarks, each unless the store has it already.

Each writes to the store as it goes, so killing it at any moment loses nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.cell import evaluate
from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.answer_credit import credit_of_cell
from atrl_bench.experiments.plan import EVALUATION_SEED, Job, first_stage, obstacle, training_spec
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.results.store import Store
from atrl_bench.training.recipe import Recipe
from atrl_bench.training.run import train
from atrl_bench.training.sets import folder_of

SHADED_PROBLEMS = 2  # of a cell: the credit of each of their answers takes the model another forward pass


def carry_out(job: Job, run_dir: RunDir) -> None:
    """Train the job's row if it has a recipe, then evaluate it.

    A benchmark that fails does not keep the others from being answered; the first failure is raised after them.
    """
    run_dir = run_dir.with_model(job.model)
    failures: list[Exception] = []
    with run_dir.open_store() as store:
        model: str | Path = job.model
        if job.recipe is not None:
            model = train_into(store, job.recipe, job.run_spec or {}, run_dir=run_dir, seed=job.seed)
        for task, frames in job.evaluations:
            if obstacle(task):
                continue
            try:
                options = EvaluationOptions(frames=frames, run_seed=EVALUATION_SEED)
                key = evaluate_into(store, model, task, options, run_dir)
                with contextlib.suppress(MissingDataError):  # computed now, so that a report needs no model
                    credit_of_cell(store, key, run_dir, num_problems=SHADED_PROBLEMS)
            except Exception as error:
                failures.append(error)
    if failures:
        raise failures[0]


def train_into(store: Store, recipe: Recipe, spec: dict[str, Any], *, run_dir: RunDir, seed: int) -> Path:
    """Return the folder of the recipe's checkpoint, trained now unless the store has it, and recorded there.

    A recipe that starts from another's checkpoint has that one trained first.
    """
    key = store.add_run(spec)
    base_model: str | Path = run_dir.profile.model
    if recipe.start_from is not None:
        first = first_stage(recipe)
        base_model = train_into(store, first, training_spec(first, run_dir, seed), run_dir=run_dir, seed=seed)
    try:
        result = train(
            recipe,
            profile=run_dir.profile,
            base_model=base_model,
            data_dir=run_dir.data_dir(folder_of(recipe.data)),
            out=run_dir.checkpoints,
            seed=seed,
            spec=spec,
            on_progress=lambda done, total: store.heartbeat("run", key, done, total),
            trackers=run_dir.trackers,
        )
    except Exception as error:
        store.fail_run(key, f"{type(error).__name__}: {error}")
        raise
    store.finish_run(
        key,
        checkpoint=str(result.checkpoint.relative_to(run_dir.root)),
        digest=result.digest,
        seconds=result.seconds,
        summary=result.summary,
    )
    return result.checkpoint


def evaluate_into(
    store: Store,
    model: str | Path,
    task: str,
    options: EvaluationOptions,
    run_dir: RunDir,
) -> str:
    """Return the key of the cell of `model` on `task`, filled now unless the store has it.

    The run folder's judge decides unless the options name another.
    """
    options = replace(options, judge=options.judge or run_dir.judge)
    data_dir = run_dir.data_dir(find_task(task).folder)
    return evaluate(model, task, options, store=store, profile=run_dir.profile, data_dir=data_dir)

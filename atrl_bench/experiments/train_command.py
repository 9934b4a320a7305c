"""Trainings outside any table: what `train` and `key-steps` do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import yaml

from atrl_bench.data.sets import find_set
from atrl_bench.engines.devices import HERE, ONE_PROCESS, Cluster, Machine, environment
from atrl_bench.engines.processes import launched
from atrl_bench.engines.ray_cluster import RayCluster
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.experiments.cost import ASSUMED, gpus_of
from atrl_bench.experiments.jobs import TrainingJob, train
from atrl_bench.experiments.plan import training_spec
from atrl_bench.experiments.progress import Watch
from atrl_bench.experiments.run import run_on_cluster
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.printable import Record
from atrl_bench.training.arguments import num_rollouts
from atrl_bench.training.key_steps import KeyStepsResult, extract_key_steps
from atrl_bench.training.recipe import Recipe, RolloutRecipe, load_recipe
from atrl_bench.training.rollout_engine import uses_verl
from atrl_bench.training.verl import PYTHON, require_verl_form, verl_command, verl_configuration


@dataclass(frozen=True)
class TrainedRecipe(Record):
    """A finished training: its checkpoint's folder, what names the weights, the time it took, its last figures."""

    name: str
    checkpoint: str
    digest: str
    seconds: float | None
    summary: dict[str, Any]
    next: str


def recipe_overrides(
    assignments: Sequence[str], *, credit: str | None = None, data: str | None = None
) -> dict[str, Any]:
    fields: dict[str, Any] = {} if data is None else {"data": data}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidFileError(f"--set {assignment!r} has no '='.", next_step="write --set field=value")
        fields[name.strip()] = yaml.safe_load(value)
    if credit is not None:
        from atrl_bench.credit.rules import credit_rule

        credit_rule(credit)  # an unknown name says so now
        fields["credit"] = credit
    return fields


def train_recipe(
    recipe: str,
    overrides: dict[str, Any],
    run_dir: RunDir,
    where: Machine | Cluster = ONE_PROCESS,
    *,
    seed: int = 0,
    quiet: bool = False,
) -> TrainedRecipe | None:
    """Train a recipe, unless it is trained; None in a process that helps the main one, which may lack the folder."""
    loaded = load_recipe(recipe, **overrides)
    helps = not launched().is_main
    spec = {} if helps else training_spec(loaded, run_dir, seed)
    job = TrainingJob(run_dir=run_dir, name=loaded.name, recipe=loaded, spec=spec, seed=seed)
    if helps:
        train(job, HERE, None)
        return None
    with run_dir.open_store() as store, Watch(store, 1, noun="trainings", quiet=quiet) as watch:
        run_dir.keep_checkpoint_store(store)
        if isinstance(where, RayCluster):
            errors = [error for _, error in run_on_cluster(where, [job], store) if error is not None]
            if errors:
                raise errors[0]
        machine, devices = where if isinstance(where, Machine) else ONE_PROCESS, HERE
        if launched().count == 1 and not uses_verl(loaded, run_dir.profile):
            devices = machine.devices_for(job.num_gpus(ASSUMED))
            os.environ.update(environment(devices))
        checkpoint = train(job, devices, store)  # what a cluster has trained is found
        run = store.run(store.add_run(spec))
        assert run is not None
        watch.row_done()
    command = f"atrl-bench evaluate {quote(str(checkpoint))} --tasks geoqa_test {run_dir.options}"
    return TrainedRecipe(job.name, str(checkpoint), run.digest, run.seconds, run.summary, command)


def verl_preview(recipe: Recipe, run_dir: RunDir, seed: int) -> dict[str, Any]:
    require_verl_form(recipe, run_dir.profile)
    assert isinstance(recipe, RolloutRecipe)
    folder, profile = run_dir.checkpoints / "RUN" / "verl", run_dir.profile
    rollouts, gpus = num_rollouts(recipe, profile), gpus_of(recipe, profile)
    configuration = verl_configuration(recipe, profile, num_rollouts=rollouts, seed=seed, folder=folder, gpus=gpus)
    return {"verl": configuration, "command": verl_command(folder, f"${PYTHON}")}


def key_steps(
    data: str, endpoint: EndpointConfig, run_dir: RunDir, *, limit: int | None = None, quiet: bool = False
) -> KeyStepsResult:
    folder = run_dir.data_dir(find_set(data).folder)
    if folder is None:
        raise MissingDataError(
            f"Key steps are written beside the table of {data}, and it is not in a folder here.",
            next_step=f"hf download --repo-type dataset {find_set(data).hub_id}, and give its folder as --data-dir",
        )

    def show(done: int, total: int) -> None:
        if not quiet and (done == total or done % 20 == 0):
            print(f"key steps: {done} of {total} problems", flush=True)

    return extract_key_steps(data, folder, endpoint, max_problems=limit, on_progress=show)

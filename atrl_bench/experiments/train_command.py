"""Trainings outside any table: what `train`, `sweep` and `key-steps` do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from atrl_bench.errors import InvalidFileError, MissingDataError, UnknownNameError
from atrl_bench.escape import WIDTH, next_lines
from atrl_bench.experiments.progress import Watch, duration
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Profile
from atrl_bench.results.store import Store

if TYPE_CHECKING:
    from atrl_bench.models.chat_client import EndpointConfig
    from atrl_bench.training.recipe import Recipe


def recipe_overrides(*, credit: str | None, schedule: str | None, assignments: Sequence[str]) -> dict[str, Any]:
    """Return the recipe fields that the command line sets; values are read as YAML."""
    fields: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidFileError(f"--set {assignment!r} has no '='.", next_step="write --set field=value")
        fields[name.strip()] = yaml.safe_load(value)
    if credit is not None:
        from atrl_bench.credit import RULES

        if credit not in RULES:
            raise UnknownNameError("credit rule", credit, RULES, next_step="atrl-bench list credit")
        fields["credit"] = credit
    if schedule is not None:
        fields["schedule"] = schedule
    return fields


def train_recipe(
    recipe: str,
    overrides: dict[str, Any],
    *,
    profile: Profile,
    model: str | None,
    seed: int,
    workspace: Path | None,
    data_dir: Path | None,
    quiet: bool,
) -> dict[str, Any]:
    """Return folder, digest, seconds and last figures of the recipe's checkpoint, trained now unless it is there.

    And the command that evaluates it.
    """
    if recipe == "mini_base":
        return _rebuild_mini_base(workspace, quiet=quiet)
    from atrl_bench.training.recipe import load_recipe

    profile = profile if model is None else profile.model_copy(update={"model": model})
    run_dir = RunDir.at(workspace, profile, data_dir)
    with Store.open(run_dir.store_path) as store, Watch(store, 1, noun="trainings", quiet=quiet):
        return _trained(store, load_recipe(recipe, **overrides), run_dir, seed)


def train_sweep(
    sweep: str,
    overrides: dict[str, Any],
    *,
    profile: Profile,
    seed: int,
    workspace: Path | None,
    data_dir: Path | None,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Return what `train_recipe` returns for each point of a sweep, with its name; points that are there are kept."""
    from atrl_bench.experiments.sweep import expand, load_sweep

    recipes, run_dir = expand(load_sweep(sweep), **overrides), RunDir.at(workspace, profile, data_dir)
    results = []
    with Store.open(run_dir.store_path) as store, Watch(store, len(recipes), noun="trainings", quiet=quiet) as watch:
        for recipe in recipes:
            results.append({"name": recipe.name, **_trained(store, recipe, run_dir, seed)})
            watch.num_done += 1
    return results


def _trained(store: Store, recipe: Recipe, run_dir: RunDir, seed: int) -> dict[str, Any]:
    from atrl_bench.experiments.run import train_into, training_spec

    spec = training_spec(recipe, run_dir, seed)
    checkpoint = train_into(store, recipe, spec, run_dir=run_dir, seed=seed)
    run = store.run(store.add_run(spec))
    assert run is not None
    return {
        "checkpoint": str(checkpoint),
        "digest": run.digest,
        "seconds": run.seconds,
        "summary": run.summary,
        "next": f"atrl-bench evaluate {checkpoint} --tasks geoqa_test {run_dir.options}",
    }


def key_steps(
    data: str,
    endpoint: EndpointConfig,
    *,
    profile: Profile,
    workspace: Path | None,
    data_dir: Path | None,
    limit: int | None,
    quiet: bool,
) -> dict[str, Any]:
    """Return the file with a training set's key steps and what is in it, asked of a served model."""
    from atrl_bench.training.data import describe
    from atrl_bench.training.key_steps import extract_key_steps

    run_dir = RunDir.at(workspace, profile, data_dir)
    folder = run_dir.provide(describe(data).folder or data)
    if folder is None:
        raise MissingDataError(
            f"Key steps are written beside the table of {data}, and it is not in a folder here.",
            next_step=f"hf download --repo-type dataset {describe(data).hub_id}, and give its folder as --data-dir",
        )

    def show(done: int, total: int) -> None:
        if not quiet and (done == total or done % 20 == 0):
            print(f"key steps: {done} of {total} problems", flush=True)

    found = extract_key_steps(data, folder, endpoint, max_problems=limit, on_progress=show)
    return {**asdict(found), "path": str(found.path)}


def _rebuild_mini_base(workspace: Path | None, *, quiet: bool) -> dict[str, Any]:
    from atrl_bench.mini.base import rebuild_base

    def show(done: int, total: int, loss: float) -> None:
        if not quiet:
            print(f"mini_base: step {done} of {total}, loss {loss:.3f}", flush=True)

    folder = rebuild_base((workspace or Path("runs") / "mini_base"), on_progress=show)
    return {"checkpoint": str(folder)}


def result_text(result: dict[str, Any]) -> str:
    """Return a finished training as a person reads it."""
    lines = [f"Checkpoint: {result['checkpoint']}"]
    if "seconds" in result:
        lines.append(f"Trained in {duration(result['seconds'])}, digest {result['digest']}")
        lines += [f"  {name}: {value:.4g}" for name, value in sorted(result["summary"].items())]
        lines += next_lines(result["next"])
    return "\n".join(lines)


def sweep_text(results: Sequence[dict[str, Any]]) -> str:
    """Return a finished sweep as a person reads it: a line a point."""
    width = max((len(result["name"]) for result in results), default=0)
    lines = [f"{'':<{width}}  accuracy, first and last rollouts"]
    for result in results:
        ends = (result["summary"].get(f"{end} accuracy") for end in ("first", "last"))
        first, last = (f"{100 * end:5.1f} %" if end is not None else "      -" for end in ends)
        lines.append(f"{result['name']:<{width}}  {first} {last}  {result['checkpoint']}")
    return "\n".join(lines)


def describe_training(recipe: str, overrides: dict[str, Any], *, profile: Profile, model: str | None) -> dict[str, Any]:
    """Return everything a training would be run with: arguments, data, model, and what it needs. Loads nothing."""
    from atrl_bench.training.recipe import load_recipe
    from atrl_bench.training.run import resolved_arguments

    profile = profile if model is None else profile.model_copy(update={"model": model})
    return resolved_arguments(load_recipe(recipe, **overrides), profile)


def training_text(arguments: dict[str, Any]) -> str:
    """Return what a training would be run with as YAML, in the order it was given, eighty columns wide."""
    # YAML's writer ends a line at the first space behind its width, so a word is let over it.
    return yaml.safe_dump(arguments, sort_keys=False, width=WIDTH - 20, allow_unicode=True).rstrip()

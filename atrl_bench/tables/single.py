"""One row's training outside any table: what `train` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.profiles import Profile
from atrl_bench.results.store import Store
from atrl_bench.tables.progress import Watch, duration
from atrl_bench.tables.workspace import Workspace


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
    """Return folder, digest, seconds and last figures of the recipe's checkpoint, trained now unless it is there."""
    if recipe == "mini_base":
        return _rebuild_mini_base(workspace, quiet=quiet)
    from atrl_bench.tables.run import train_into, training_spec
    from atrl_bench.training.recipe import load_recipe

    profile = profile if model is None else profile.model_copy(update={"model": model})
    place = Workspace.at(workspace, profile, data_dir)
    chosen = load_recipe(recipe, **overrides)
    spec = training_spec(chosen, place, seed)
    with Store.open(place.store_path) as store, Watch(store, 1, noun="trainings", quiet=quiet):
        checkpoint = train_into(store, chosen, spec, place=place, seed=seed)
        run = store.run(store.add_run(spec))
    assert run is not None
    return {"checkpoint": str(checkpoint), "digest": run.digest, "seconds": run.seconds, "summary": run.summary}


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
        lines.append(f"Next: atrl-bench evaluate {result['checkpoint']} --tasks geoqa_test")
    return "\n".join(lines)


def describe_training(recipe: str, overrides: dict[str, Any], *, profile: Profile, model: str | None) -> dict[str, Any]:
    """Return everything a training would be run with: arguments, data, model, and what it needs. Loads nothing."""
    from atrl_bench.training.recipe import load_recipe
    from atrl_bench.training.run import resolved_arguments

    profile = profile if model is None else profile.model_copy(update={"model": model})
    return resolved_arguments(load_recipe(recipe, **overrides), profile)


def training_text(arguments: dict[str, Any]) -> str:
    """Return what a training would be run with as YAML, in the order it was given."""
    return yaml.safe_dump(arguments, sort_keys=False, width=100, allow_unicode=True).rstrip()

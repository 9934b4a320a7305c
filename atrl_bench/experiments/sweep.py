"""A sweep: one recipe with some of its fields varied, as a file. `recipes/sweeps/` has the grids of the paper.

A field is named by its path, so `credit.settings.outlier_scale` is a hyperparameter of the credit and `kl_coef` one of
the objective. Each point is a whole recipe with a name of its own, trained and tabled like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.resources import folder
from atrl_bench.settings import Settings, read_settings
from atrl_bench.training.recipe import Recipe, Setting, load_recipe


class Sweep(Settings):
    """What a sweep file says."""

    name: str = Field(description="how the command line calls it, and how the names of its points begin")
    title: str = Field(description="how a report prints it")
    base: str = Field(description="the recipe that the points are made of")
    set: dict[str, Setting] = Field({}, description="fields that differ from the base in every point")
    points: Literal["grid", "one_at_a_time"] = Field(
        description="grid: every combination of the values; one_at_a_time: the base itself, then each value alone"
    )
    vary: dict[str, list[Setting]] = Field(min_length=1, description="the values of each varied field")

    @field_validator("vary")
    @classmethod
    def _different_values(cls, vary: dict[str, list[Setting]]) -> dict[str, list[Setting]]:
        for name, values in vary.items():
            if len(set(values)) < max(1, len(values)):
                raise ValueError(f"{name} has no values, or one twice")
        return vary


def list_sweeps() -> list[str]:
    return sorted(path.stem for path in (folder("recipes") / "sweeps").glob("*.yaml"))


def load_sweep(name_or_path: str | Path) -> Sweep:
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"}:
        path = folder("recipes") / "sweeps" / f"{name_or_path}.yaml"
    if not path.is_file():
        raise UnknownNameError("sweep", str(name_or_path), list_sweeps(), next_step="ls recipes/sweeps")
    return read_settings(path, Sweep)


def expand(sweep: Sweep, **overrides: Any) -> list[Recipe]:
    """The recipes of a sweep in order, each named by what it varies: `cluster_refinement:outlier_scale=0.4`."""
    recipes = []
    for changes in _points(sweep):
        varied = ",".join(f"{field.rpartition('.')[2]}={_text(value)}" for field, value in changes.items())
        name = f"{sweep.name}:{varied or 'base'}"
        fields = {"name": name, "title": f"{sweep.title}: {varied.replace(',', ', ') or 'as it is'}"}
        recipes.append(_with(sweep, {**sweep.set, **changes}, {**fields, **overrides}))
    return recipes


def _points(sweep: Sweep) -> Iterator[dict[str, Setting]]:
    if sweep.points == "grid":
        for values in itertools.product(*sweep.vary.values()):
            yield dict(zip(sweep.vary, values, strict=True))
        return
    yield {}
    for field, alone in sweep.vary.items():
        yield from ({field: value} for value in alone)


def _with(sweep: Sweep, changes: dict[str, Setting], fields: dict[str, Any]) -> Recipe:
    base = load_recipe(sweep.base).model_dump()
    for path, value in changes.items():
        *outer, last = path.split(".")
        inner: Any = base
        for part in outer:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            then = f"name a field that `atrl-bench train {sweep.base} --dry-run` prints"
            raise InvalidFileError(f"Sweep {sweep.name}: no field {path!r} in {sweep.base}.", next_step=then)
        inner[last] = value
    changed = {first: base[first] for first in (path.partition(".")[0] for path in changes)}
    return load_recipe(sweep.base, **changed, **fields)


def _text(value: Setting) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

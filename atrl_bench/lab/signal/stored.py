"""Signals in the run folder's store, each under a key of everything that can change its numbers.

A measurement has all rules of one base and is a column of a table of signals; two tables that ask for the same share
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from atrl_bench.data.dataset import data_digest
from atrl_bench.data.sets import find_set
from atrl_bench.digests import plain, spec_key
from atrl_bench.errors import AtrlBenchError, reason_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.record import Signal
from atrl_bench.lab.signal.request import UNIFORM, RuleChoice, SignalRequest
from atrl_bench.lab.signal.tables import SignalTable
from atrl_bench.lab.worlds import load_world
from atrl_bench.models.local import model_ref
from atrl_bench.plugins import code_of
from atrl_bench.results.store import Store
from atrl_bench.training.run_spec import CHANGES_NOTHING, TRAINING_VERSION, own_code_of, recipe_fields

# Part of every signal's key: raise it when the same checkpoint, rules and problems would give other numbers.
SIGNAL_VERSION = 2
KIND = "signal"
_SIGNAL = TypeAdapter(Signal)
Tell = Callable[[int, int], None]


def signal_spec(request: SignalRequest, run_dir: RunDir) -> dict[str, Any]:
    """Everything that can change the numbers of a signal; the hash of it names it."""
    recipe, ref = request.measured_recipe, model_ref(request.model)
    rules = dict.fromkeys(RuleChoice.of(label).rule for label in request.rules)
    codes = {rule: code for rule in rules if (code := code_of("rules", rule)) is not None}
    return {
        "kind": KIND,
        "version": SIGNAL_VERSION + bool(recipe.critic or recipe.advantages),  # they learned while they were measured
        "training_version": TRAINING_VERSION,
        "model_name": ref.name,
        "model_digest": ref.digest,
        "data_digest": data_digest(find_set(recipe.data), run_dir.data_dir(find_set(recipe.data).folder)),
        "recipe": recipe_fields(recipe),
        **own_code_of(recipe),
        "sizes": recipe.sizes(run_dir.profile).model_dump(
            mode="json", exclude_defaults=True, exclude=set(CHANGES_NOTHING)
        ),
        "profile": run_dir.profile.name,
        "parameters": request.parameters,
        "rules": list(request.rules),
        **({"credit_code": codes} if codes else {}),  # of other packages, as a training's key has it
        "prompts": request.prompts,
        "held_out": request.held_out,
        "seed": request.seed,
    }


def stored_signal(
    request: SignalRequest, run_dir: RunDir, measure: Callable[[Tell], Signal], *, on_prompt: Tell
) -> Signal:
    """The signal from the store, measured now unless it is there; `on_prompt` is told how far that is."""
    spec = signal_spec(request, run_dir)
    with run_dir.open_store() as store:
        if (signal := read_signal(store, spec_key(spec))) is not None:
            return signal
        run_dir.record_environment()
        key, started = store.add_run(spec), time.monotonic()

        def tell(done: int, count: int) -> None:
            store.heartbeat("measurement", key, done, count)
            on_prompt(done, count)

        try:
            signal = measure(tell)
        except Exception as error:
            store.fail_run(key, reason_of(error))
            raise
        store.finish_run(key, summary=asdict(signal), seconds=time.monotonic() - started)
        return _SIGNAL.validate_python(plain(asdict(signal)))


def read_signal(store: Store, key: str) -> Signal | None:
    """The signal that is stored under this key, None where none is, or none that is finished."""
    stored = store.run(key)
    return _SIGNAL.validate_python(stored.summary) if stored is not None and stored.state == "done" else None


@dataclass(frozen=True)
class SignalColumn:
    """One base of a world: what is to be measured there, what stands in the way, "" for nothing, and what is stored."""

    world: str
    request: SignalRequest
    key: str
    obstacle: str
    signal: Signal | None

    @property
    def title(self) -> str:
        return f"{self.world}: {self.request.model}"

    @property
    def rules(self) -> tuple[str, ...]:
        return self.request.rules[1:]  # the first is uniform credit


def signal_columns(table: SignalTable, run_dir: RunDir) -> list[SignalColumn]:
    """The columns of a table in a run folder; writes the generated data that names them."""
    sizes = table.profiles.get(run_dir.profile.name, table.sizes)
    columns = []
    with run_dir.open_store(read_only=True) if run_dir.store_path.is_file() else nullcontext() as store:
        bases = [(world, base) for world in map(load_world, table.worlds) for base in world.bases]
        for world, base in bases:
            rules = (UNIFORM, *(rule for rule in table.rules if rule not in table.without.get(world.name, ())))
            request = SignalRequest(base, table.recipe, world.data, rules, sizes.prompts, sizes.held_out, seed=0)
            key = obstacle = ""
            try:
                key = spec_key(signal_spec(request, run_dir))
            except AtrlBenchError as error:  # a base that is not built here
                obstacle = f"{error.what} Next: {error.next_step}"
            signal = read_signal(store, key) if store else None
            columns.append(SignalColumn(world.name, request, key, obstacle, signal))
    return columns

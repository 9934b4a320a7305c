"""A signal in the run folder's store, under a key of everything that can change its numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from atrl_bench.data.dataset import data_digest
from atrl_bench.data.sets import find_set
from atrl_bench.digests import plain, spec_key
from atrl_bench.errors import reason_of
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.order import SignalOrder
from atrl_bench.lab.signal.record import Signal
from atrl_bench.models.local import model_ref
from atrl_bench.results.store import Run, Store
from atrl_bench.results.typed import typed
from atrl_bench.training.run_spec import CHANGES_NOTHING, TRAINING_VERSION

# Part of every signal's key: raise it when the same checkpoint, rules and problems would give other numbers.
SIGNAL_VERSION = 1
KIND = "signal"
Tell = Callable[[int, int], None]


def signal_spec(order: SignalOrder, run_dir: RunDir) -> dict[str, Any]:
    """Return everything that can change the numbers of a signal; the hash of it names it."""
    recipe, ref = order.measured_recipe, model_ref(order.model)
    return {
        "kind": KIND,
        "version": SIGNAL_VERSION,
        "training_version": TRAINING_VERSION,
        "model_name": ref.name,
        "model_digest": ref.digest,
        "data_digest": data_digest(find_set(recipe.data), run_dir.data_dir(find_set(recipe.data).folder)),
        "recipe": recipe.model_dump(mode="json", exclude={"name", "title", "overrides"}),
        "sizes": recipe.sizes(run_dir.profile).model_dump(
            mode="json", exclude_defaults=True, exclude=set(CHANGES_NOTHING)
        ),
        "profile": run_dir.profile.name,
        "parameters": order.parameters,
        "rules": list(order.rules),
        "prompts": order.prompts,
        "held_out": order.held_out,
        "seed": order.seed,
    }


def stored_signal(order: SignalOrder, run_dir: RunDir, measure: Callable[[Tell], Signal], *, on_prompt: Tell) -> Signal:
    """Return the signal from the store, measured now unless it is there; `on_prompt` is told how far that is."""
    spec = signal_spec(order, run_dir)
    with run_dir.open_store() as store:
        if (signal := read_signal(store, spec)) is not None:
            return signal
        run_dir.record_environment()
        key, started = store.add_measurement(spec), time.monotonic()

        def tell(done: int, count: int) -> None:
            store.heartbeat("measurement", key, done, count)
            on_prompt(done, count)

        try:
            signal = measure(tell)
        except Exception as error:
            store.fail_measurement(key, reason_of(error))
            raise
        store.finish_measurement(key, asdict(signal), seconds=time.monotonic() - started)
        return typed(Signal, plain(asdict(signal)))


def read_signal(store: Store, spec: dict[str, Any]) -> Signal | None:
    """Return the signal of this spec as it is stored, None where it is not, or not finished."""
    stored = store.measurement(spec_key(spec))
    return None if stored is None or stored.state != "done" else signal_of(stored)


def signal_of(stored: Run) -> Signal:
    """Return the signal that a finished measurement holds."""
    return typed(Signal, stored.summary)

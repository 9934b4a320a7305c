"""The base model and the datasets: which of them are on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.data import is_here
from atrl_bench.evaluation.tasks import expand
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.experiments.doctor.diagnosis import Check, State
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import find_model
from atrl_bench.profiles import Profile
from atrl_bench.training.data import describe


def model(profile: Profile) -> Iterator[Check]:
    """Yield where the base model is."""
    try:
        yield Check("", "ok", f"{profile.model} in {find_model(profile.model).folder}")
    except MissingDataError as error:
        found, fix = f"{profile.model} is not here", f"hf download {profile.model}"
        if profile.model.count("/") == 1 and not _is_offline():
            yield Check("", "note", f"{found}; it is fetched when it is needed", fix)
        else:
            yield Check("", "missing", f"{found}. {error.why}", error.next_step)


def data(run_dir: RunDir) -> Iterator[Check]:
    """Yield which benchmarks of the shipped tables have their rows here."""
    if run_dir.profile.generated_data and run_dir.given_data is None:
        yield Check("datasets", "ok", "generated on this machine when they are needed")
        return
    tables = [load_table(name) for name in list_tables()]
    yield from _training_sets(dict.fromkeys(table.data for table in tables), run_dir)
    tasks = expand(list(dict.fromkeys(column.task for table in tables for column in table.columns)))
    here = [info for info in tasks if is_here(info, run_dir.given_data)]
    absent = [info for info in tasks if info not in here]
    found = f"{len(here)} of {len(tasks)} benchmarks of the tables are here"
    if not absent:
        yield Check("datasets", "ok", found)
        return
    manual = [info for info in absent if info.hub_id is None or info.shows_videos or run_dir.given_data is not None]
    fetched = [info for info in absent if info not in manual]
    if fetched:
        words = f"{found}; fetched when they are needed: {', '.join(info.name for info in fetched)}"
        fix = f"hf download {fetched[0].hub_id} --repo-type dataset"
        yield Check("datasets", "missing" if _is_offline() else "note", words, fix)
    if manual:
        words = f"to be laid into --data-dir by hand: {', '.join(info.name for info in manual)}"
        yield Check("datasets by hand", "note", words, "see docs/reproducing.md; then --data-dir DATA")


def _training_sets(names: Iterable[str], run_dir: RunDir) -> Iterator[Check]:
    from huggingface_hub import constants

    for name in names:
        described = describe(name)
        if run_dir.given_data is not None:
            root = run_dir.given_data / (described.folder or name)
        else:
            root = Path(constants.HF_HUB_CACHE) / f"datasets--{described.hub_id.replace('/', '--')}"
        if root.is_dir():
            yield Check(f"training set {name}", "ok", str(root))
        else:
            how = "to be laid into --data-dir by hand" if described.media else "fetched when it is needed"
            found = f"{described.hub_id} is not here" + ("" if run_dir.given_data else f"; {how}")
            state: State = "missing" if run_dir.given_data or _is_offline() else "note"
            yield Check(f"training set {name}", state, found, f"hf download {described.hub_id} --repo-type dataset")


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")

"""The base model and the datasets: which of them are on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from atrl_bench.data.dataset import is_here
from atrl_bench.data.sets import find_set
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.tasks import expand
from atrl_bench.experiments.definition import list_tables, load_table
from atrl_bench.experiments.doctor.diagnosis import Check, State
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.local import find_model
from atrl_bench.profiles import Profile


def model(profile: Profile) -> Iterator[Check]:
    """Yield where the base model is."""
    try:
        yield Check("", "ok", f"{profile.model} in {find_model(profile.model).folder}")
    except MissingDataError as error:
        found, fix = f"{profile.model} is not here", f"atrl-bench fetch {profile.model}"
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
    here = [info for info in tasks if is_here(info, run_dir.data_dir(info.folder))]
    absent = [info for info in tasks if info not in here]
    found = f"{len(here)} of {len(tasks)} benchmarks of the tables are here"
    if not absent:
        yield Check("datasets", "ok", found)
        return
    large = [info for info in absent if info.hub_id is None or info.shows_videos]
    small = [info for info in absent if info not in large]
    state: State = "missing" if _is_offline() else "note"
    if small:
        words = f"{found}; fetched when they are needed: {', '.join(info.name for info in small)}"
        yield Check("datasets", state, words, f"atrl-bench fetch {small[0].name}")
    if large:
        words = f"to be fetched and unpacked first: {', '.join(info.name for info in large)}"
        yield Check("datasets in archives", state, words, f"atrl-bench fetch {large[0].name}")


def _training_sets(names: Iterable[str], run_dir: RunDir) -> Iterator[Check]:
    for name in names:
        described = find_set(name)
        data_dir = run_dir.data_dir(described.folder)
        if is_here(described, data_dir):
            found = str(data_dir / described.folder if data_dir else described.hub_id)
            yield Check(described.title, "ok", found)
        else:
            how = "to be fetched and unpacked first" if described.names_files else "fetched when it is needed"
            state: State = "missing" if _is_offline() else "note"
            found = f"{described.hub_id} is not here; {how}"
            yield Check(described.title, state, found, f"atrl-bench fetch {name}")


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")

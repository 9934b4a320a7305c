"""What figures are drawn from: evaluations by the rows of tables, the tokens of answers, and what the paper prints.

Whatever is not there is named together with the command that makes it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.tasks import expand, find_task
from atrl_bench.experiments.answer_credit import TokenCredit, credit_of_cell
from atrl_bench.experiments.definition import MAIN_TABLE, OWN
from atrl_bench.experiments.judge_choice import of_one_judge
from atrl_bench.experiments.progress import short_label
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.report.drawing import token_text
from atrl_bench.report.frame import places_of_cells
from atrl_bench.resources import folder
from atrl_bench.results.records import Sample
from atrl_bench.results.store import Cell, Store

if TYPE_CHECKING:
    from atrl_bench.grading.judge.judge import JudgeConfig


ANCHORED = "atrl, preset default"  # the credit of AT-RL as it is by default


@dataclass(frozen=True)
class Source:
    """What a figure may be asked to draw: which run folder, and whose answers to which benchmark."""

    run_dir: RunDir
    task: str = "mathvision_testmini"
    model: str | None = None  # the name or digest of one that was evaluated; None: one that was trained with AT-RL
    num_problems: int = 100  # the paper looks at as many samples of MathVision
    judge: JudgeConfig | None = None  # names the kinds of errors where nobody generated the problems

    def __post_init__(self) -> None:
        expand([self.task], are_stored=True)  # refuses a name that is none, with the nearest

    def missing(self, what: str, why: str = "") -> MissingDataError:
        return MissingDataError(what, why=why, next_step=f"atrl-bench run-table main_7b {self.run_dir.options}")


@dataclass(frozen=True)
class Evaluated:
    """A finished evaluation, and how a figure calls what was evaluated; `recipe` is None where nothing was trained."""

    label: str
    cell: Cell
    recipe: str | None
    is_anchored: bool  # trained with AT-RL's credit as it is by default


def evaluated(source: Source, store: Store, task: str, *, all_tables: bool = False) -> list[Evaluated]:
    """The finished evaluations of a benchmark by the rows of the table that shows it, if several the main one.

    Beside them stand models that no table shows and nothing here trained, and where no table shows the benchmark all
    that was trained here. An ablation's rows are no methods: they stand in a figure of their own table alone.
    """
    run_dir, rows = source.run_dir, dict[str, dict[str, Any]]()
    for place in sorted(places_of_cells(run_dir, store), key=lambda place: place.fields["table"] != MAIN_TABLE):
        if place.cell.spec["task"] == task:
            rows.setdefault(place.cell.key, place.fields)
    first = next((fields["table"] for fields in rows.values()), None)
    runs = {name: run.spec for run in store.runs() if run.digest for name in (run.digest, run.key)}
    found = []
    shown = store.cells(task=task, state="done", image=None)  # answers without the picture are no score of a model
    for cell in of_one_judge(shown, run_dir.judge, run_dir.engine):
        # By key first: two trainings may have ended in the same weights.
        run = runs.get(cell.spec["model_name"]) or runs.get(cell.spec["model_digest"])
        row = rows.get(cell.key)
        if row is not None and (all_tables or row["table"] == first):
            found.append(Evaluated(row["label"], cell, row["recipe"], row["credit"] == ANCHORED))
        elif row is None and run is None:
            found.append(Evaluated(f"{cell.spec['model_name']}, untrained", cell, None, is_anchored=False))
        elif run is not None and not rows:
            recipe, credit = run["recipe"], run["recipe"].get("credit") or {}
            is_anchored = credit.get("rule") == "atrl" and credit["preset"] == "default" and not credit.get("settings")
            label = short_label("run", run) + (", another setting" if credit.get("settings") else "")
            found.append(Evaluated(label, cell, recipe.get("objective") or "", is_anchored))
    return sorted(found, key=lambda one: (one.label, one.cell.created, one.cell.key))


def chosen(source: Source, store: Store) -> list[Evaluated]:
    found, model = evaluated(source, store, source.task), source.model
    if model is not None:
        found = [
            one
            for one in found
            if model in (one.label, one.cell.key, one.cell.spec["model_name"], one.cell.spec["model_digest"])
        ]
    if not found:
        who = f" of {model}" if model else ""
        raise source.missing(f"{source.run_dir.root} has no finished evaluation{who} on {source.task}.")
    return found


# Their tokens ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadAnswers:
    """A model's answers to the first problems of a benchmark; `label` says whose and to what."""

    label: str
    samples: Mapping[tuple[str, int], Sample]
    credit: Mapping[tuple[str, int], TokenCredit]


@dataclass(frozen=True)
class Word:
    """A token over all answers: how often it was written, and what it got on average."""

    token: str
    count: int
    mean_credit: float
    mean_connectivity: float


def answers(source: Source) -> ReadAnswers:
    with source.run_dir.open_store(read_only=True) as store:
        found = chosen(source, store)
        one = next((one for one in found if one.is_anchored), found[0])
        cell, label = one.cell, one.label
        credit = credit_of_cell(store, cell.key, source.run_dir, num_problems=source.num_problems)
        samples = {(s.problem.problem_id, s.response.repeat): s for s in store.samples(cell.key)}
    if not credit:
        raise source.missing(
            f"The credit of {label} on {source.task} cannot be computed.",
            "The benchmark's problems on this machine are not the ones that were answered.",
        )
    title = find_task(source.task).title
    return ReadAnswers(f"{label} on {title}", {answer: samples[answer] for answer in credit}, credit)


def words(credits: Sequence[TokenCredit], min_count: int = 1) -> list[Word]:
    """The tokens that were written often enough, the most credited first; equal ones in order of their text."""
    credit: dict[str, list[float]] = defaultdict(list)
    connectivity: dict[str, list[float]] = defaultdict(list)
    for one in credits:
        for text, value, looked in zip(one.texts, one.credit_T, one.connectivity_T, strict=True):
            credit[token_text(text)].append(value)
            connectivity[token_text(text)].append(looked)
    averages = [
        Word(text, len(values), sum(values) / len(values), sum(connectivity[text]) / len(values))
        for text, values in credit.items()
        if len(values) >= min_count
    ]
    return sorted(averages, key=lambda word: (-word.mean_credit, word.token))


# The paper --------------------------------------------------------------------------------------------------------


def published(name: str) -> list[dict[str, str]]:
    """The rows of `reports/at_rl/figures/<name>.csv`: what the paper prints, and nothing that it only draws."""
    path = folder("reports") / OWN / "figures" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))

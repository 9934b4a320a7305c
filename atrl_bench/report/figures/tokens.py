"""The tokens that four figures look at: those of one model's answers to one benchmark, with their credit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atrl_bench.evaluation.tasks import find_task
from atrl_bench.experiments.answer_credit import TokenCredit, credit_of_cell
from atrl_bench.report.drawing import token_text
from atrl_bench.report.figures.sources import Source, chosen
from atrl_bench.results.records import Sample
from atrl_bench.results.store import Cell


@dataclass(frozen=True)
class ReadAnswers:
    """A model's answers to the first problems of a benchmark; `label` says whose and to what."""

    label: str
    cell: Cell
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
    with source.open_store() as store:
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
    return ReadAnswers(f"{label} on {title}", cell, {answer: samples[answer] for answer in credit}, credit)


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

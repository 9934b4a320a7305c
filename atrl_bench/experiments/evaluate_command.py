"""One model's evaluation outside any table: what `evaluate` does, and its scores."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from atrl_bench.data.dataset import media_files
from atrl_bench.engines.devices import ONE_PROCESS, Cluster, Machine, environment, memory_gb
from atrl_bench.engines.processes import launched
from atrl_bench.engines.ray_cluster import RayCluster
from atrl_bench.evaluation.cell import read_task
from atrl_bench.evaluation.cell_spec import CellSpec, EvaluationOptions
from atrl_bench.evaluation.tasks import OwnTask, Suite, expand, find_task, list_suites, scored
from atrl_bench.experiments.jobs import EvaluationJob, answer, answer_task
from atrl_bench.experiments.progress import Watch
from atrl_bench.experiments.run import run_on_cluster
from atrl_bench.experiments.run_dir import RunDir, keep_settings
from atrl_bench.grading.judge.agreement import JudgeSummary, judge_summary
from atrl_bench.printable import Block, Record, Rows, counted
from atrl_bench.results import numbers
from atrl_bench.results.records import Sample
from atrl_bench.results.score_array import ScoreArray
from atrl_bench.results.statistics.means import Estimate
from atrl_bench.results.statistics.metrics import (
    Bounds,
    ScoredSamples,
    breakdown,
    in_place_of,
    judge_warning,
    score,
    suite_score,
)
from atrl_bench.results.statistics.reliance import Reliance, reliance
from atrl_bench.results.store import Store

MAX_NAME = 34  # columns of a terminal


def _row(name: str, metric: str, score: Estimate) -> tuple[str, ...]:
    if len(name) > MAX_NAME:  # names of one benchmark begin alike, or end alike
        name = f"{name[: MAX_NAME // 2]}…{name[1 - MAX_NAME // 2 :]}"
    half_width = score.half_width()
    if half_width >= 1 or math.isnan(half_width):  # two groups of problems say nothing about a third
        interval = f"%, n = {score.num_problems}"
    elif half_width <= score.mean <= 1 - half_width:
        interval = f"± {100 * half_width:.2f} %"
    else:
        interval = f"%, {numbers.interval(score)}"
    return name, metric, f"{100 * score.mean:.2f}", interval


def _looks(found: Reliance, by: Mapping[str, Reliance], image: str) -> Iterable[str]:
    """How much of a score rests on the pictures, also of the benchmark's own parts."""
    shown, left = (f"{100 * item.mean:.1f}" for item in (found.with_picture, found.without))
    chance = "" if found.chance is None else f", guessing {100 * found.chance:.1f}"
    yield f"reliance on the picture: {_points(found)} points ({shown} with it, {left} {image}{chance})"
    anyway = "" if found.changed_anyway is None else f" ({100 * found.changed_anyway.mean:.0f} % between two repeats)"
    yield f"{100 * found.changed.mean:.0f} % of the answers change{anyway}" + (
        "" if found.stays_right is None else f"; {100 * found.stays_right.mean:.0f} % of the right ones stay right"
    )
    yield from (f"  {name}: {_points(part)}" for name, part in by.items())


def _points(found: Reliance) -> str:
    difference = found.difference.estimate
    return f"{100 * difference.mean:+.1f} ± {100 * difference.half_width():.1f}".replace("+-", "-")


@dataclass(frozen=True)
class TaskScores:
    """Everything a cell says: its scores under every metric of its task, and what became of every row."""

    task: str
    title: str
    metric: str
    cell: str
    problems: int
    repeats: int
    skipped: dict[str, str]
    truncated: int
    tokens: float  # an answer
    thought_tokens: float
    states: dict[str, int]
    headline: str
    scores: dict[str, Estimate]
    by: dict[str, dict[str, Estimate]]
    variants: dict[str, Estimate]
    judge: JudgeSummary | None
    between: dict[str, Bounds] = field(default_factory=dict)  # in place of scores that are no headline
    answered_as: list[str] = field(default_factory=list)  # what the server called the model
    image: str | None = None  # how pictures were withheld
    looks: Reliance | None = None
    looks_by: dict[str, Reliance] = field(default_factory=dict)

    def rows(self) -> Iterable[tuple[str, ...]]:
        yield from _score_rows(self.task, self.scores, self.between)
        for key, parts in self.by.items():
            yield (f"  by {key}:",)
            yield from (_row(f"    {value}", self.headline, score) for value, score in parts.items())
        yield from (_row(f"  {name}", self.headline, score) for name, score in self.variants.items())
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        yield (
            f"  {counted(self.problems, 'problem')} x {self.repeats}: {states}; {self.truncated} truncated; "
            f"{counted(len(self.skipped), 'row')} skipped",
        )
        if self.thought_tokens:
            yield (f"  {self.tokens:,.0f} tokens an answer, of which {self.thought_tokens:,.0f} thought",)
        if self.answered_as:
            yield (f"  answered as {', '.join(self.answered_as)}",)
        if self.judge:
            yield (f"  {self.judge.line}",)
        if self.looks is not None:
            yield from ((f"  {line}",) for line in _looks(self.looks, self.looks_by, self.image or ""))
        elif self.image is not None:
            yield (f"  pictures: {self.image}; the same command without --image says how much it relies on them",)


@dataclass(frozen=True)
class SuiteScores:
    """The score of a suite: the mean of its tasks' own numbers."""

    task: str
    title: str
    parts: list[str]
    repeats: int
    headline: str
    scores: dict[str, Estimate]
    between: dict[str, Bounds] = field(default_factory=dict)

    def rows(self) -> Iterable[tuple[str, ...]]:
        yield from _score_rows(self.task, self.scores, self.between)
        yield (f"  the mean of {', '.join(self.parts)}",)


def _score_rows(name: str, scores: Mapping[str, Estimate], between: Mapping[str, Bounds]) -> Iterable[tuple[str, ...]]:
    for metric, (low, high) in between.items():
        ends = f"{100 * low:.1f} to {100 * high:.1f}"
        yield name, metric, ends, "the judge failed on too many answers for one number"
    yield from (_row(name, metric, score) for metric, score in scores.items())


@dataclass(frozen=True)
class ModelScores(Record):
    """The scores of one model: of each task, then of each suite."""

    scores: tuple[TaskScores | SuiteScores, ...]

    def blocks(self) -> Iterable[Block]:
        states: Counter[str] = sum((Counter(of.states) for of in self.scores if isinstance(of, TaskScores)), Counter())
        if warning := judge_warning(states["judge failed"], states.total()):
            yield warning
        yield Rows([row for scores in self.scores for row in scores.rows()], right=(2,), indent=0)


def evaluate_model(
    model: str,
    names: Sequence[str],
    options: EvaluationOptions,
    run_dir: RunDir,
    where: Machine | Cluster = ONE_PROCESS,
    *,
    quiet: bool = False,
) -> ModelScores:
    tasks, keys = expand(names), {}
    for task in tasks[1:]:  # the first is read before its own answers
        if isinstance(task, OwnTask):
            media_files(task, None)
            read_task(task, None, options.limit)
    evaluations = tuple((task.name, options) for task in tasks)
    job = EvaluationJob(run_dir=run_dir, name=model, model=model, evaluations=evaluations, num_shaded=0)
    with run_dir.open_store() as store, Watch(store, len(tasks), noun="tasks", quiet=quiet) as watch:
        if options.endpoint is None and launched().count == 1:
            _answer_elsewhere(job, where, store)
        for task in tasks:  # what was answered elsewhere is found
            keys[task.stored_name] = answer_task(store, model, task.name, options, run_dir)
            watch.row_done()
        own = {task.stored_name: task.name for task in tasks if isinstance(task, OwnTask)}
        if own and launched().is_main:
            keep_settings(run_dir.root, lambda kept: {"tables": kept.tables | own})
        of_tasks = [task_scores(store, key, name) for name, key in keys.items()]
        of_suites = [_suite_scores(store, suite, keys) for suite in list_suites() if suite.name in names]
        return ModelScores((*of_tasks, *of_suites))


def _answer_elsewhere(job: EvaluationJob, where: Machine | Cluster, store: Store) -> None:
    """Have a cluster do the job, the run folder's engine, or a process for each device; nothing where there is none."""
    if isinstance(where, Machine):
        devices = where.devices_for(job.num_gpus(job.run_dir.rates.on(memory_gb(where.gpus))))
        os.environ.update(environment(devices))
        if job.run_dir.engine is not None or not devices.are_here:
            answer(job, devices, store)
        return
    assert isinstance(where, RayCluster)
    for _, error in run_on_cluster(where, [job], store):
        if error is not None:
            raise error


def task_scores(store: Store, key: str, task: str) -> TaskScores:
    info, samples = find_task(task), store.samples(key)
    statistics, by = info.code.statistics, info.code.breakdown
    answers = ScoreArray.of(samples)
    num_repeats = _num_repeats(answers)
    headline = info.headline(num_repeats)
    details = {name for sample in samples if sample.verdict is not None for name in sample.verdict.details}
    plain = ["acc@1", *([f"mean@{num_repeats}"] if num_repeats > 1 else [])]
    composite = [f"{name}@{num_repeats}" for name in statistics]
    parts = breakdown(ScoredSamples(answers, f"mean@{num_repeats}"), by) if by else {}
    metrics = list(dict.fromkeys([*([headline] if headline in composite else []), *plain, *composite]))
    parts_of = {metric: ScoredSamples(answers, metric, statistics) for metric in metrics}
    estimates = {metric: score(part) for metric, part in parts_of.items()}
    # What a metric leaves without a verdict on purpose is no failure of a judge.
    is_judged = store.lacks_judgement(key)
    found = {metric: in_place_of(estimates[metric], [part]) for metric, part in parts_of.items()} if is_judged else {}
    between = {metric: ends for metric, ends in found.items() if ends is not None}
    return TaskScores(
        task=task,
        title=info.title,
        metric=info.metric,
        cell=key,
        problems=len({sample.problem.problem_id for sample in samples}),
        repeats=num_repeats,
        skipped=store.skipped(key),
        truncated=sum(sample.response.truncated for sample in samples),
        tokens=sum(sample.response.num_tokens for sample in samples) / max(1, len(samples)),
        thought_tokens=sum(sample.response.num_thought for sample in samples) / max(1, len(samples)),
        states=dict(Counter(sample.verdict.state if sample.verdict else "not graded" for sample in samples)),
        headline=headline,
        scores={metric: of for metric, of in estimates.items() if metric not in between},
        between=between,
        by={by: parts} if by and parts.keys() - {"none"} and headline not in between else {},
        variants={name: _variant(samples, num_repeats, name) for name in info.code.variants if name in details},
        judge=judge_summary(store, key),
        answered_as=store.answered_as(key),
        **_reliance(store, key, samples, by),
    )


def _reliance(store: Store, key: str, withheld: Sequence[Sample], by: str | None) -> dict[str, Any]:
    """How pictures were withheld in a cell, and what that says beside the same cell with them, where it is done."""
    cell = store.cell(key)
    if cell is None or cell.spec.get("image") is None:
        return {}
    spec = CellSpec.from_dict(cell.spec)
    if (real := _with_pictures(store, spec)) is None:
        return {"image": spec.image}
    parts = {}
    for value in sorted({str(sample.problem.meta.get(by)) for sample in withheld}) if by else ():
        of_value = ([s for s in samples if str(s.problem.meta.get(by or "")) == value] for samples in (real, withheld))
        parts[value] = reliance(*of_value)
    return {"image": spec.image, "looks": reliance(real, withheld), "looks_by": parts}


def _with_pictures(store: Store, spec: CellSpec) -> list[Sample] | None:
    shown = store.cell(replace(spec, image=None).key)
    return store.samples(shown.key) if shown is not None and shown.state == "done" else None


def known_reliance(store: Store, model_digest: str) -> dict[str, str]:
    """What a model's stored answers owe to the pictures, in points, by task and how pictures were withheld."""
    found = {}
    for cell in store.cells(model_digest=model_digest, state="done"):
        if cell.spec.get("image") is None:
            continue
        spec = CellSpec.from_dict(cell.spec)
        if (real := _with_pictures(store, spec)) is not None:
            found[f"{spec.task}, {spec.image}"] = _points(reliance(real, store.samples(cell.key)))
    return found


def _variant(samples: Sequence[Sample], num_repeats: int, name: str) -> Estimate:
    """The mean of one of the details that the metric gives beside the score; an answer without it counts 0."""
    others = [
        replace(sample, verdict=sample.verdict._replace(score=float(sample.verdict.details.get(name, 0.0))))
        for sample in samples
        if sample.verdict is not None
    ]
    return score(ScoredSamples.of(others, f"mean@{num_repeats}"))


def _suite_scores(store: Store, suite: Suite, keys: Mapping[str, str]) -> SuiteScores:
    parts = {name: store.scores(keys[name]) for name in suite.tasks}
    num_repeats = min(map(_num_repeats, parts.values()))
    samples = [scored(name, answers, f"headline@{num_repeats}") for name, answers in parts.items()]
    estimate, is_judged = suite_score(samples), any(map(store.lacks_judgement, keys.values()))
    metric = "acc@1" if num_repeats == 1 else f"mean@{num_repeats}"
    ends = in_place_of(estimate, samples) if is_judged else None
    scores = {} if ends else {metric: estimate}
    between = {metric: ends} if ends else {}
    return SuiteScores(suite.name, suite.title, list(suite.tasks), num_repeats, metric, scores, between)


def _num_repeats(answers: ScoreArray) -> int:
    return max(1, answers.scores_PR.shape[1])

"""One model's evaluation outside any table: what `evaluate` does, and its scores as a record and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atrl_bench.evaluation.cell_spec import EvaluationOptions
from atrl_bench.experiments.progress import Watch
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.profiles import Profile
from atrl_bench.results.records import Sample
from atrl_bench.results.statistics import Estimate, ScoredSamples, breakdown, score, suite_score
from atrl_bench.results.store import Store

if TYPE_CHECKING:
    from atrl_bench.evaluation.tasks import Suite, Task


def evaluate_model(
    model: str,
    names: Sequence[str],
    options: EvaluationOptions,
    *,
    profile: Profile,
    workspace: Path | None,
    data_dir: Path | None,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Return a record for each task and each suite in `names`: scores with intervals, every row accounted for."""
    from atrl_bench.evaluation.tasks import expand, list_suites
    from atrl_bench.experiments.run import evaluate_into

    tasks = expand(names)
    run_dir = RunDir.at(workspace, profile, data_dir)
    sizes = {"repeats": options.repeats, "limit": options.limit, "frames": options.frames}
    keys: dict[str, str] = {}
    with Store.open(run_dir.store_path) as store, Watch(store, len(tasks), noun="tasks", quiet=quiet) as watch:
        for info in tasks:
            keys[info.name] = evaluate_into(
                store,
                model,
                info.name,
                run_dir=run_dir,
                run_seed=options.run_seed,
                judge=options.judge,
                endpoint=options.endpoint,
                **sizes,
            )
            watch.num_done += 1
        records = [task_scores(store, key, name) for name, key in keys.items()]
        suites = [suite for suite in list_suites() if suite.name in names]
        return records + [_suite_scores(store, suite, keys) for suite in suites]


def task_scores(store: Store, key: str, task: str) -> dict[str, Any]:
    """Return everything a cell says: its scores under every metric of its task, and where each answer went."""
    from atrl_bench.evaluation.tasks import find_task
    from atrl_bench.grading.judge.report import judge_summary

    info, samples = find_task(task), store.samples(key)
    statistics, by = info.code.statistics, info.code.breakdown
    num_repeats = _num_repeats(samples)
    headline = info.headline(num_repeats)
    plain = ["acc@1", *([f"mean@{num_repeats}"] if num_repeats > 1 else [])]
    composite = [f"{name}@{num_repeats}" for name in statistics]
    metrics = list(dict.fromkeys([*([headline] if headline in composite else []), *plain, *composite]))
    return {
        "task": task,
        "title": info.title,
        "metric": info.metric,
        "cell": key,
        "problems": len({sample.problem.problem_id for sample in samples}),
        "repeats": num_repeats,
        "skipped": store.skipped(key),
        "truncated": sum(sample.response.truncated for sample in samples),
        "states": dict(Counter(sample.verdict.state if sample.verdict else "not graded" for sample in samples)),
        "headline": headline,
        "scores": {metric: _interval(score(ScoredSamples(samples, metric, statistics))) for metric in metrics},
        "by": {by: _parts(samples, num_repeats, by)} if by else {},
        "variants": {name: _variant(samples, num_repeats, name) for name in _given(info, samples)},
        "judge": judge_summary(store, key),
    }


def _parts(samples: Sequence[Sample], num_repeats: int, by: str) -> dict[str, dict[str, float]]:
    return {
        value: _interval(part) for value, part in breakdown(ScoredSamples(samples, f"mean@{num_repeats}"), by).items()
    }


def _given(info: Task, samples: Sequence[Sample]) -> list[str]:
    """Return which of the task's variants there are: some need a judge."""
    names = {name for sample in samples if sample.verdict is not None for name in sample.verdict.details}
    return [name for name in info.code.variants if name in names]


def _variant(samples: Sequence[Sample], num_repeats: int, name: str) -> dict[str, float]:
    """Return the mean of one of the details that the metric gives beside the score; an answer without it counts 0."""
    others = [
        replace(sample, verdict=sample.verdict._replace(score=float(sample.verdict.details.get(name, 0.0))))
        for sample in samples
        if sample.verdict is not None
    ]
    return _interval(score(ScoredSamples(others, f"mean@{num_repeats}")))


def _suite_scores(store: Store, suite: Suite, keys: Mapping[str, str]) -> dict[str, Any]:
    from atrl_bench.evaluation.tasks import find_task

    parts = [(find_task(name), store.samples(keys[name])) for name in suite.tasks]
    num_repeats = min(_num_repeats(samples) for _, samples in parts)
    estimate = suite_score([headline_answers(info, samples, num_repeats) for info, samples in parts])
    metric = "acc@1" if num_repeats == 1 else f"mean@{num_repeats}"
    return {
        "task": suite.name,
        "title": suite.title,
        "parts": list(suite.tasks),
        "repeats": num_repeats,
        "headline": metric,
        "scores": {metric: _interval(estimate)},
    }


def headline_answers(info: Task, samples: Sequence[Sample], num_repeats: int) -> ScoredSamples:
    """Return the samples under the number that the benchmark is quoted by."""
    return ScoredSamples(samples, info.headline(num_repeats), info.code.statistics)


def _num_repeats(samples: Sequence[Sample]) -> int:
    return max((sample.response.repeat for sample in samples), default=0) + 1


def _interval(estimate: Estimate) -> dict[str, float]:
    return {
        "mean": estimate.mean,
        "stderr": estimate.stderr,
        "half_width_95": estimate.half_width(),
        "problems": estimate.num_problems,
    }


# Text ---------------------------------------------------------------------------------------------------------------


def scores_text(records: Sequence[dict[str, Any]]) -> str:
    """Return evaluated tasks as a person reads them: the scores, their intervals, and where every row went."""
    return "\n".join(line for record in records for line in _lines(record))


def _lines(record: dict[str, Any]) -> list[str]:
    lines = [_score_line(record["task"], metric, value) for metric, value in record["scores"].items()]
    if "parts" in record:
        return [*lines, f"  the mean of {', '.join(record['parts'])}"]
    for key, parts in record["by"].items():
        lines += [_score_line(f"  {key}: {value}", record["headline"], part) for value, part in parts.items()]
    lines += [_score_line(f"  {name}", record["headline"], value) for name, value in record["variants"].items()]
    states = ", ".join(f"{count} {state}" for state, count in sorted(record["states"].items()))
    lines.append(
        f"  {record['problems']} problems x {record['repeats']}: {states}; {record['truncated']} truncated; "
        f"{len(record['skipped'])} rows skipped"
    )
    return [*lines, *([f"  {record['judge'].line}"] if record["judge"] else [])]


def _score_line(name: str, metric: str, value: Mapping[str, float]) -> str:
    name = name if len(name) <= 34 else name[:33] + "…"
    half_width = 100 * value["half_width_95"]
    # Two groups of problems say nothing about a third.
    interval = f"± {half_width:.2f} %" if half_width < 100 else f"%, n = {value['problems']}"
    return f"{name:<34} {metric:<26} {100 * value['mean']:6.2f} {interval}"

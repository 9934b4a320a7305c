"""The verbs that look at this machine, at a run folder and at what there is to run."""

from __future__ import annotations

from typing import Annotated

import typer

from atrl_bench.cli.options import Options, shared
from atrl_bench.cli.printing import show, show_text


@shared("profile", "out", "as_json")
def status(options: Options) -> None:
    """Say what is done, what runs and what failed.

    Reads the store of a run folder alone, also while a run goes on.
    """
    from atrl_bench.experiments.progress import read_status

    show(read_status(options.run_dir(quiet=True)), options.as_json)


@shared("profile", "out", "data_dir", "as_json")
def doctor(
    options: Options,
    online: Annotated[bool, typer.Option("--online", help="also ask the hub whether it answers")] = False,
    judge_base_url: Annotated[str | None, typer.Option("--judge-base-url", help="also ask this judge")] = None,
    judge_model: Annotated[str | None, typer.Option("--judge-model", help="model name at that URL")] = None,
) -> None:
    """Say what a profile lacks on this machine, and the command that mends it."""
    from atrl_bench.experiments.doctor import doctor as examine
    from atrl_bench.grading.judge.judge import JudgeConfig

    judge = JudgeConfig(judge_base_url, judge_model or "") if judge_base_url else None
    diagnosis = examine(options.run_dir(), judge=judge, online=online)
    show(diagnosis, options.as_json)
    if not diagnosis.is_healthy:
        raise typer.Exit(1)


@shared("profile", "as_json")
def overhead(
    options: Options,
    recipe: Annotated[str, typer.Option("--recipe", help="a recipe trained on rollouts")] = "grpo",
    credit: Annotated[str, typer.Option("--credit", help="the credit rule to pay for")] = "atrl",
    shape: Annotated[str | None, typer.Option("--shape", help="7b: random weights at that size, for a GPU")] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=1, help="rollouts measured of each")] = 5,
) -> None:
    """Measure what the credit costs in a training step.

    Shares of generation, scoring, forward, backward, attention rows, graph and credit; medians.
    """
    from atrl_bench.analysis import overhead as cost

    record = cost.overhead(options.load_profile(), recipe=recipe, credit=credit, shape=shape, rollouts=rollouts)
    show_text(record, cost.overhead_text(record), options.as_json)


@shared("data_dir", "as_json")
def list_(
    options: Options,
    kind: Annotated[
        str | None, typer.Argument(help="tables, ablations, figures, recipes, sweeps, tasks, credit or profiles")
    ] = None,
) -> None:
    """List what there is: tables, figures, recipes, tasks and more."""
    from atrl_bench.cli.catalogue import read

    show(read(kind, options.data_dir), options.as_json)

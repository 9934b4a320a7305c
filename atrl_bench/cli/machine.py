"""The verbs that look at this machine, at a run folder and at what there is to run."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, BadParameter, Exit, Option, echo

from atrl_bench.cli import completion
from atrl_bench.cli.options import Options, with_options
from atrl_bench.cli.printing import show


@with_options("profile", "out", "as_json")
def status(options: Options) -> None:
    """Say what is done, what runs and what failed.

    Reads the store of a run folder alone, also while a run goes on.
    """
    from atrl_bench.experiments.progress import read_status

    show(read_status(options.run_dir(quiet=True)), options.as_json)


@with_options("profile", "out", "data_dir", "as_json")
def doctor(
    options: Options,
    judge_base_url: Annotated[str | None, Option(help="also ask this judge")] = None,
    judge_model: Annotated[str | None, Option(help="model name at that URL")] = None,
    gpu: Annotated[bool, Option("--gpu", help="measure one GPU instead, in minutes")] = False,
    size: Annotated[str | None, Option(help="with --gpu: 3b, or tiny to rehearse anywhere")] = None,
) -> None:
    """Say what a profile lacks on this machine, and the command that mends it.

    With --gpu, measure what a GPU does, for somebody who has none, and for cost estimates.
    """
    if gpu:
        _check_gpu(options, size or "3b")
        return
    if size:
        raise BadParameter("--size belongs to --gpu.")
    from atrl_bench.experiments.doctor import doctor as examine
    from atrl_bench.grading.judge.judge import JudgeConfig

    judge = JudgeConfig(judge_base_url, judge_model or "") if judge_base_url else None
    diagnosis = examine(options.run_dir(), judge=judge)
    show(diagnosis, options.as_json)
    if not diagnosis.is_healthy:
        raise Exit(1)


def _check_gpu(options: Options, size: str) -> None:
    import os
    from pathlib import Path

    from atrl_bench.engines.devices import VISIBLE
    from atrl_bench.errors import UnknownNameError

    if size not in (usual := {"3b": "paper", "tiny": "mini"}):
        raise UnknownNameError("size", size, usual, next_step="atrl-bench doctor --gpu --size tiny")
    # A trainer would spread over all GPUs. The driver reads this once, when torch or a library on it asks for GPUs.
    os.environ[VISIBLE] = os.environ.get(VISIBLE, "0").partition(",")[0]
    from atrl_bench.analysis.gpu_check import gpu_check
    from atrl_bench.report.gpu_check_page import write_gpu_check

    check = gpu_check(size)
    paths = write_gpu_check(check, options.out or Path("runs") / (options.profile or usual[size]))
    show(check, options.as_json)
    if not options.as_json:
        echo("\n".join(f"Wrote {path}" for path in paths))
    if check.failures:
        raise Exit(1)


@with_options("profile", "as_json")
def overhead(
    options: Options,
    recipe: Annotated[str, Option(help="a recipe trained on rollouts")] = "grpo",
    credit: Annotated[str, Option(help="the credit rule to pay for")] = "atrl",
    shape: Annotated[str | None, Option(help="3b or 7b: random weights that large, on a GPU")] = None,
    rollouts: Annotated[int, Option(min=1, help="rollouts measured of each")] = 5,
) -> None:
    """Measure what the credit costs in a training step.

    Shares of generation, scoring, forward, backward, attention rows, graph and credit; medians.
    """
    from atrl_bench.analysis.overhead import overhead as measured

    record = measured(options.load_profile(), recipe=recipe, credit=credit, shape=shape, rollouts=rollouts)
    show(record, options.as_json)


@with_options("data_dir", "as_json")
def list_(
    options: Options,
    kind: Annotated[
        str | None,
        Argument(help="tables, ablations, figures, recipes, sweeps, tasks, rules, profiles, or rows TABLE"),
    ] = None,
    table: Annotated[str | None, Argument(help="with rows: of which table", autocompletion=completion.tables)] = None,
) -> None:
    """List what there is: tables, rows, figures, recipes, tasks, rules and more."""
    from atrl_bench.cli.catalogue import read, read_rows

    if kind == "rows":
        if table is None:
            raise BadParameter("say of which table: atrl-bench list rows main_7b")
        show(read_rows(table), options.as_json)
    elif table is not None:
        raise BadParameter("a second name belongs to rows: atrl-bench list rows main_7b")
    else:
        show(read(kind, options.data_dir), options.as_json)

"""The verbs that plan, run, render and explain tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from atrl_bench.cli import completion
from atrl_bench.cli.consent import require_consent
from atrl_bench.cli.options import Options, allow_code, seeds_of, shared
from atrl_bench.cli.printing import show, show_text
from atrl_bench.cli.submission import is_left_to_slurm

if TYPE_CHECKING:
    from atrl_bench.experiments.plan import Plan
    from atrl_bench.experiments.price import Price
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.report.table_run import TableRun

TABLE = ("profile", "rollouts", "rows", "columns", "seeds", "compared_at", "out", "data_dir", "as_json")
RUN = (*TABLE, "jobs", "gpus", "processes", "on", "serve", "checkpoints", "report_to", "allow_code", "dry_run", "yes")
TableArgument = Annotated[
    str, typer.Argument(help="a table of `atrl-bench list tables`, or all", autocompletion=completion.tables)
]


@shared(*RUN)
def run_table(options: Options, table: TableArgument) -> None:
    """Train the rows, evaluate the columns, write the report.

    The same command again resumes: whatever is in the store is not done twice.
    """
    allow_code(options.allow_code)
    if table == "all":
        _refuse_selection(options.rows, options.columns, options.compared_at)
        _run_all(options)
    elif _is_of_signals(table):
        _run_signals(table, options)
    else:
        _run(options.plan(table), options)


@shared(*(name for name in RUN if name != "compared_at"))
def ablate(
    options: Options,
    ablation: Annotated[str, typer.Argument(help="an ablation of `atrl-bench list ablations`")],
    topk: Annotated[
        str | None, typer.Option("--topk", help="hard truncation to this share of the tokens, or to several: 0.1,0.15")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="field=value[,value...] of the credit; repeatable")
    ] = None,
) -> None:
    """Run an ablation, or single points of it.

    A point becomes a row of the ablation's table; what it is compared with is run too.
    """
    from atrl_bench.experiments.plan import plan_ablation
    from atrl_bench.experiments.price import price_of

    allow_code(options.allow_code)
    settings = [*([] if topk is None else [f"topk={topk}"]), *(set_ or [])]

    def planned(run_dir: RunDir) -> Plan:
        return plan_ablation(ablation, run_dir, settings, **options.selection())

    def paper_hours() -> float:
        return price_of(planned(options.under_paper().run_dir())).gpu_hours

    _run(planned(options.run_dir(paper_hours=paper_hours)), options)


@shared(*TABLE)
def plan(options: Options, table: TableArgument) -> None:
    """Say what every cell needs, and what is stored already.

    Checkpoints, datasets, tokens, GPU-hours and disk; needs no GPU and no network. `all` counts what is left to do.
    """
    if table == "all":
        _refuse_selection(options.rows, options.columns, options.compared_at)
        show(_price_of_all(options), options.as_json)
    elif _is_of_signals(table):
        from atrl_bench.lab.signal.page import plan_signals

        _refuse_selection_of_signals(options)
        show(plan_signals(table, options.run_dir()), options.as_json)
    else:
        from atrl_bench.experiments.price import price_of

        show(price_of(options.plan(table)), options.as_json)


@shared(*TABLE)
def report(
    options: Options,
    table: TableArgument,
    problems: Annotated[
        int | None,
        typer.Option("--problems", min=1, help="show the answers to so many problems a number; default: all"),
    ] = None,
    credit: Annotated[
        bool, typer.Option("--credit", help="first compute the credit of every answer whose verdict changed")
    ] = False,
) -> None:
    """Render a table from the store, without running anything.

    `all` renders every table that something is stored of, every figure that can be drawn, the audit and the front page.
    """
    if table == "all":
        from atrl_bench.cli.all_tables import report_all

        _refuse_selection(options.rows, options.columns, options.seeds, options.compared_at)
        pages = report_all(options.run_dir(), max_problems=problems, with_credit=credit)
        show_text([str(page) for page in pages], "\n".join(f"Wrote {page}" for page in pages), options.as_json)
    elif _is_of_signals(table):
        from atrl_bench.lab.signal.page import render_signals

        _refuse_selection_of_signals(options)
        _show_table(render_signals(table, options.run_dir()), options)
    else:
        from atrl_bench.report.table_run import render

        _show_table(render(options.plan(table), max_problems=problems, with_credit=credit), options)


@shared("profile", "rollouts", "seeds", "compared_at", "out", "data_dir", "as_json")
def explain(
    options: Options,
    table: Annotated[str, typer.Argument(help="a table of `atrl-bench list tables`")],
    row: Annotated[str, typer.Argument(help="a row of it")],
    column: Annotated[str, typer.Argument(help="a column of it, or average")],
) -> None:
    """Say where one number comes from.

    Training, data, prompts, decoding, verdicts, interval, the published number beside it, and how to redo it.
    """
    from atrl_bench.report import explain as explanation

    show(explanation.explain(options.plan(table), row, column), options.as_json)


def _run(planned: Plan, options: Options) -> None:
    """Run a plan and print its table, or what it costs; what failed shows in the exit code."""
    from atrl_bench.experiments.memory_check import require_plan_fits
    from atrl_bench.experiments.price import price_of

    if options.dry_run:
        show(price_of(planned), options.as_json)
        return
    require_plan_fits(planned, options.where)
    require_consent(price_of(planned), options, is_generated=planned.profile.generated_data)
    if is_left_to_slurm(options):
        return
    from atrl_bench.cli import table_run

    result = table_run.run_table(planned, options.where, jobs=options.jobs, quiet=options.as_json)
    _show_table(result, options)
    if result.failures:
        raise typer.Exit(1)


def _is_of_signals(table: str) -> bool:
    from atrl_bench.lab.signal.tables import list_signal_tables

    return table in list_signal_tables()


def _run_signals(table: str, options: Options) -> None:
    """Measure what a table of signals lacks and print it, or say what that is."""
    from atrl_bench.lab.signal.page import plan_signals, run_signals

    _refuse_selection_of_signals(options)
    run_dir = options.run_dir()
    if options.dry_run:
        show(plan_signals(table, run_dir), options.as_json)
        return
    result = run_signals(table, run_dir, quiet=options.as_json)
    _show_table(result, options)
    if result.failures:
        raise typer.Exit(1)


def _refuse_selection_of_signals(options: Options) -> None:
    refused = (options.rows, options.columns, options.seeds, options.compared_at, options.on)
    if any(option is not None for option in refused):
        raise typer.BadParameter(
            "a table of signals takes no --rows, --columns, --seeds, --compared-at or --on;\n"
            "to measure others: atrl-bench signal --help"
        )


def _run_all(options: Options) -> None:
    cost = _price_of_all(options)
    if options.dry_run:
        show(cost, options.as_json)
        return
    run_dir, seeds = options.run_dir(quiet=True), seeds_of(options.seeds)
    require_consent(cost, options, is_generated=run_dir.profile.generated_data)
    if is_left_to_slurm(options):
        return
    from atrl_bench.cli.all_tables import run_all

    def announce(number: int, total: int, name: str) -> None:
        if not options.as_json:
            typer.echo(f"Table {number} of {total}: {name}")

    where, quiet = options.where, options.as_json
    result = run_all(run_dir, where, seeds=seeds, jobs=options.jobs, quiet=quiet, on_table=announce)
    show(result, options.as_json)
    if result.has_failures:
        raise typer.Exit(1)


def _show_table(result: TableRun, options: Options) -> None:
    from atrl_bench.report.text import print_table, render_json

    if options.as_json:
        typer.echo(render_json(result.table))
    else:
        print_table(result.table)
        show(result, as_json=False)


def _price_of_all(options: Options) -> Price:
    from atrl_bench.experiments.definition import list_tables
    from atrl_bench.experiments.plan import plan_table
    from atrl_bench.experiments.price import price_of_all

    def paper_hours() -> float:
        return _price_of_all(options.under_paper()).gpu_hours

    run_dir, seeds = options.run_dir(paper_hours=paper_hours), seeds_of(options.seeds)
    return price_of_all([plan_table(name, run_dir, seeds=seeds) for name in list_tables()])


def _refuse_selection(*options: str | None) -> None:
    if any(option is not None for option in options):
        raise typer.BadParameter(
            "all tables at once take no --rows, --columns or --compared-at,\nand their report no --seeds"
        )

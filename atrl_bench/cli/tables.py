"""The verbs that plan, run, render and explain tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, BadParameter, Exit, Option

from atrl_bench.cli.options import (
    ANSWERING,
    FOLDER,
    STARTING,
    WHERE,
    Options,
    complete_ablations,
    complete_columns,
    complete_rows,
    complete_tables,
    hours_of,
    names_of,
    seeds_of,
    with_options,
)
from atrl_bench.cli.printing import show, show_table
from atrl_bench.cli.start import starts_here

if TYPE_CHECKING:
    from atrl_bench.experiments.plan import Plan
    from atrl_bench.experiments.price import Price
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.report.table_run import TableRun

TABLE = (*FOLDER, *ANSWERING, "paper", "rollouts", "rows", "columns", "seeds", "compared_at")
RUN = (*TABLE, *WHERE, *STARTING, "jobs", "serve", "checkpoints", "report_to", "allow_code")
ALL, SELECTION = "all tables at once", ("rows", "columns", "compared_at")
TableArgument = Annotated[
    str, Argument(help="a table of `atrl-bench list tables`, or all", autocompletion=complete_tables)
]

POINT_HELP = "field=value[,value...] of the credit or the recipe; repeatable, for every combination"
Budget = Annotated[str | None, Option(help="hours of a GPU or a core at most: 2000h, 20m")]


def points(value: float | None) -> float | None:
    """The effect that was named; infinity and NaN are none."""
    if value is not None and not 0.01 <= value <= 100:
        raise BadParameter(f"{value} is not in the range 0.01<=x<=100.")
    return value


@with_options(*RUN)
def run_table(
    options: Options,
    table: TableArgument,
    design: Annotated[Path | None, Option(help="the file of a design, which `atrl-bench design` wrote")] = None,
    until: Annotated[
        Literal["decided"] | None, Option(help="decided: one seed more at a time, until --effect is shown or excluded")
    ] = None,
    effect: Annotated[float | None, Option(callback=points, help="points, with --until decided")] = None,
    budget: Budget = None,
) -> None:
    """Train the rows, evaluate the columns, write the report.

    The same command again resumes: whatever is in the store is not done twice.
    """
    if (until is None) != (effect is None) or (budget is not None and until is None):
        raise BadParameter("goes with --until decided, and that with it", param_hint="--effect")
    if design is not None:
        options = _as_designed(options, table, design)
    if effect is not None and (table == "all" or _is_of_signals(table, options)):
        raise BadParameter("takes one table that compares rows", param_hint="--until")
    if table == "all":
        _refuse(options, ALL, *SELECTION)
        _run_all(options)
    elif _is_of_signals(table, options):
        from atrl_bench.lab.signal.page import price_of_signals, run_signals

        run_dir = options.run_dir()
        if starts_here(price_of_signals(table, run_dir), options):
            _show_result(run_signals(table, run_dir, quiet=options.as_json), options)
    elif effect is not None:
        _refuse(options, "tables that are run until they are decided", "seeds")
        _run_until_decided(table, options, effect, hours_of(budget))
    else:
        _run(_planned_table(table, options), options)


def _as_designed(options: Options, table: str, path: Path) -> Options:
    from atrl_bench.lab.design import read_design

    _refuse(options, "designs", "rows", "columns", "seeds", "repeats")
    content = read_design(path, table)
    rows, columns = ",".join(content.rows), ",".join(content.columns)
    return replace(
        options, rows=rows, columns=columns, seeds=",".join(map(str, content.seeds)), repeats=content.repeats
    )


def _run_until_decided(table: str, options: Options, effect: float, budget: float | None) -> None:
    from atrl_bench.cli.table_runs import run_table as run
    from atrl_bench.experiments.memory_check import require_plan_fits
    from atrl_bench.experiments.price import price_of
    from atrl_bench.lab.decided import most_seeds, run_until_decided

    plan_of = _plans(table, options, options.run_dir())
    most = most_seeds(plan_of, budget)
    planned = plan_of(range(most))
    price = price_of(planned)
    if price.next == planned.command:  # which has all the seeds that may be taken
        price = replace(price, next="the same command without --dry-run")
    if not starts_here(price, options, require_fit=lambda: require_plan_fits(planned, options.where)):
        return
    result, decided = run_until_decided(
        plan_of,
        lambda plan: run(plan, options.where, jobs=options.jobs, quiet=options.as_json),
        effect,
        most,
        options.say,
    )
    if not options.as_json:
        _show_result(result, options)
    show(decided, options.as_json, failed=bool(result.failures))


@with_options(*(name for name in RUN if name != "compared_at"))
def ablate(
    options: Options,
    ablation: Annotated[
        str, Argument(help="an ablation of `atrl-bench list ablations`", autocompletion=complete_ablations)
    ],
    topk: Annotated[
        str | None, Option(help="hard truncation to this share of the tokens, or to several: 0.1,0.15")
    ] = None,
    set_: Annotated[list[str] | None, Option("--set", help=POINT_HELP)] = None,
) -> None:
    """Run an ablation, or single points of it.

    A point becomes a row of the ablation's table; what it is compared with is run too.
    """
    from atrl_bench.experiments.plan import plan_ablation

    settings = [*([] if topk is None else [f"topk={topk}"]), *(set_ or [])]
    _run(_planned(options, lambda run_dir: plan_ablation(ablation, run_dir, settings, **options.selection)), options)


@with_options(*TABLE)
def plan(options: Options, table: TableArgument) -> None:
    """Say what every cell needs, and what is stored already.

    Checkpoints, datasets, tokens, GPU-hours and disk; needs no GPU and no network. `all` counts what is left to do.
    """
    if table == "all":
        _refuse(options, ALL, *SELECTION)
        show(_price_of_all(options), options.as_json)
    elif _is_of_signals(table, options):
        from atrl_bench.lab.signal.page import price_of_signals

        show(price_of_signals(table, options.run_dir()), options.as_json)
    else:
        from atrl_bench.experiments.price import price_of

        show(price_of(_planned_table(table, options)), options.as_json)


@with_options(*TABLE)
def design(
    options: Options,
    effect: Annotated[float, Option(callback=points, help="points that a row has to be better by")],
    table: Annotated[
        str | None, Argument(help="a table of `atrl-bench list tables`", autocompletion=complete_tables)
    ] = None,
    tasks: Annotated[
        str | None, Option(help="in place of a table: GRPO with credit and without, on these tasks")
    ] = None,
    power: Annotated[float, Option(min=0.05, max=0.99, help="the chance to show them")] = 0.8,
    budget: Budget = None,
    seed_sd: Annotated[
        float | None, Option(min=0, help="points that a difference varies by between seeds; default: stored or printed")
    ] = None,
) -> None:
    """Say how many seeds and answers show an effect, and what one seed cannot.

    By the variances of what is stored here, else by printed ones; prices are those of `plan`. Runs nothing.
    """
    from atrl_bench.lab.design import design as designed

    names = names_of(tasks) or ()
    if (table is None) != bool(names):
        raise BadParameter("names a table, or --tasks in place of one", param_hint="table")
    result = designed(
        _plans(table, options, options.run_dir()) if table else _plans_of_tasks(names, options),
        effect,
        tasks=names,
        wanted=power,
        budget=hours_of(budget),
        seed_sd=None if seed_sd is None else seed_sd / 100,
    )
    show(result, options.as_json)


@with_options(*TABLE)
def report(
    options: Options,
    table: TableArgument,
    problems: Annotated[
        int | None,
        Option(min=1, help="show the answers to so many problems a number; default: all"),
    ] = None,
    credit: Annotated[
        bool, Option("--credit", help="first compute the credit of every answer whose verdict changed")
    ] = False,
) -> None:
    """Render a table from the store, without running anything.

    `all` renders every table that something is stored of, every figure that can be drawn, the audit and the front page.
    """
    if table == "all":
        from atrl_bench.cli.table_runs import report_all

        _refuse(options, ALL, *SELECTION, "seeds")
        pages = report_all(options.measured_dir(), max_problems=problems, with_credit=credit)
        show(pages, options.as_json)
    elif _is_of_signals(table, options):
        from atrl_bench.lab.signal.page import render_signals

        _show_result(render_signals(table, options.measured_dir()), options)
    else:
        from atrl_bench.report.table_run import render

        plan = _plans(table, options, options.measured_dir())(None)
        _show_result(render(plan, max_problems=problems, with_credit=credit), options)


@with_options(*(name for name in TABLE if name not in ("rows", "columns")))
def explain(
    options: Options,
    table: Annotated[str, Argument(help="a table of `atrl-bench list tables`", autocompletion=complete_tables)],
    row: Annotated[str, Argument(help="a row of it", autocompletion=complete_rows)],
    column: Annotated[str, Argument(help="a column of it, or average", autocompletion=complete_columns)],
) -> None:
    """Say where one number comes from.

    Training, data, prompts, decoding, verdicts, interval, the published number beside it, and how to redo it.
    """
    from atrl_bench.report.explain import explain as explanation

    show(explanation(_plans(table, options, options.measured_dir())(None), row, column), options.as_json)


def _planned_table(table: str, options: Options) -> Plan:
    return _planned(options, lambda run_dir: _plans(table, options, run_dir)(None))


def _plans(table: str, options: Options, run_dir: RunDir) -> Callable[[Sequence[int] | None], Plan]:
    """The table's plan under any training seeds; None stands for those of the options."""
    from atrl_bench.experiments.plan import plan_table

    chosen = options.selection | {"compared_at": options.compared_at}
    return lambda seeds: plan_table(table, run_dir, **chosen | ({} if seeds is None else {"seeds": seeds}))


def _plans_of_tasks(tasks: Sequence[str], options: Options) -> Callable[[Sequence[int] | None], Plan]:
    from atrl_bench.experiments.plan import plan_definition
    from atrl_bench.lab.design import definition_of_tasks

    _refuse(options, "designs without a table", "rows", "columns", "compared_at")
    definition, run_dir = definition_of_tasks(tasks), options.run_dir()
    return lambda seeds: plan_definition(definition, run_dir, seeds or seeds_of(options.seeds))


def _planned(options: Options, plan_in: Callable[[RunDir], Plan]) -> Plan:
    from atrl_bench.experiments.price import price_of

    return plan_in(options.run_dir(price_in=lambda run_dir: price_of(plan_in(run_dir))))


def _run(planned: Plan, options: Options) -> None:
    from atrl_bench.experiments.memory_check import require_plan_fits
    from atrl_bench.experiments.price import price_of

    if not starts_here(price_of(planned), options, require_fit=lambda: require_plan_fits(planned, options.where)):
        return
    from atrl_bench.cli.table_runs import run_table as run

    result = run(planned, options.where, jobs=options.jobs, quiet=options.as_json)
    _show_result(result, options)


def _is_of_signals(table: str, options: Options) -> bool:
    from atrl_bench.lab.signal.tables import list_signal_tables

    is_one = table in list_signal_tables()
    if is_one:
        _refuse(options, "tables of signals (other measurements: `atrl-bench signal`)", *SELECTION, "seeds", "on")
    return is_one


def _run_all(options: Options) -> None:
    price = _price_of_all(options)
    if not starts_here(price, options):
        return
    from atrl_bench.cli.table_runs import run_all

    seeds, quiet = seeds_of(options.seeds), options.as_json
    result = run_all(
        price.run_dir,
        options.where,
        tables=[name for name, _ in price.tables],
        seeds=seeds,
        jobs=options.jobs,
        quiet=quiet,
    )
    show(result, options.as_json, failed=result.has_failures)


def _show_result(result: TableRun, options: Options) -> None:
    show_table(result.table, options.as_json)
    if not options.as_json:
        show(result, as_json=False)
    if result.failures:
        raise Exit(1)


def _price_of_all(options: Options) -> Price:
    from atrl_bench.experiments.definition import OWN, list_tables
    from atrl_bench.experiments.plan import plan_table
    from atrl_bench.experiments.price import price_of_all

    names = list_tables(options.paper or OWN)

    def price_in(run_dir: RunDir) -> Price:
        return price_of_all([plan_table(name, run_dir, seeds=seeds_of(options.seeds)) for name in names])

    return price_in(options.run_dir(price_in=price_in))


def _refuse(options: Options, kind: str, *names: str) -> None:
    if given := [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None]:
        raise BadParameter(f"{kind} take no {' or '.join(given)}")

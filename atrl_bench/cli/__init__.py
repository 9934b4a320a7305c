"""The verbs of `atrl-bench`: each reads its options, calls one function, prints what came back.

Heavy imports wait until a verb runs, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from atrl_bench import __version__
from atrl_bench.errors import AtrlBenchError, StoreError

if TYPE_CHECKING:
    from atrl_bench.experiments.run import Outcome, Plan
    from atrl_bench.profiles import Profile

app = typer.Typer(
    name="atrl-bench",
    help="Train, evaluate and tabulate token credit for multimodal reasoning RL.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Start here: atrl-bench run-table main_7b",
)

ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="mini, smoke or paper; default: mini without a GPU, paper with one")
]
OutOption = Annotated[Path | None, typer.Option("--out", help="run folder; default: runs/<profile>")]
RowsOption = Annotated[str | None, typer.Option("--rows", help="only these rows, separated by commas")]
ColumnsOption = Annotated[str | None, typer.Option("--columns", help="only these columns, separated by commas")]
SeedsOption = Annotated[
    str | None, typer.Option("--seeds", help="training seeds, separated by commas; default: the table's own, or 0")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document instead of text")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="say what would run, and stop")]
DataOption = Annotated[
    Path | None, typer.Option("--data-dir", help="local parquet files, <dir>/<dataset>/<split>*.parquet")
]
CodeOption = Annotated[bool, typer.Option("--allow-code", help="run programs that the model writes, in isolation")]
PAPERS_JUDGE = "Qwen/Qwen2.5-72B-Instruct"
SCOPES = "all, or open: option letters are the rules' alone"
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="rows at a time; default: one a core without a GPU")
]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version and stop")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


# Tables ---------------------------------------------------------------------------------------------------------------


@app.command()
def run_table(
    table: Annotated[str, typer.Argument(help="a table of `atrl-bench list tables`, or all")],
    profile: ProfileOption = None,
    rows: RowsOption = None,
    columns: ColumnsOption = None,
    seeds: SeedsOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    jobs: JobsOption = None,
    allow_code: CodeOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train the rows, evaluate the columns, write the report.

    The same command again resumes: whatever is in the store is not done twice.
    """
    from atrl_bench.experiments import run

    _allow_code(allow_code)
    if table == "all":
        _no_selection(rows, columns)
        if dry_run:
            _show_plans(profile, seeds, out, data_dir, as_json)
        else:
            _run_all(profile, seeds, out, data_dir, jobs, as_json)
        return
    planned = _plan(table, profile, rows, columns, seeds, out, data_dir, quiet=as_json)
    if dry_run:
        _show_plan(planned, as_json)
        return
    _finish(run.run_table(planned, jobs=jobs, quiet=as_json), as_json)


@app.command()
def ablate(
    ablation: Annotated[str, typer.Argument(help="an ablation of `atrl-bench list ablations`")],
    topk: Annotated[
        str | None, typer.Option("--topk", help="hard truncation to this share of the tokens, or to several: 0.1,0.15")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="field=value[,value...] of the credit; repeatable")
    ] = None,
    profile: ProfileOption = None,
    rows: RowsOption = None,
    columns: ColumnsOption = None,
    seeds: SeedsOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    jobs: JobsOption = None,
    allow_code: CodeOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run an ablation, or single points of it.

    A point becomes a row of the ablation's table; what it is compared with is run too.
    """
    from atrl_bench.experiments import run
    from atrl_bench.experiments.ablation import ablate_plan

    _allow_code(allow_code)
    planned = ablate_plan(
        ablation,
        topk,
        set_ or [],
        profile=_profile(profile, quiet=as_json),
        workspace=out,
        rows=_names(rows),
        columns=_names(columns),
        seeds=_seeds(seeds),
        data_dir=data_dir,
    )
    if dry_run:
        _show_plan(planned, as_json)
        return
    _finish(run.run_table(planned, jobs=jobs, quiet=as_json), as_json)


@app.command()
def plan(
    table: Annotated[str, typer.Argument(help="a table of `atrl-bench list tables`, or all")],
    profile: ProfileOption = None,
    rows: RowsOption = None,
    columns: ColumnsOption = None,
    seeds: SeedsOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what every cell needs, and what is stored already.

    Checkpoints, datasets, tokens, GPU-hours and disk; needs no GPU and no network. `all` counts what is left to do.
    """
    if table == "all":
        _no_selection(rows, columns)
        _show_plans(profile, seeds, out, data_dir, as_json)
        return
    _show_plan(_plan(table, profile, rows, columns, seeds, out, data_dir, quiet=as_json), as_json)


@app.command()
def report(
    table: Annotated[str, typer.Argument(help="a table of `atrl-bench list tables`, or all")],
    problems: Annotated[
        int | None,
        typer.Option("--problems", min=1, help="show the answers to so many problems a number; default: all"),
    ] = None,
    profile: ProfileOption = None,
    rows: RowsOption = None,
    columns: ColumnsOption = None,
    seeds: SeedsOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Render a table from the store, without running anything.

    `all` renders every table that something is stored of, every figure that can be drawn, the audit and the front page.
    """
    from atrl_bench.experiments import run

    if table == "all":
        from atrl_bench.cli.all_tables import report_all

        _no_selection(rows, columns, seeds)
        pages = report_all(
            profile=_profile(profile, quiet=as_json), workspace=out, data_dir=data_dir, max_problems=problems
        )
        _show([str(page) for page in pages], "\n".join(f"Wrote {page}" for page in pages), as_json)
        return
    planned = _plan(table, profile, rows, columns, seeds, out, data_dir, quiet=as_json)
    _show_outcome(run.render(planned, max_problems=problems), as_json)


@app.command()
def explain(
    table: Annotated[str, typer.Argument(help="a table of `atrl-bench list tables`")],
    row: Annotated[str, typer.Argument(help="a row of it")],
    column: Annotated[str, typer.Argument(help="a column of it, or average")],
    profile: ProfileOption = None,
    seeds: SeedsOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where one number comes from.

    Training, data, prompts, decoding, verdicts, interval, the published number beside it, and how to redo it.
    """
    from atrl_bench.cli.printing import show
    from atrl_bench.report import explain as explanation

    planned = _plan(table, profile, None, None, seeds, out, data_dir, quiet=as_json)
    show(explanation.explain(planned, row, column), as_json)


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="a figure of `atrl-bench list figures`, or all")],
    task: Annotated[str | None, typer.Option("--task", help="only answers to this task")] = None,
    model: Annotated[str | None, typer.Option("--model", help="only answers of this model")] = None,
    problems: Annotated[int | None, typer.Option("--problems", min=1, help="of how many problems")] = None,
    judge_base_url: Annotated[
        str | None, typer.Option("--judge-base-url", help="OpenAI-compatible URL of a model that names error types")
    ] = None,
    judge_model: Annotated[str, typer.Option("--judge-model", help="model name at that URL")] = PAPERS_JUDGE,
    profile: ProfileOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a figure from a run folder, as SVG with its data as CSV."""
    from atrl_bench.cli.printing import show
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.report.figures import draw as figures
    from atrl_bench.report.front_page import write_index

    run_dir = RunDir.at(out, _profile(profile, quiet=as_json), data_dir)
    options: dict[str, Any] = {"task": task, "model": model, "num_problems": problems}
    if judge_base_url:
        from atrl_bench.grading.judge.judge import JudgeConfig

        options["judge"] = JudgeConfig(judge_base_url, judge_model)
    if name == "all":
        drawn = figures.draw_all(run_dir, **options)
    else:
        drawn = figures.DrawnFigures((figures.figure(name, run_dir, **options),), {})
    write_index(run_dir)  # the front page shows the figures
    show(drawn, as_json)


@app.command()
def audit(
    tables: Annotated[str | None, typer.Option("--tables", help="only these tables, separated by commas")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="print what is in order, too")] = False,
    profile: ProfileOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the paper's printed numbers against each other.

    Arithmetic, contradictions between tables, shares that no benchmark of that size can give, differences within noise.
    """
    from atrl_bench.analysis import audit as auditing
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.report import audit_page

    sections = auditing.audit(_names(tables))
    pages = audit_page.write_audit(sections, RunDir.at(out, _profile(profile, quiet=True)).reports)
    text = audit_page.audit_text(sections, everything=everything)
    _show(audit_page.audit_record(sections), f"{text}\n\nPage: {pages[0]}", as_json)


@app.command()
def judge(
    base_url: Annotated[
        str | None, typer.Argument(help="OpenAI-compatible URL of an LLM judge; without one, say who judges here")
    ] = None,
    model: Annotated[str, typer.Option("--model", help="model name at that URL")] = PAPERS_JUDGE,
    api_key_variable: Annotated[
        str, typer.Option("--api-key-variable", help="environment variable with the judge's key")
    ] = "JUDGE_API_KEY",
    scope: Annotated[Literal["all", "open"], typer.Option("--scope", help=SCOPES)] = "all",
    strict: Annotated[
        bool, typer.Option("--strict/--no-strict", help="refuse a judge that fails its calibration set")
    ] = True,
    rules: Annotated[bool, typer.Option("--none", help="from now on the rule grader alone decides")] = False,
    profile: ProfileOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose who judges the answers of a run folder.

    Every table and evaluation there asks this judge about what the rules cannot prove right. It is put to the test
    first; answers that are stored already are only graded again.
    """
    from atrl_bench.experiments import judge_choice
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.grading.judge.judge import JudgeConfig

    if rules and base_url:
        raise typer.BadParameter("give a URL or --none, not both")
    run_dir = RunDir.at(out, _profile(profile, quiet=True))
    if rules:
        record = judge_choice.drop_judge(run_dir)
    elif base_url:
        config = JudgeConfig(base_url, model, api_key_variable=api_key_variable, scope=scope, strict=strict)
        record = judge_choice.choose_judge(run_dir, config)
    else:
        record = judge_choice.judge_record(run_dir)
    _show(record, judge_choice.judge_text(record, run_dir), as_json)


# Trainings ------------------------------------------------------------------------------------------------------------


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="a recipe of `atrl-bench list recipes`, or the path of its YAML file")],
    credit: Annotated[str | None, typer.Option("--credit", help="a credit rule of `atrl-bench list credit`")] = None,
    schedule: Annotated[str | None, typer.Option("--schedule", help="strict or minibatch4")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="field=value of the recipe; repeatable")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="mini, a folder or a hub id; default: the profile's")
    ] = None,
    profile: ProfileOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="training seed")] = 0,
    out: OutOption = None,
    data_dir: DataOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train one recipe and print its checkpoint's folder.

    The same command again resumes.
    """
    from atrl_bench.experiments import train_command

    settings = _profile(profile, quiet=as_json)
    overrides = train_command.recipe_overrides(credit=credit, schedule=schedule, assignments=set_ or [])
    if dry_run:
        arguments = train_command.describe_training(recipe, overrides, profile=settings, model=model)
        _show(arguments, train_command.training_text(arguments), as_json)
        return
    result = train_command.train_recipe(
        recipe, overrides, profile=settings, model=model, seed=seed, workspace=out, data_dir=data_dir, quiet=as_json
    )
    _show(result, train_command.result_text(result), as_json)


@app.command()
def sweep(
    name: Annotated[str, typer.Argument(help="a sweep of `atrl-bench list sweeps`, or the path of its YAML file")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="field=value of every point; repeatable")] = None,
    profile: ProfileOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="training seed")] = 0,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train every point of a sweep over a recipe's fields.

    The same command again resumes; points that are trained already are not trained twice.
    """
    from atrl_bench.experiments import train_command

    overrides = train_command.recipe_overrides(credit=None, schedule=None, assignments=set_ or [])
    settings = _profile(profile, quiet=as_json)
    results = train_command.train_sweep(
        name, overrides, profile=settings, seed=seed, workspace=out, data_dir=data_dir, quiet=as_json
    )
    _show(results, train_command.sweep_text(results), as_json)


@app.command()
def key_steps(
    data: Annotated[str, typer.Argument(help="a training set, such as virl39k")],
    model: Annotated[str, typer.Option("--model", help="the name under which the model is served")],
    base_url: Annotated[str, typer.Option("--base-url", help="OpenAI-compatible URL that serves it")],
    num_parallel: Annotated[int, typer.Option("--num-parallel", min=1, help="requests at a time")] = 8,
    api_key_variable: Annotated[
        str, typer.Option("--api-key-variable", help="environment variable with the key")
    ] = "OPENAI_API_KEY",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="only the first problems")] = None,
    profile: ProfileOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a served model extract the key steps of a training set.

    StepGRPO rewards them. The same command again asks only for what is missing.
    """
    from atrl_bench.experiments import train_command
    from atrl_bench.models.chat_client import EndpointConfig

    endpoint = EndpointConfig(base_url, model, api_key_variable=api_key_variable, num_parallel=num_parallel)
    found = train_command.key_steps(
        data,
        endpoint,
        profile=_profile(profile, quiet=as_json),
        workspace=out,
        data_dir=data_dir,
        limit=limit,
        quiet=as_json,
    )
    _show(found, "\n".join(f"{name}: {value}" for name, value in found.items()), as_json)


# Evaluations ----------------------------------------------------------------------------------------------------------


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="mini, a checkpoint's folder, a hub id, or a served model's name")],
    tasks: Annotated[str, typer.Option("--tasks", help="tasks of `atrl-bench list tasks`, separated by commas")],
    repeats: Annotated[int | None, typer.Option("--repeats", min=1, help="N of Mean@N; default: the profile's")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="only the first problems of each task")] = None,
    frames: Annotated[
        int | None, typer.Option("--frames", min=2, help="frames of a video; the paper: 16, 32, 64")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="OpenAI-compatible URL that serves MODEL")] = None,
    num_parallel: Annotated[int, typer.Option("--num-parallel", min=1, help="requests at a time to a URL")] = 8,
    api_key_variable: Annotated[
        str, typer.Option("--api-key-variable", help="environment variable with the key of --base-url")
    ] = "OPENAI_API_KEY",
    judge_base_url: Annotated[
        str | None, typer.Option("--judge-base-url", help="OpenAI-compatible URL of an LLM judge")
    ] = None,
    judge_model: Annotated[str, typer.Option("--judge-model", help="model name at that URL")] = PAPERS_JUDGE,
    judge_api_key_variable: Annotated[
        str, typer.Option("--judge-api-key-variable", help="environment variable with the judge's key")
    ] = "JUDGE_API_KEY",
    judge_scope: Annotated[Literal["all", "open"], typer.Option("--judge-scope", help=SCOPES)] = "all",
    judge_strict: Annotated[
        bool, typer.Option("--judge-strict/--no-judge-strict", help="refuse a judge that fails its calibration set")
    ] = True,
    allow_code: CodeOption = False,
    profile: ProfileOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="seed of prompts and samples")] = 0,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate one model and print its scores.

    The same command again resumes. MODEL may be served elsewhere: give --base-url and the name it is served under.
    """
    from atrl_bench.evaluation.processes import launched
    from atrl_bench.experiments import evaluate_command
    from atrl_bench.grading.judge.judge import JudgeConfig
    from atrl_bench.models.chat_client import EndpointConfig

    _allow_code(allow_code)
    judge = None
    if judge_base_url:
        judge = JudgeConfig(
            judge_base_url,
            judge_model,
            api_key_variable=judge_api_key_variable,
            scope=judge_scope,
            strict=judge_strict,
        )
    endpoint = None
    if base_url:
        endpoint = EndpointConfig(base_url, model, api_key_variable=api_key_variable, num_parallel=num_parallel)
    records = evaluate_command.evaluate_model(
        model,
        _names(tasks) or [],
        evaluate_command.EvaluationOptions(repeats, limit, frames, judge, endpoint, seed),
        profile=_profile(profile, quiet=as_json or not launched().is_main),
        workspace=out,
        data_dir=data_dir,
        quiet=as_json or not launched().is_main,
    )
    if launched().is_main:
        _show(records, evaluate_command.scores_text(records), as_json)


@app.command()
def grade(
    file: Annotated[Path, typer.Argument(help="JSON lines with `response`, `gold`, perhaps `choices`, `kind`, ...")],
    metric: Annotated[
        str | None, typer.Option("--metric", help="score all lines by this metric: equal, anls, mra, ...")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Grade a file of answers and say why for each."""
    from atrl_bench.grading import answer_file

    graded = answer_file.grade_file(file, metric=metric)
    _show(asdict(graded), graded.text, as_json)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="a model, as `evaluate` takes it, or the key of a cell")],
    b: Annotated[str, typer.Argument(help="the model it is compared with")],
    task: Annotated[str, typer.Option("--task", help="tasks both were evaluated on, separated by commas")],
    metric: Annotated[str | None, typer.Option("--metric", help="such as acc@1,mean@8; default: all stored")] = None,
    profile: ProfileOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two evaluated models, problem by problem.

    Differences with intervals, the tests they come from, and what else differs between the two; answers nothing anew.
    """
    from atrl_bench.analysis.compare import compare_models
    from atrl_bench.cli.printing import show
    from atrl_bench.experiments.run_dir import RunDir

    run_dir = RunDir.at(out, _profile(profile, quiet=as_json), data_dir)
    show(compare_models(a, b, _names(task) or [], run_dir, metrics=_names(metric)), as_json)


@app.command()
def overlap(
    train: Annotated[str, typer.Argument(help="a training set, or a task")],
    tests: Annotated[str, typer.Argument(help="tasks of `atrl-bench list tasks`, separated by commas")],
    profile: ProfileOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find test problems in training data.

    By normalised text and by picture; tables of the run folder show the count.
    """
    from atrl_bench.analysis.contamination import overlap as find_overlap
    from atrl_bench.cli.printing import show
    from atrl_bench.experiments.run_dir import RunDir

    run_dir = RunDir.at(out, _profile(profile, quiet=as_json), data_dir)
    show(find_overlap(train, _names(tests) or [], run_dir), as_json)


# This machine and this folder -----------------------------------------------------------------------------------------


@app.command()
def status(profile: ProfileOption = None, out: OutOption = None, as_json: JsonOption = False) -> None:
    """Say what is done, what runs and what failed.

    Reads the store of a run folder alone, also while a run goes on.
    """
    from atrl_bench.experiments import progress
    from atrl_bench.experiments.run_dir import RunDir

    state = progress.read_status(RunDir.at(out, _profile(profile, quiet=True)))
    _show(state, progress.status_text(state), as_json)


@app.command()
def doctor(
    online: Annotated[bool, typer.Option("--online", help="also ask the hub whether it answers")] = False,
    judge_base_url: Annotated[str | None, typer.Option("--judge-base-url", help="also ask this judge")] = None,
    judge_model: Annotated[str | None, typer.Option("--judge-model", help="model name at that URL")] = None,
    profile: ProfileOption = None,
    out: OutOption = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a profile lacks on this machine, and the command that mends it."""
    from atrl_bench.experiments import doctor as physician
    from atrl_bench.experiments.run_dir import RunDir

    settings = _profile(profile, quiet=as_json)
    options = physician.Options(out, data_dir, judge_base_url, judge_model, online=online)
    checks = physician.doctor(settings, options)
    _show(
        physician.doctor_record(checks, settings),
        physician.doctor_text(checks, RunDir.at(out, settings, data_dir)),
        as_json,
    )
    if not physician.is_healthy(checks):
        raise typer.Exit(1)


@app.command()
def overhead(
    recipe: Annotated[str, typer.Option("--recipe", help="a recipe trained on rollouts")] = "grpo",
    credit: Annotated[str, typer.Option("--credit", help="the credit rule to pay for")] = "atrl",
    shape: Annotated[str | None, typer.Option("--shape", help="7b: random weights at that size, for a GPU")] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=1, help="rollouts measured of each")] = 5,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what the credit costs in a training step.

    Shares of generation, scoring, forward, backward, attention rows, graph and credit; medians.
    """
    from atrl_bench.analysis import overhead as cost

    settings = _profile(profile, quiet=as_json)
    record = cost.overhead(settings, recipe=recipe, credit=credit, shape=shape, rollouts=rollouts)
    _show(record, cost.overhead_text(record), as_json)


@app.command()
def export(
    form: Annotated[
        Literal["parquet", "jsonl", "scores", "eval-results", "manifest"],
        typer.Argument(help="samples as parquet or jsonl, scores as tables or .eval_results YAML, file digests"),
    ],
    to: Annotated[Path | None, typer.Option("--to", help="folder; default: exports in the run folder")] = None,
    check: Annotated[bool, typer.Option("--check", help="compare the folder with its manifest, write nothing")] = False,
    profile: ProfileOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write what a run folder holds for other programs."""
    from atrl_bench.cli.printing import show
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.report import exports

    run_dir = RunDir.at(out, _profile(profile, quiet=True))
    if check:
        if form != "manifest":
            raise typer.BadParameter("only a manifest can be checked", param_hint="--check")
        manifest = exports.check_manifest(run_dir.root)
        show(manifest, as_json)
        if manifest.differences:
            raise typer.Exit(1)
        return
    show(exports.export(run_dir, form, out=to), as_json)


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="tables, ablations, figures, recipes, sweeps, tasks, credit or profiles")
    ] = None,
    data_dir: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what there is: tables, figures, recipes, tasks and more."""
    from atrl_bench.cli import catalogue

    known = catalogue.read(kind, data_dir)
    _show(known, catalogue.text(known), as_json)


def main() -> NoReturn:
    """Run the command line; an error a user can act on ends with its own exit code and no traceback."""
    try:
        code = app(standalone_mode=False)
    except AtrlBenchError as error:
        _explain(error)
        code = error.exit_code
    except OSError as error:
        if error.filename is None:  # nothing that another folder mends
            raise
        _explain(_unusable(error))
        code = StoreError.exit_code
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("Stopped. What was finished is stored; the same command goes on from there.", err=True)
        code = 130
    except Exception as error:
        # click's own usage errors know how to print themselves and which exit code they have.
        if not hasattr(error, "show"):
            raise
        error.show()
        code = getattr(error, "exit_code", 2)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: AtrlBenchError) -> None:
    """Print an error in lines of a terminal; its next step, which may be a command, stays in one."""
    from atrl_bench.escape import folded

    for line in f"Error: {error}".splitlines():
        shown = [line] if line.startswith("Next: ") else folded(line, rest="  ")
        typer.echo("\n".join(shown), err=True)


def _unusable(error: OSError) -> StoreError:
    return StoreError(
        f"Cannot read or write {error.filename}.",
        why=f"{error.strerror}.",
        next_step="check that path, or use a folder you can write to with --out",
    )


def _profile(name: str | None, *, quiet: bool) -> Profile:
    from atrl_bench.profiles import default_profile, load_profile

    if name is None:
        name = default_profile()
        if name == "mini" and not quiet:
            typer.echo("No GPU here: profile mini, a tiny model on generated benchmarks.")
            typer.echo("The paper's own sizes: --profile paper")
    return load_profile(name)


def _allow_code(allowed: bool) -> None:
    """Let the processes of this command run programs that models write."""
    from atrl_bench.sandbox.isolation import PERMISSION

    if allowed:
        os.environ[PERMISSION] = "1"


def _plan(
    table: str,
    profile: str | None,
    rows: str | None,
    columns: str | None,
    seeds: str | None,
    out: Path | None,
    data_dir: Path | None,
    *,
    quiet: bool,
) -> Plan:
    from atrl_bench.experiments.run import plan_table

    return plan_table(
        table,
        profile=_profile(profile, quiet=quiet),
        workspace=out,
        rows=_names(rows),
        columns=_names(columns),
        seeds=_seeds(seeds),
        data_dir=data_dir,
    )


def _show_plan(planned: Plan, as_json: bool) -> None:
    from atrl_bench.experiments.cost_estimate import describe_plan, needs_text

    needs = describe_plan(planned)
    _show(needs, needs_text(needs), as_json)


def _show_plans(profile: str | None, seeds: str | None, out: Path | None, data_dir: Path | None, as_json: bool) -> None:
    from atrl_bench.experiments.cost_estimate import all_text, describe_all
    from atrl_bench.experiments.definition import list_tables

    plans = [_plan(name, profile, None, None, seeds, out, data_dir, quiet=True) for name in list_tables()]
    needs = describe_all(plans)
    _show(needs, all_text(needs), as_json)


def _no_selection(*options: str | None) -> None:
    if any(option is not None for option in options):
        raise typer.BadParameter("all tables at once take no --rows or --columns,\nand their report no --seeds")


def _show_outcome(outcome: Outcome, as_json: bool) -> None:
    from atrl_bench.report.text import print_table

    if as_json:
        typer.echo(outcome.json_text())
    else:
        print_table(outcome.table)
        typer.echo(outcome.summary())


def _finish(outcome: Outcome, as_json: bool) -> None:
    """Print a table that has been run; what failed shows in the exit code."""
    _show_outcome(outcome, as_json)
    if outcome.failures:
        raise typer.Exit(1)


def _run_all(
    profile: str | None, seeds: str | None, out: Path | None, data_dir: Path | None, jobs: int | None, as_json: bool
) -> None:
    from atrl_bench.cli.all_tables import run_all

    def say(number: int, total: int, name: str) -> None:
        if not as_json:
            typer.echo(f"Table {number} of {total}: {name}")

    everything = run_all(
        profile=_profile(profile, quiet=as_json),
        workspace=out,
        seeds=_seeds(seeds),
        data_dir=data_dir,
        jobs=jobs,
        quiet=as_json,
        on_table=say,
    )
    _show(everything.records(), everything.summary(), as_json)
    if everything.has_failures:
        raise typer.Exit(1)


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:  # a table of no rows would overwrite the one that is there
        raise typer.BadParameter(f"{text!r} names nothing.\nWrite one name or several, separated by commas.")
    return names


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    # A seed given twice would count its answers twice.
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise typer.BadParameter(
            f"{text!r} is no list of training seeds.\nWrite whole numbers, each once: 0,1,2", param_hint="--seeds"
        )
    return seeds


def _show(content: Any, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(content, indent=2, sort_keys=True, default=_plain) if as_json else text)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)

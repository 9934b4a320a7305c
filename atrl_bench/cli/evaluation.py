"""The verbs that evaluate and grade, choose a judge, compare models and look for contamination."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, BadParameter, Option

from atrl_bench.cli.options import (
    ANSWERING,
    COLUMNS_HELP,
    FOLDER,
    PAPERS_JUDGE,
    STARTING,
    JudgeModel,
    JudgePrices,
    JudgePrompt,
    Options,
    complete_row_models,
    complete_tasks,
    names_of,
    prices_of,
    with_options,
)
from atrl_bench.cli.printing import show, show_table
from atrl_bench.cli.start import starts_here

if TYPE_CHECKING:
    from atrl_bench.grading.judge.judge import JudgeConfig
    from atrl_bench.models.budget import Budget

TASKS = "tasks of `atrl-bench list tasks`, separated by commas"


@with_options("profile", "out", "as_json")
def judge(
    options: Options,
    base_url: Annotated[
        str | None, Argument(help="URL of an LLM judge, OpenAI-compatible; default: say who judges")
    ] = None,
    model: JudgeModel = PAPERS_JUDGE,
    api_key_variable: Annotated[str, Option(help="environment variable with the judge's key")] = "JUDGE_API_KEY",
    scope: Annotated[Literal["all", "open"], Option(help="open leaves option letters to the rules")] = "all",
    prompt: JudgePrompt = None,
    prices: JudgePrices = None,
    strict: Annotated[bool, Option(help="refuse a judge that fails its calibration")] = True,
    rules: Annotated[bool, Option("--none", help="from now on the rule grader alone decides")] = False,
) -> None:
    """Choose who judges the answers of a run folder.

    Every table and evaluation there asks this judge about what the rules cannot prove right. It is put to the test
    first; answers that are stored already are only graded again.
    """
    from atrl_bench.experiments import judge_choice
    from atrl_bench.grading.judge.judge import JudgeConfig
    from atrl_bench.settings import text_of

    if rules and base_url:
        raise BadParameter("give a URL or --none, not both")
    run_dir = options.run_dir(quiet=True)
    if rules:
        record = judge_choice.drop_judge(run_dir)
    elif base_url:
        criteria = None if prompt is None else text_of(prompt)
        config = JudgeConfig(
            base_url,
            model,
            api_key_variable=api_key_variable,
            scope=scope,
            strict=strict,
            criteria=criteria,
            prices=prices_of(prices),
        )
        record = judge_choice.choose_judge(run_dir, config)
    else:
        record = judge_choice.folder_judge(run_dir)
    show(record, options.as_json)


@with_options(*FOLDER, *ANSWERING, *STARTING, "seed", "gpus", "processes", "on", "serve", "allow_code")
def evaluate(
    options: Options,
    model: Annotated[str, Argument(help="mini, a checkpoint's folder, a hub id, or a served model's name")],
    tasks: Annotated[
        str, Option(help=f"{TASKS}, or your own: a .jsonl, .tsv or .parquet", autocompletion=complete_tasks)
    ],
    columns: Annotated[str | None, Option(help=COLUMNS_HELP)] = None,
    limit: Annotated[int | None, Option(min=1, help="only the first problems of each task")] = None,
    frames: Annotated[int | None, Option(min=2, help="frames of a video; the paper: 16, 32, 64")] = None,
    image: Annotated[
        str | None, Option(help="withhold the pictures: none, blank, noise, shuffled, blur:SIGMA, frozen, reordered")
    ] = None,
    base_url: Annotated[str | None, Option(help="OpenAI-compatible URL that serves MODEL")] = None,
    num_parallel: Annotated[int, Option(min=1, help="requests at a time to a URL")] = 8,
    api_key_variable: Annotated[str, Option(help="environment variable with the key of --base-url")] = "OPENAI_API_KEY",
    judge_base_url: Annotated[
        str | None, Option(help="URL of an LLM judge; default: the run folder's, see `atrl-bench judge`")
    ] = None,
    judge_model: JudgeModel = PAPERS_JUDGE,
    judge_prompt: JudgePrompt = None,
    judge_prices: JudgePrices = None,
    max_cost: Annotated[
        float | None, Option(min=0, help="stop when the answers of a URL took so many tokens, or so much by --prices")
    ] = None,
    prices: Annotated[
        str | None, Option(help="money for a million tokens of prompts and of answers: 0.15,0.60")
    ] = None,
) -> None:
    """Evaluate one model and print its scores.

    The same command again resumes. MODEL may be served elsewhere: give --base-url and the name it is served under.
    """
    from atrl_bench.engines.processes import launched
    from atrl_bench.experiments.evaluate_command import EvaluationOptions, evaluate_model
    from atrl_bench.experiments.price import price_of_evaluation
    from atrl_bench.models.budget import Budget
    from atrl_bench.models.chat_client import EndpointConfig

    if (max_cost is not None and not base_url) or (prices and max_cost is None):
        raise BadParameter("--max-cost is for --base-url, and --prices for --max-cost: what answers here costs hours")
    budget = None if max_cost is None else Budget(max_cost, prices_of(prices))
    judge = _judge(judge_base_url, judge_model, judge_prompt, judge_prices)
    endpoint = None
    if base_url:
        _require_served(options)
        endpoint = EndpointConfig(
            base_url, model, api_key_variable=api_key_variable, num_parallel=num_parallel, budget=budget
        )
    quiet = options.as_json or not launched().is_main
    run_dir = options.run_dir(quiet=quiet)
    if budget is not None and (judge := judge or run_dir.judge):
        judge = _paid(judge, budget, in_money=prices is not None)
    choice = EvaluationOptions(None, limit, frames, judge, endpoint, options.seed, image)
    names = _with_columns(names_of(tasks) or [], columns)
    if endpoint is not None:
        sizes = run_dir.profile.evaluation
        options.say(
            f"{model} is asked for at most {sizes.max_new_tokens:,} tokens at temperature {sizes.temperature:g}; "
            "images go as they are."
        )
    if not starts_here(price_of_evaluation(model, names, choice, run_dir), options):
        return
    scores = evaluate_model(model, names, choice, run_dir, options.where, quiet=quiet)
    if launched().is_main:
        from atrl_bench.report.evaluations import write_evaluations
        from atrl_bench.report.front_page import write_index

        page = write_evaluations(run_dir)
        show(scores, options.as_json)
        if budget is not None:
            options.say(f"Spent: {budget.text}.")
        if page is not None:
            write_index(run_dir)
            options.say(f"Report: {page}")


def _judge(base_url: str | None, model: str, prompt: str | None, prices: str | None) -> JudgeConfig | None:
    """The judge that the command names; None: that of the run folder."""
    from atrl_bench.grading.judge.judge import JudgeConfig
    from atrl_bench.settings import text_of

    if base_url:
        of_judge = prices_of(prices, "--judge-prices")
        return JudgeConfig(base_url, model, criteria=prompt and text_of(prompt), prices=of_judge)
    if prompt or prices:
        raise BadParameter("--judge-prompt and --judge-prices are for --judge-base-url; see `atrl-bench judge --help`")
    return None


def _paid(judge: JudgeConfig, budget: Budget, *, in_money: bool) -> JudgeConfig:
    """The judge, whose answers count in the budget."""
    if in_money and judge.prices is None:
        raise BadParameter(
            "--max-cost in money counts the judge, too: give --judge-prices, `atrl-bench judge --prices` of a "
            "folder's judge; 0,0 where it costs nothing"
        )
    return replace(judge, budget=budget.beside(judge.prices if in_money else None))


def _require_served(options: Options) -> None:
    """Refuse options that say something of a model that answers here."""
    if options.serve:
        raise BadParameter("--serve starts a server, --base-url names one that runs: give one of them")
    if options.on:
        raise BadParameter("what a server answers needs no cluster: leave out --on")
    if options.profile is None:
        raise BadParameter(
            "a served model has no sizes of its own here: give --profile paper (published benchmarks, answers of "
            "up to 4,096 tokens), mini (generated ones, 48 tokens), or your own, PATH.yaml with `base: paper`"
        )


def _with_columns(tasks: list[str], columns: str | None) -> list[str]:
    """The tasks, each table of the user's own with what its columns are called."""
    from atrl_bench.data.own import with_columns
    from atrl_bench.evaluation.tasks import is_table

    if columns is None:
        return tasks
    if not any(map(is_table, tasks)):
        raise BadParameter("--columns is for a benchmark of your own: --tasks mine.jsonl")
    return [(with_columns(name, columns) or name) if is_table(name) else name for name in tasks]


@with_options("as_json")
def grade(
    options: Options,
    file: Annotated[Path, Argument(help="JSON lines with `response`, `gold`, perhaps `choices`, `metric`, ...")],
) -> None:
    """Grade a file of answers and say why for each."""
    from atrl_bench.grading import answer_file

    show(answer_file.grade_file(file), options.as_json)


@with_options(*FOLDER, *ANSWERING, "paper")
def compare(
    options: Options,
    a: Annotated[
        str,
        Argument(
            help="TABLE:ROW[:SEED], a model as for `evaluate`, or a cell's key", autocompletion=complete_row_models
        ),
    ],
    b: Annotated[str, Argument(help="what it is compared with", autocompletion=complete_row_models)],
    task: Annotated[
        str | None,
        Option(help="tasks that both answered; default: those of a row's table", autocompletion=complete_tasks),
    ] = None,
    image: Annotated[str | None, Option(help="compare what both lose without pictures: none, shuffled, ...")] = None,
) -> None:
    """Compare two evaluated models, problem by problem.

    Differences with intervals, the tests they come from, and what else differs between the two; answers nothing anew.
    Of several evaluations of a model, options such as --temperature say which are meant.
    """
    from atrl_bench.report.compare import compare_models

    show_table(compare_models(a, b, names_of(task), options.measured_dir(), image=image), options.as_json)


@with_options(*FOLDER)
def overlap(
    options: Options,
    train: Annotated[str, Argument(help="a training set, or a task")],
    tests: Annotated[str, Argument(help=TASKS)],
) -> None:
    """Find test problems in training data.

    By normalised text and by picture; tables of the run folder show the count.
    """
    from atrl_bench.analysis.contamination.overlap import overlap as find_overlap

    show(find_overlap(train, names_of(tests) or [], options.run_dir()), options.as_json)

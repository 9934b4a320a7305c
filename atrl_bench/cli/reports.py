"""The verbs that write figures, the audit and exports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, BadParameter, Option

from atrl_bench.cli.options import FOLDER, PAPERS_JUDGE, JudgeModel, Options, names_of, with_options
from atrl_bench.cli.printing import show


@with_options(*FOLDER)
def figure(
    options: Options,
    name: Annotated[str, Argument(help="a figure of `atrl-bench list figures`, or all")],
    task: Annotated[str | None, Option(help="only answers to this task")] = None,
    model: Annotated[str | None, Option(help="only answers of this model")] = None,
    problems: Annotated[int | None, Option(min=1, help="of how many problems")] = None,
    judge_base_url: Annotated[
        str | None, Option(help="OpenAI-compatible URL of a model that names error types")
    ] = None,
    judge_model: JudgeModel = PAPERS_JUDGE,
) -> None:
    """Draw a figure from a run folder, as SVG with its data as CSV."""
    from atrl_bench.report.figures import draw as figures
    from atrl_bench.report.front_page import write_index

    run_dir = options.measured_dir()
    choice: dict[str, Any] = {"task": task, "model": model, "num_problems": problems}
    if judge_base_url:
        from atrl_bench.grading.judge.judge import JudgeConfig

        choice["judge"] = JudgeConfig(judge_base_url, judge_model)
    one = () if name == "all" else (figures.figure(name, run_dir, **choice),)
    drawn = figures.DrawnFigures(one, {}) if one else figures.draw_all(run_dir, **choice)
    write_index(run_dir)  # the front page shows the figures
    show(drawn, options.as_json)


@with_options("profile", "paper", "out", "as_json")
def audit(
    options: Options,
    tables: Annotated[str | None, Option(help="only these tables, separated by commas")] = None,
    across: Annotated[bool, Option("--across", help="every paper's numbers against every other's")] = False,
    everything: Annotated[bool, Option("--everything", help="print what is in order, too")] = False,
) -> None:
    """Check a paper's printed numbers against each other, and against those of other papers.

    Arithmetic, contradictions between tables and papers, shares that no benchmark of that size can give, differences
    within noise, protocols that differ. Without --paper: the paper that this package reproduces.
    """
    from atrl_bench.experiments.definition import OWN
    from atrl_bench.papers import across as between
    from atrl_bench.papers import audit as auditing
    from atrl_bench.papers.paper import load_paper
    from atrl_bench.report import analysis_pages

    if across and (options.paper or tables):
        raise BadParameter("--across is about every paper: leave out --paper and --tables")
    paper = None if across else load_paper(options.paper or OWN)
    sections = between.across() if paper is None else auditing.audit(paper, names_of(tables))
    pages = analysis_pages.write_audit(sections, options.run_dir(quiet=True).reports, paper)
    text = analysis_pages.audit_text(sections, paper, everything=everything)
    show({"sections": sections}, options.as_json, text=f"{text}\n\nPage: {pages[0]}")


@with_options(*FOLDER)
def export(
    options: Options,
    form: Annotated[
        Literal["parquet", "jsonl", "scores", "inspect", "card"],
        Argument(help="answers, scores or model cards; see docs/commands.md"),
    ],
    to: Annotated[Path | None, Option(help="folder; default: exports in the run folder")] = None,
) -> None:
    """Write what a run folder holds for other programs."""
    from atrl_bench.report import exports

    show(exports.export(options.measured_dir(), form, out=to), options.as_json)


@with_options(*FOLDER, "paper")
def push(
    options: Options,
    model: Annotated[str, Argument(help="TABLE:ROW, TABLE:ROW:SEED, or the folder of a checkpoint")],
    repository: Annotated[str, Argument(help="a model repository on the hub: OWNER/NAME")],
    public: Annotated[bool, Option("--public/--private", help="whether everybody may read a new one")] = False,
) -> None:
    """Send a checkpoint to the hub.

    With it goes a model card: its scores with their intervals, its recipe, and how to redo them.
    """
    from atrl_bench.report.model_card import push as publish

    show(publish(model, repository, options.measured_dir(), private=not public), options.as_json)


@with_options(*FOLDER)
def verify(
    options: Options,
    repair: Annotated[
        bool, Option("--repair", help="drop damaged answers, so that run-table asks for them again")
    ] = False,
) -> None:
    """Say what of a run folder is whole: answers, checkpoints and pages.

    What is not is named with the command that mends it.
    """
    from atrl_bench.report.verify import verify as look

    verification = look(options.run_dir(quiet=True), repair=repair)
    show(verification, options.as_json, failed=not verification.is_whole)

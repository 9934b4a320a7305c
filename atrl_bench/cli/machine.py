"""The verbs that look at this machine, bring to it what it lacks, and have it serve a model."""

from __future__ import annotations

import shlex
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, BadParameter, Exit, Option, echo

from atrl_bench.cli.options import FOLDER, Options, complete_tables, with_options
from atrl_bench.cli.printing import show

if TYPE_CHECKING:
    from atrl_bench.experiments.fetch import StockItem


@with_options("profile", "out", "as_json")
def status(options: Options) -> None:
    """Say what is done, what runs and what failed.

    Reads the store of a run folder alone, also while a run goes on.
    """
    from atrl_bench.experiments.progress import read_status

    show(read_status(options.run_dir(quiet=True)), options.as_json)


@with_options(*FOLDER)
def doctor(
    options: Options,
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

    diagnosis = examine(options.run_dir())
    show(diagnosis, options.as_json, failed=not diagnosis.is_healthy)


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
    from atrl_bench.report.analysis_pages import write_gpu_check

    check = gpu_check(size)
    paths = write_gpu_check(check, options.out or Path("runs") / (options.profile or usual[size]))
    show(check, options.as_json)
    options.say("\n".join(f"Wrote {path}" for path in paths))
    if check.failures:
        raise Exit(1)


@with_options("profile", "as_json")
def overhead(
    options: Options,
    recipe: Annotated[str, Option(help="a recipe trained on rollouts")] = "grpo",
    credit: Annotated[str, Option(help="the credit rule to pay for")] = "atrl",
    shape: Annotated[str | None, Option(help="3b or 7b: random weights that large, on a GPU")] = None,
    tokens: Annotated[int | None, Option(min=1, help="random responses of this length, with --shape")] = None,
    rollouts: Annotated[int, Option(min=1, help="rollouts measured of each")] = 5,
) -> None:
    """Measure what the credit costs in a training step.

    Shares of generation, scoring, forward, backward, attention rows, graph and credit; medians.
    """
    from atrl_bench.analysis.overhead import overhead as measured

    record = measured(
        options.load_profile(), recipe=recipe, credit=credit, shape=shape, tokens=tokens, rollouts=rollouts
    )
    show(record, options.as_json)


@with_options(*FOLDER, "paper", "dry_run")
def fetch(
    options: Options,
    name: Annotated[str, Argument(help="a table, task, training set or model of the hub, or all")],
    update: Annotated[bool, Option("--update", help="take the latest commits of its repositories from now on")] = False,
) -> None:
    """Download what a table, a task or a training set needs.

    Pinned commits, checked files, archives unpacked; the same command again goes on, and does nothing once all is here.
    """
    from atrl_bench.experiments import fetch as stock

    def announce(item: StockItem) -> None:
        options.say(f"Fetching {item.kind} {item.name} ...")

    run_dir = options.run_dir()
    listed = stock.take_stock(name, run_dir, update=update)
    if not options.dry_run and listed.is_fetchable:
        if not options.as_json:
            show(replace(listed, next=""), as_json=False)
            echo("")
        listed = stock.fetch(listed, run_dir, announce)
    show(listed, options.as_json, failed=not (options.dry_run or listed.is_complete))


@with_options("profile", "out", "gpus", "dry_run", "as_json")
def serve(
    options: Options,
    model: Annotated[str, Argument(help="mini, a hub id, or a folder such as a trained row's checkpoint")],
    port: Annotated[int | None, Option(min=1, max=65535, help="default: one that is free")] = None,
) -> None:
    """Serve a model by vLLM, with the flags that decide its number.

    Says where it listens once it answers, and stops it on Ctrl-C. Precision, image sizes and lengths are the profile's.
    With --dry-run it prints vLLM's own command, and stops.
    """
    from atrl_bench.engines.model_server import find_vllm, serve_command
    from atrl_bench.experiments.cost import gpus_to_serve
    from atrl_bench.experiments.serving import flags_for, serving
    from atrl_bench.models.local import find_model

    run_dir = options.run_dir(model=model, quiet=True)
    devices = options.machine.devices_for(gpus_to_serve(run_dir.profile))
    if options.dry_run:
        ref = find_model(model)
        command = serve_command("vllm", ref.folder, ref.name, flags_for(ref, run_dir, devices), port or 8000)
        show({"command": command}, options.as_json, text=shlex.join(command))
        return
    options.say(f"Starting vLLM {find_vllm().version} for {model}.")
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with serving(model, run_dir, devices, f"serve {model}", port=port) as server:
            ready = {"model": server.name, "base_url": server.base_url, "log": server.log}
            show(ready, options.as_json, text=f"Serving {server.name} at {server.base_url}\nLog: {server.log}")
            options.say("Ctrl-C stops it.")
            server.process.wait()
            raise server.died()
    except KeyboardInterrupt:
        echo(f"Stopped serving {model}.", err=options.as_json)


@with_options("paper", "data_dir", "as_json")
def list_(
    options: Options,
    kind: Annotated[
        str | None,
        Argument(help="tables, ablations, papers, figures, recipes, tasks, rules, profiles, or rows TABLE"),
    ] = None,
    table: Annotated[str | None, Argument(help="with rows: of which table", autocompletion=complete_tables)] = None,
) -> None:
    """List what there is: tables, rows, papers, figures, recipes, tasks, rules and more."""
    from atrl_bench.cli.catalogue import read, read_rows

    if (kind == "rows") != (table is not None):
        raise BadParameter("rows, and nothing else, are of a table: atrl-bench list rows main_7b")
    show(read(kind, options.data_dir) if table is None else read_rows(table), options.as_json)

"""The verb that brings models and data to this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, echo

from atrl_bench.cli.options import Options, with_options
from atrl_bench.cli.printing import show

if TYPE_CHECKING:
    from atrl_bench.experiments.fetch import StockItem


@with_options("profile", "out", "data_dir", "dry_run", "as_json")
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
        if not options.as_json:
            echo(f"Fetching {item.kind} {item.name} ...")

    run_dir = options.run_dir()
    listed = stock.take_stock(name, run_dir, update=update)
    if not options.dry_run and listed.is_fetchable:
        if not options.as_json:
            show(replace(listed, next=""), as_json=False)
            echo("")
        listed = stock.fetch(listed, run_dir, announce)
    show(listed, options.as_json)
    if not options.dry_run and not listed.is_complete:
        raise Exit(1)

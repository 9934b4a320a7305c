"""What costs hours is started by somebody who has seen its price: shown, then asked about, unless `--yes` says so."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from atrl_bench.cli.printing import show
from atrl_bench.errors import NotConfirmedError

if TYPE_CHECKING:
    from atrl_bench.cli.options import Options
    from atrl_bench.experiments.price import Price


def require_consent(price: Price, options: Options, *, is_generated: bool) -> None:
    """Return where a command may start and its downloads have room. Of the processes of one launch the first asks."""
    if not price.must_ask(is_generated=is_generated) or int(os.environ.get("RANK", "0")) > 0:
        return
    from atrl_bench.experiments.memory_check import require_space

    if not options.as_json:
        show(replace(price, next=""), as_json=False)
    require_space(price.download_gb)
    if options.yes:
        return
    if options.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NotConfirmedError(
            "This was not started: somebody has to see its price first, and there is no terminal to ask at.",
            next_step=f"atrl-bench {shlex.join([*sys.argv[1:], '--yes'])}",
        )
    if not typer.confirm("Start?"):
        typer.echo("Nothing was started.")
        raise typer.Exit(1)

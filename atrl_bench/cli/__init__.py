"""The verbs of `atrl-bench`: each reads its options, calls one function, prints what came back.

Heavy imports wait until a verb runs, so that `--help` answers at once.
"""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, NoReturn

import typer

from atrl_bench.cli import evaluation, machine, reports, tables, training
from atrl_bench.engines.stop import EXIT_CODE, Stopped, end_when_asked
from atrl_bench.errors import AtrlBenchError, MissingDataError, StoreError
from atrl_bench.results.files import room_for
from atrl_bench.version import __version__

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="atrl-bench",
    context_settings=HELP,
    help="Train, evaluate and tabulate token credit for multimodal reasoning RL.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Start here: atrl-bench run-table main_7b",
)
STOPPED = 130  # what a shell gives a command that Ctrl-C ended
# In the order of `--help`.
VERBS = {
    "run-table": tables.run_table,
    "ablate": tables.ablate,
    "plan": tables.plan,
    "design": tables.design,
    "fetch": machine.fetch,
    "report": tables.report,
    "explain": tables.explain,
    "figure": reports.figure,
    "audit": reports.audit,
    "judge": evaluation.judge,
    "train": training.train,
    "key-steps": training.key_steps,
    "signal": training.signal,
    "mismatch": training.mismatch,
    "evaluate": evaluation.evaluate,
    "serve": machine.serve,
    "grade": evaluation.grade,
    "compare": evaluation.compare,
    "overlap": evaluation.overlap,
    "status": machine.status,
    "doctor": machine.doctor,
    "overhead": machine.overhead,
    "export": reports.export,
    "push": reports.push,
    "verify": reports.verify,
    "list": machine.list_,
}
for _name, _verb in VERBS.items():
    app.command(_name, context_settings=HELP)(_verb)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version and stop")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line; an error a user can act on ends with its own exit code and no traceback."""
    try:
        end_when_asked()
        code = app(standalone_mode=False)
    except AtrlBenchError as error:
        _explain(error)
        code = error.exit_code
    except ModuleNotFoundError as error:  # what `atrl-bench-light` leaves out
        if error.name is None or error.name.startswith("atrl_bench"):
            raise
        _explain(_not_installed(error.name))
        code = MissingDataError.exit_code
    except OSError as error:
        if error.filename is None and not room_for(error):  # nothing that another folder mends
            raise
        _explain(_unusable(error))
        code = StoreError.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except Exception as error:
        # click's own usage errors know how to print themselves and which exit code they have.
        if not hasattr(error, "show"):
            raise
        error.show()
        code = getattr(error, "exit_code", 2)
    except Stopped:
        code = EXIT_CODE
    if code in (STOPPED, EXIT_CODE):  # typer returns the first for Ctrl-C
        saved = "last update" if code == EXIT_CODE else "last saved rollout"
        typer.echo(f"\nStopped. Every stored answer is kept, and every training up to its {saved}.", err=True)
        typer.echo(f"Next, to go on: {shlex.join(['atrl-bench', *sys.argv[1:]])}", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: AtrlBenchError) -> None:
    """Print an error in lines of a terminal; its next step, which may be a command, stays in one."""
    from atrl_bench.escape import folded

    for line in f"Error: {error}".splitlines():
        lines = [line] if line.startswith("Next: ") else folded(line, rest="  ")
        typer.echo("\n".join(lines), err=True)


def _not_installed(module: str) -> MissingDataError:
    what = f"This command needs {module.partition('.')[0]}, which is not installed here."
    return MissingDataError(what, next_step="pip install atrl-bench, or atrl-bench-light[report] for reports alone")


def _unusable(error: OSError) -> StoreError:
    if then := room_for(error):  # such a write fails without the name of its file
        what = f"Cannot write {error.filename}." if error.filename else "Cannot write all of it."
        why = f"{error.strerror}. What was written before is intact."
        return StoreError(what, why=why, next_step=then)
    then = "check that path, or use a folder you can write to with --out"
    return StoreError(f"Cannot read or write {error.filename}.", why=f"{error.strerror}.", next_step=then)

"""The verbs of `atrl-bench`: each reads its options, calls one function, prints what came back.

A verb's module is imported when it is asked for, and what it needs when it runs.
"""

from __future__ import annotations

import gc
import io
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from atrl_bench.engines.stop import EXIT_CODE, Stopped, end_when_asked
from atrl_bench.errors import AtrlBenchError, MissingDataError, StoreError
from atrl_bench.results.files import room_for
from atrl_bench.version import __version__

HELP = {"help_option_names": ["-h", "--help"]}
STOPPED = 130  # what a shell gives a command that Ctrl-C ended
# The module of each verb, in the order of `--help`.
VERBS = {
    "run-table": "tables",
    "ablate": "tables",
    "plan": "tables",
    "design": "tables",
    "fetch": "machine",
    "report": "tables",
    "explain": "tables",
    "figure": "reports",
    "audit": "reports",
    "judge": "evaluation",
    "train": "training",
    "key-steps": "training",
    "signal": "training",
    "mismatch": "training",
    "evaluate": "evaluation",
    "serve": "machine",
    "grade": "evaluation",
    "compare": "evaluation",
    "overlap": "evaluation",
    "status": "machine",
    "doctor": "machine",
    "overhead": "machine",
    "export": "reports",
    "push": "reports",
    "verify": "reports",
    "list": "machine",
}
# They answer from files and the store, in a second of which the garbage collector would take a tenth.
READING = {"plan", "design", "report", "explain", "status", "list"}


def verb(name: str) -> Callable[..., None]:
    module = import_module(f"atrl_bench.cli.{VERBS[name]}")
    function: Callable[..., None] = getattr(module, "list_" if name == "list" else name.replace("-", "_"))
    return function


def app(*verbs: str) -> typer.Typer:
    """The command line with these verbs, by default all: each is read with its options, of which there are many."""
    program = typer.Typer(
        name="atrl-bench",
        context_settings=HELP,
        help="Train, evaluate and tabulate token credit for multimodal reasoning RL.",
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog="Start here: atrl-bench run-table main_7b",
    )
    program.callback(invoke_without_command=True)(_root)
    for name in verbs or VERBS:
        program.command(name, context_settings=HELP)(verb(name))
    return program


def _root(version: Annotated[bool, typer.Option("--version", help="print the version and stop")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line; an error a user can act on ends with its own exit code and no traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # as stderr does: Latin-1 has no dash and no ellipsis
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        end_when_asked()
        verbs = [word for word in sys.argv[1:2] if word in VERBS]
        if READING.issuperset(verbs):  # none stands for help
            gc.set_threshold(500_000)
        code = app(*verbs)(standalone_mode=False)
    except AtrlBenchError as error:
        _explain(error)
        code = error.exit_code
    except ModuleNotFoundError as error:  # what `atrl-bench-light` leaves out
        if error.name is None or error.name.startswith("atrl_bench"):
            raise
        what = f"This command needs {error.name.partition('.')[0]}, which is not installed here."
        then = "pip install atrl-bench, or atrl-bench-light[report] for reports alone"
        _explain(MissingDataError(what, next_step=then))
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


def _unusable(error: OSError) -> StoreError:
    if then := room_for(error):  # such a write fails without the name of its file
        what = f"Cannot write {error.filename}." if error.filename else "Cannot write all of it."
        why = f"{error.strerror}. What was written before is intact."
        return StoreError(what, why=why, next_step=then)
    then = "check that path, or use a folder you can write to with --out"
    return StoreError(f"Cannot read or write {error.filename}.", why=f"{error.strerror}.", next_step=then)

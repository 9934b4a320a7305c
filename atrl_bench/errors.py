"""What a caller can do about a failure, one class each.

AtrlBenchError            base: says what happened, why, and the next command to type
├── UnknownNameError      a name that does not exist (table, recipe, task, row, column, rule): pick a near one
├── UnguardedMainError    a script without `if __name__ == "__main__":` around what it runs: put it there
├── NotConfirmedError     a run of hours that nobody has agreed to: read its price, then add --yes
├── InvalidFileError      a YAML or data file with a wrong field or type: edit that file
├── MissingDataError      a dataset, checkpoint or model that is not on this machine: fetch or make it
│   └── NotFetchedError   one that the hub has, or should have: fetch it
├── MachineTooSmallError  a training that does not fit devices, memory or disk: take more, or train less
├── StoreError            the result store cannot be opened or written: free space, unlock, upgrade
├── PluginError           another installed package adds something that cannot be used: mend or remove it
└── EndpointError         a model or judge server that does not answer: start it, then run the same command again
    ├── RefusedError      a request that it does not take as it is: leave the problem out, or change what it allows
    └── BudgetSpentError  one that was to cost no more: the same command goes on, and may cost as much again
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object, as Python shows one that has no words of its own


class AtrlBenchError(Exception):
    """An error a user can act on; `exit_code` is what the command line returns for it."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", next_step: str = "") -> None:
        self.what, self.why, self.next_step = what, why, next_step
        super().__init__("\n".join(part for part in (what, why, next_step and f"Next: {next_step}") if part))

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: not by its arguments, which differ from class to class."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[AtrlBenchError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> AtrlBenchError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


def reason_of(error: BaseException) -> str:
    """In one line why something failed, the same in every run: no addresses of objects, no folders."""
    if isinstance(error, AtrlBenchError):
        return error.what
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.strerror}: {os.path.basename(os.fsdecode(error.filename))}"
    first = _ADDRESS.sub("", text).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


@contextmanager
def told(what: str, next_step: str) -> Iterator[None]:
    """What fails in somebody else's code is an error of ours, which says where; ours pass as they are."""
    try:
        yield
    except AtrlBenchError:
        raise
    except Exception as error:
        raise AtrlBenchError(what, why=reason_of(error) + _line_of(error), next_step=next_step) from error


def _line_of(error: Exception) -> str:
    """Where in a file of the user's own it came up: in none of ours, of Python or of what is installed."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    others = (os.path.dirname(__file__) + os.sep, os.path.dirname(os.__file__) + os.sep, "<")
    own = [(file, line) for file, line in frames if not file.startswith(others) and "-packages" not in file]
    return f" ({os.path.basename(own[-1][0])}, line {own[-1][1]})" if own else ""


class UnknownNameError(AtrlBenchError):
    """A name that is not known; the message carries the nearest known ones."""

    exit_code = 2

    def __init__(self, kind: str, name: str, known: Iterable[str], *, next_step: str = "atrl-bench list") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = difflib.get_close_matches(name, self.known, n=3, cutoff=0.5)
        why = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(self.known) or 'none'}."
        super().__init__(f"Unknown {kind} {name!r}.", why=why, next_step=next_step)


class UnguardedMainError(AtrlBenchError):
    """A script that its own worker processes begin anew, since they import it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            why="Worker processes import the main script, as every one of multiprocessing does.",
            next_step="put what the script runs under `if __name__ == '__main__':`",
        )


class NotConfirmedError(AtrlBenchError):
    """A run that costs hours, started where nobody can be asked."""

    exit_code = 2


class BudgetError(AtrlBenchError):
    """What was asked for does not fit into the budget that was given for it."""

    exit_code = 2


class InvalidFileError(AtrlBenchError):
    """A file whose content is not what its reader expects."""

    exit_code = 2


class MissingDataError(AtrlBenchError):
    """Something that has to be on this machine and is not."""


class NotFetchedError(MissingDataError):
    """Something that the hub has, or should have, and that was not fetched yet."""


class MachineTooSmallError(AtrlBenchError):
    """A training that this machine does not hold; the message says what would fit."""


class StoreError(AtrlBenchError):
    """The result store cannot be opened, read or written."""


class PluginError(AtrlBenchError):
    """Something that another installed package adds and that cannot be used; the message names the package."""


class EndpointError(AtrlBenchError):
    """A model or judge endpoint that does not answer as its protocol says."""


class RefusedError(EndpointError):
    """A request that a server does not take as it is, a prompt too long or a picture too small, in its words."""


class BudgetSpentError(EndpointError):
    """What an endpoint's answers may cost is spent."""

    exit_code = 3

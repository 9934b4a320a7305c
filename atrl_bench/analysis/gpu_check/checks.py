"""One check after the other within a budget of time: each passes, fails or is skipped, and none stops the others."""

from __future__ import annotations

import math
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

CheckState = Literal["passed", "failed", "skipped"]
LEAST_SHARE = 0.01  # of the budget; a check that has less time left is not begun


@dataclass(frozen=True)
class Measured:
    """What a check measured: `value` passes at or below `limit`; without a limit it is a measurement alone."""

    value: float
    unit: str
    limit: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)  # constants of a cost estimate that follow from it
    wrong: str = ""  # what is wrong with it beside its value


@dataclass(frozen=True)
class CheckResult:
    """How a check ended."""

    name: str
    state: CheckState
    seconds: float
    reason: str = ""  # why it failed or was skipped
    value: float | None = None
    unit: str = ""
    limit: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)


class SkipCheckError(Exception):
    """A check that does not apply here; the message says why."""


class _OutOfTimeError(BaseException):
    """The whole has taken as long as it may; no library on the way takes it for an error of its own."""


def run_checks(checks: Mapping[str, Callable[[], Measured]], budget: float) -> Iterator[CheckResult]:
    """Yield the result of each check as soon as it is there; all of them end within `budget` seconds."""
    end = time.monotonic() + budget
    for name, check in checks.items():
        yield _result(name, check, end - time.monotonic(), budget)


def _result(name: str, check: Callable[[], Measured], left: float, budget: float) -> CheckResult:
    if left < LEAST_SHARE * budget:
        return CheckResult(name, "skipped", 0.0, f"no time left of {budget:.0f} s")
    started = time.monotonic()
    try:
        with _at_most(left):
            measured = check()
    except SkipCheckError as error:
        return CheckResult(name, "skipped", time.monotonic() - started, str(error))
    except _OutOfTimeError:
        return CheckResult(name, "failed", time.monotonic() - started, f"not finished within the {budget:.0f} s of all")
    # Whatever breaks on a machine that nobody has seen is a finding, and the next check may still tell something.
    except Exception as error:
        details = {"traceback": _traceback(error)}
        return CheckResult(name, "failed", time.monotonic() - started, _message(error), details=details)
    return _judged(name, measured, time.monotonic() - started)


def _judged(name: str, measured: Measured, seconds: float) -> CheckResult:
    value, limit = measured.value, measured.limit
    reason = measured.wrong
    if not math.isfinite(value):
        reason = f"the value is {value}"
    elif not reason and limit is not None and value > limit:
        reason = f"{value:.3g} is above the limit of {limit:.3g}"
    state: CheckState = "failed" if reason else "passed"
    rates = measured.rates if state == "passed" else {}
    finite = value if math.isfinite(value) else None  # JSON has no other numbers
    return CheckResult(name, state, seconds, reason, finite, measured.unit, limit, measured.details, rates)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Stop the block after so many seconds, as soon as the interpreter is back from whatever library it is in."""
    if threading.current_thread() is not threading.main_thread():  # signals reach no other
        yield
        return

    def stop(*_: Any) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _message(error: Exception) -> str:
    """Return an error in one line, without the name of whose machine it is."""
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"{type(error).__name__}: {first}".replace(str(Path.home()), "~")[:300]


def _traceback(error: Exception) -> list[str]:
    """Return where an error came from, by the names of files without their folders."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]

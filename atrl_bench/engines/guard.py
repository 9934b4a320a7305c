"""Runs a program that ends when whoever started this ends: `python -m atrl_bench.engines.guard PROGRAM ...`.

Standard input is a pipe that only the starter holds. When it closes, whether the starter wanted that or was killed, the
program and all that it started are told to end, and killed if they do not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

PATIENCE = 20.0  # seconds that a program has to end by itself


def main(command: list[str]) -> int:
    """The exit code of the program, as soon as nothing of it is left."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: _signal(process, signal.SIGTERM))
    threading.Thread(target=_end_with_starter, args=(process,), daemon=True).start()
    code = process.wait()
    _signal(process, signal.SIGKILL)  # what it left behind
    return code if code >= 0 else 128 - code


def _end_with_starter(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1):  # nobody writes; a buffered reader would be locked when this process ends first
        pass
    _signal(process, signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What tests hand to worker processes, which have to be able to import it."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atrl_bench.engines.devices import Devices, Machine
from atrl_bench.errors import UnknownNameError


def read_json(text: str, devices: Devices) -> None:
    json.loads(text)


def call(item: tuple[Callable[[Devices], None], str], devices: Devices) -> None:
    item[0](devices)


def sleep(seconds: float, devices: Devices) -> None:
    time.sleep(seconds)


def wait_for_a_sleeper(told: str) -> None:
    """Be the process that waits for a worker which tells its number and then sleeps."""
    from atrl_bench.engines.local import Demand, side_by_side

    next(side_by_side(_tell_and_sleep, [(told, Demand(0, 0))], Machine(), 1))


def _tell_and_sleep(told: str, devices: Devices) -> None:
    Path(told).write_text(str(os.getpid()))
    time.sleep(600)


def die(log: str, devices: Devices) -> None:
    """Write down that it was begun, and die."""
    with open(log, "a") as file:
        file.write("begun\n")
    os.kill(os.getpid(), 9)


def die_once(log: str, devices: Devices) -> None:
    if not os.path.exists(log):
        die(log, devices)


def write(path: str, devices: Devices) -> None:
    """Write down where this is, and what was sent along."""
    Path(path).write_text(f"{os.environ['ATRL_BENCH_PLACE']} {os.environ['ATRL_BENCH_SAID']}")


def fail_oddly(text: str, devices: Devices) -> None:
    class OddError(Exception):
        """Of a kind that cannot be pickled."""

    raise OddError(text)


def die_until(log: str, count: int) -> int:
    """Die so many times, then return how often."""
    deaths = len(Path(log).read_text().splitlines()) if os.path.exists(log) else 0
    if deaths < count:
        die(log, Devices())
    return deaths


def sleep_once(log: str, seconds: float) -> str:
    if os.path.exists(log):
        return "awake"
    Path(log).touch()
    time.sleep(seconds)
    return "slept"


def decode_at_last(path: str, *arguments: Any) -> Any:
    """Decode a video, in the third process that is asked to."""
    from atrl_bench.models import video

    die_until(f"{path}.deaths", 2)
    return video.decode_quietly(path, *arguments)


def name_nothing(name: str, devices: Devices) -> None:
    raise UnknownNameError("credit rule", name, ["atrl"], next_step="atrl-bench list rules")

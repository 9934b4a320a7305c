"""What tests hand to worker processes, which have to be able to import it."""

from __future__ import annotations

import json
import os
import time

from atrl_bench.engines.devices import Devices


def read_json(text: str, devices: Devices) -> None:
    json.loads(text)


def sleep(seconds: float, devices: Devices) -> None:
    time.sleep(seconds)


def die(code: int, devices: Devices) -> None:
    os._exit(code)

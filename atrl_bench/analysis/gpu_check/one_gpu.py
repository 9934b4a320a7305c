"""One GPU for this process, chosen before torch looks for them."""

from __future__ import annotations

import os

from atrl_bench.engines.devices import VISIBLE


def use_one_gpu() -> None:
    """Let this process see the first of its GPUs alone: a trainer would spread over all of them.

    The driver reads the variable once, when torch or a library on top of it first asks for GPUs.
    """
    os.environ[VISIBLE] = os.environ.get(VISIBLE, "0").partition(",")[0]

"""Credit where it is due: recipes, benchmarks and tables of anchor-token reinforcement learning (AT-RL).

`atrl_bench.frame(run_dir)` gives the scores of a run folder as a DataFrame.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from atrl_bench.version import __version__

if TYPE_CHECKING:
    from atrl_bench.report.frame import frame


__all__ = ["__version__", "frame"]


def __getattr__(name: str) -> Any:
    if name == "frame":  # looked up on first use: the command line's `--help` loads none of it
        return import_module("atrl_bench.report.frame").frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

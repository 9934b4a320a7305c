"""How much memory a piece of code takes at its most.

The standard library counts the most since the process began, and a new process begins with its parent's: below that
any growth passes for none.
"""

import gc
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parent  # where a program of its own finds this file


def most_held() -> int:
    """Bytes of memory that this process held at most."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


def count_anew() -> int:
    """What is held now, from where `most_held` counts again."""
    Path("/proc/self/clear_refs").write_text("5")
    return most_held()


@contextmanager
def taking_less_than(num_bytes: int) -> Iterator[None]:
    """The block may at no moment hold so many bytes more than before it."""
    before = count_anew()
    yield
    assert most_held() - before < num_bytes


@contextmanager
def leaving_less_than(num_bytes: int) -> Iterator[None]:
    """After the block, objects that it made hold fewer bytes.

    Not the resident set: once a test before has freed 30 MB, glibc keeps 20 MB of short-lived megabytes for itself.
    """
    tracemalloc.start()
    try:
        yield
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < num_bytes
    finally:
        tracemalloc.stop()

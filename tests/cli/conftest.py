"""What tests of the command line share: a command that is given in this process."""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple
from unittest.mock import patch

import pytest

from atrl_bench import cli


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def atrl_bench(monkeypatch, capsys, tmp_path) -> Callable[..., Ended]:
    """Return a function that gives a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["atrl-bench", *map(str, arguments)])
        with patch.dict(os.environ), pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(ended.value.code, *capsys.readouterr())

    return run

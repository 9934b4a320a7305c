"""A training as a process of its own, for tests that kill it: graded by a coin, as in `conftest.py`.

What reads its data is a process of its own, which imports this file: what is large is imported where it is used.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def trained(recipe: str, base: str, data: str, out: str, profile: str) -> None:
    from conftest import CoinPool, CoinReward  # the folder of a program is the first place where Python looks

    from atrl_bench.training import pairs, rollouts
    from atrl_bench.training.rewards.registry import ANSWER_REWARDS, AnswerReward

    rollouts.GradingPool = pairs.GradingPool = CoinPool
    ANSWER_REWARDS["typed"] = AnswerReward(CoinReward, 0.0, "a coin")
    train_by(json.loads(recipe), base, data, out, profile)


def killed(awaited: str, count: int, seconds: float, *training: str) -> None:
    """Train, and kill this process so long after a folder is there, or a file with so many lines."""
    path = Path(awaited)

    def watch() -> None:
        while not path.is_dir() and not (path.is_file() and len(path.read_text().splitlines()) >= count):
            time.sleep(0.005)
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    trained(*training)


def train_by(fields: dict[str, Any], base: str, data: str, out: str, profile: str) -> Any:
    """Train the recipe of that name with these other fields, and return what a training returns."""
    from atrl_bench.profiles import Profile
    from atrl_bench.training.recipe import load_recipe
    from atrl_bench.training.run import train

    recipe, sizes = load_recipe(fields.pop("name"), **fields), Profile.model_validate_json(profile)
    return train(recipe, profile=sizes, base_model=base, data_dir=Path(data), out=Path(out), seed=0)


if __name__ == "__main__":
    killed(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])

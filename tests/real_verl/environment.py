"""Install verl into this interpreter's environment, what its tests here need, and this package without its own needs.

`tox -e verl` runs it. By hand, in a new environment: python tests/real_verl/environment.py

verl wants a transformers below the one that this package is written for, so nothing that this package asks for may be
installed with it. `atrl_bench.credit` needs torch, numpy and pymetis alone; TRL is there to be compared with.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VERL = "verl[verl-core]==0.9.1"
# Three signs: two would be content with a build for CPUs, which torchvision from the index does not fit.
TORCH = ("torch===2.13.0", "torchvision==0.28.0")
CREDIT = ("numpy>=2", "pymetis>=2025.2")
# What a recipe and a profile are read with, to write verl's configuration from.
RECIPES = ("pydantic>=2.9", "pyyaml>=6")
# What the reward grades with.
GRADER = ("math-verify>=0.9", "pebble>=5", "rapidfuzz>=3.9", "httpx>=0.27,<0.29")
TESTS = ("trl>=1.16,<1.17", "pytest>=8.3", "scikit-learn>=1.5")
PROJECT = Path(__file__).parents[2]


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    _pip(VERL, *TORCH, *CREDIT, *RECIPES, *GRADER, *TESTS)
    _pip("--no-deps", str(PROJECT))
    subprocess.run([sys.executable, "-c", "import verl; print('verl', verl.__version__)"], check=True)

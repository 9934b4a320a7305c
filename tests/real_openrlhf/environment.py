"""Install what OpenRLHF's policy worker imports, and this package without its own needs.

`tox -e openrlhf` runs it. By hand, in a new environment: python tests/real_openrlhf/environment.py

OpenRLHF asks for flash-attn, which is compiled for GPUs; without it and vLLM it is installed with what is left.
"""

import subprocess
import sys
from pathlib import Path

OPENRLHF = "openrlhf==0.11.2"
# What it asks for, as far as its worker imports it.
NEEDS = ("transformers==5.15.0", "deepspeed==0.19.6", "ray[default]==2.55.0", "torch>=2.9", "torchvision", "torchdata")
NEEDS += ("accelerate", "datasets", "peft", "torchmetrics", "optree>=0.15.0", "einops", "pylatexenc", "tqdm", "pillow")
CREDIT = ("numpy>=2", "pymetis>=2025.2")
TESTS = ("pytest>=8.3",)
PROJECT = Path(__file__).parents[2]


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    _pip(*NEEDS, *CREDIT, *TESTS)
    _pip("--no-deps", OPENRLHF, str(PROJECT))

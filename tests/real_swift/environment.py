"""Install ms-swift into this interpreter's environment, what its tests need, and this package without its own needs.

`tox -e swift` runs it. By hand, in a new environment: python tests/real_swift/environment.py

ms-swift wants a TRL, a transformers and a PEFT below those that this package is written for.
"""

import subprocess
import sys
from pathlib import Path

SWIFT = "ms-swift==4.6.0"
# What it imports and does not ask for.
BESIDE = ("torch>=2.9", "torchvision", "qwen_vl_utils", "msgspec")
CREDIT = ("numpy>=2", "pymetis>=2025.2")
TESTS = ("pytest>=8.3",)
PROJECT = Path(__file__).parents[2]


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    _pip(SWIFT, *BESIDE, *CREDIT, *TESTS)
    _pip("--no-deps", str(PROJECT))
    subprocess.run([sys.executable, "-c", "import swift; print('ms-swift', swift.__version__)"], check=True)

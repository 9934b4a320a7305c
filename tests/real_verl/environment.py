"""Install verl by the two commands of docs/other_trainers.md into this environment, and what its tests here need.

`tox -e verl` runs it. By hand, in a new environment: python tests/real_verl/environment.py

Two words of those commands are others here: verl without vLLM, which the tests have no GPU for, and this checkout in
place of a release.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "other_trainers.md"
WORDS = {"verl[vllm]==0.9.1": "verl[verl-core]==0.9.1", "atrl-bench": str(PROJECT)}
# Three signs: two would be content with a build for CPUs, which torchvision from the index does not fit.
TORCH = ("torch===2.13.0", "torchvision==0.28.0")
TESTS = ("trl>=1.16,<1.17", "pytest>=8.3", "scikit-learn>=1.5")


def documented_commands() -> list[list[str]]:
    """Return the words after `pip install` of the page's commands."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## verl\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^pip install (.+)$", section, re.MULTILINE)
    commands = [[WORDS.get(word, word) for word in shlex.split(line)] for line in lines]
    changed = [word for command in commands for word in command if word in WORDS.values()]
    if len(commands) != 2 or changed != list(WORDS.values()):
        raise ValueError(f"{PAGE} has other commands than these two are for: {lines}")
    return commands


if __name__ == "__main__":
    verl, ours = documented_commands()
    for command in ([*verl, *TORCH], ours, TESTS):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *command], check=True)
    subprocess.run([sys.executable, "-c", "import verl; print('verl', verl.__version__)"], check=True)

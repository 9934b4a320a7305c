"""Build the wheel of `atrl-bench-light` into a folder: the same package, that asks for what grading and reports need.

    python environments/light.py dist
    pip install --find-links dist atrl-bench-light            # `grade`, `list`, `status`, `verify`: 160 MB
    pip install --find-links dist 'atrl-bench-light[report]'  # also `report`, `compare`, `audit`, `plan`: 560 MB
    pip install --find-links dist 'atrl-bench-light[credit]'  # also `atrl_bench.credit`, by torch

Its modules are those of `atrl-bench`: an environment has one of the two.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SHIPPED = ("tasks", "recipes", "reports")
GRADE = ["httpx", "huggingface_hub", "math-verify", "numpy", "packaging", "pebble", "psutil", "pydantic", "pyyaml"]
GRADE += ["rapidfuzz", "rich", "sacrebleu", "typer"]
REPORT = ["jinja2", "matplotlib", "pandas", "pillow", "pyarrow", "scipy", "wordcloud"]
NEEDS = {"grade": GRADE, "report": REPORT, "credit": ["pymetis", "torch"]}
DESCRIPTION = (
    "Grading, reports and credit of atrl-bench, without what trains and samples; an environment has one of the two."
)
TEMPLATE = """\
build-system = {{requires = ["hatchling>=1.26"], build-backend = "hatchling.build"}}
[project]
name = "atrl-bench-light"
version = {version}
description = {description}
readme = {{text = {description}, content-type = "text/markdown"}}
requires-python = {python}
license = "Apache-2.0"
license-files = ["LICENSE"]
dependencies = {grade}
[project.optional-dependencies]
report = {report}
credit = {credit}
[project.scripts]
atrl-bench = "atrl_bench.cli:main"
[tool.hatch.build.targets.wheel]
packages = ["atrl_bench"]
exclude = {exclude}
[tool.hatch.build.targets.wheel.force-include]
tasks = "atrl_bench/_shipped/tasks"
recipes = "atrl_bench/_shipped/recipes"
reports = "atrl_bench/_shipped/reports"
"""


def light_project() -> str:
    """Its pyproject.toml: version and ranges are those of the full distribution."""
    content = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    full, wheel = content["project"], content["tool"]["hatch"]["build"]["targets"]["wheel"]
    ranges = {re.split(r"[^\w-]", need)[0]: need for need in full["dependencies"]}
    needs = {use: [ranges[name] for name in names] for use, names in NEEDS.items()}
    version = re.findall(r'"(\d.*)"', (PROJECT / "atrl_bench" / "version.py").read_text(encoding="utf-8"))[0]
    values = {
        "version": version,
        "description": DESCRIPTION,
        "python": full["requires-python"],
        "exclude": wheel["exclude"],
        **needs,
    }
    return TEMPLATE.format(**{name: json.dumps(value) for name, value in values.items()})


def build(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for part in ("atrl_bench", *SHIPPED):
            shutil.copytree(PROJECT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PROJECT / "LICENSE", tree)
        (tree / "pyproject.toml").write_text(light_project(), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder.resolve())]
        subprocess.run([*pip, str(tree)], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]))

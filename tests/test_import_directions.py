"""The paper's plug-and-play claim as an import graph: the objective never sees the credit rule's insides."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import atrl_bench

PACKAGE = Path(atrl_bench.__file__).parent
LEAVES = {"errors", "resources", "profiles", "digests"}
# What a trainer shares with an evaluation: how a prompt looks, how an answer is sampled, read and graded.
SHARED = ("answers", "grading", "prompts", "decoding", "models", "video", "positions", "endpoint_client")
ALLOWED = {
    "errors": set(),
    "resources": set(),
    "profiles": {"errors", "resources"},
    "digests": set(),
    "credit": set(),
    "results": LEAVES,
    "evaluation": LEAVES | {"results"},
    "training": LEAVES | {"credit"} | {f"evaluation.{part}" for part in SHARED},
    "mini": LEAVES | {"evaluation.prompts"},
    "engines": LEAVES | {"credit", "training"},
    "tables": LEAVES | {"credit", "evaluation", "training", "results", "mini", "engines"},
    "cli": LEAVES | {"credit", "evaluation", "training", "results", "mini", "engines", "tables"},
}


def imports_of(path: Path) -> set[str]:
    """Return the modules of ours that the file imports, without the package's own name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        ours = {name.removeprefix("atrl_bench.") for name in names if name.startswith("atrl_bench.")}
        found |= ours - {"__version__"}
    return found


def area_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_area_may(path):
    area = area_of(path)
    if area in ("__init__", "__main__", "_shipped"):
        return
    allowed = ALLOWED[area] | {area}
    for module in imports_of(path):
        assert any(module == ok or module.startswith(f"{ok}.") for ok in allowed), f"{area} imports {module}"


def test_nothing_imports_the_command_line():
    assert not [path for path in PACKAGE.rglob("*.py") if "cli" in imports_of(path) and area_of(path) != "__main__"]


@pytest.mark.parametrize(
    "module",
    ["cli", "profiles", "results.store", "results.statistics", "tables.definition", "evaluation.answers"],
)
def test_reading_modules_import_no_torch(module):
    program = f"import sys, atrl_bench.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

"""Other packages that are hostile or broken: they raise, shadow or say nothing, and the command says which it was."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CODE = {
    "raises": "raise ValueError('not today')\n",
    "leaves": "import sys\nsys.exit(3)\n",
    "has no such name": "other = 1\n",
    "is no Python": "def (:\n",
}


def installed(folder: Path, group: str, name: str, value: str, code: str) -> Path:
    """A folder with an installed package that adds `name` to a group."""
    about = folder / "hostile-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[atrl_bench.{group}]\n{name} = {value}\n")
    (folder / "hostile.py").write_text(code)
    return folder


def run(folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n" + "\n".join(program)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)


COMMAND = "from atrl_bench.cli import main; sys.argv[1:] = ['list', 'rules']; main()"
LOAD = """
from atrl_bench.errors import PluginError
from atrl_bench.plugins import load_plugin
try:
    load_plugin('rules', 'sharper')
except PluginError as error:
    print(error)
"""


@pytest.mark.parametrize("code", CODE.values(), ids=CODE.keys())
def test_a_package_whose_code_is_broken_is_named_and_only_where_it_is_used(code, tmp_path) -> None:
    folder = installed(tmp_path, "rules", "sharper", "hostile:rule", code)
    done = run(folder, LOAD)
    assert "Package hostile is installed, and its entry point sharper" in done.stdout, done.stderr
    assert "pip uninstall hostile" in done.stdout


def test_a_package_cannot_take_a_name_of_ours(tmp_path) -> None:
    folder = installed(tmp_path, "rules", "uniform", "hostile:rule", "raise SystemError('it was run')\n")
    done = run(folder, COMMAND)
    assert done.returncode != 0
    assert "which atrl-bench has itself" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert "it was run" not in done.stderr


def test_a_package_that_hangs_hangs_no_command_that_does_not_use_it(tmp_path) -> None:
    folder = installed(tmp_path, "rules", "sharper", "hostile:rule", "import time\ntime.sleep(1000)\n")
    done = run(folder, COMMAND)
    assert done.returncode == 0
    assert "package hostile: no description" in done.stdout
    assert re.search(r"atrl +the anchor-token credit", done.stdout)

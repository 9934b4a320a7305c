"""`tox -e extras`: every extra of pyproject.toml can be installed, by the resolver alone, for each Python of the
classifiers, and without one also within the versions of environments/cpu.txt."""

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
TRIED = PROJECT.parent / "environments" / "cpu.txt"
LANGUAGE = "Programming Language :: Python :: "


def main() -> int:
    project = tomllib.loads(PROJECT.read_text())["project"]
    versions = [line.removeprefix(LANGUAGE) for line in project["classifiers"] if line.startswith(LANGUAGE)]
    failed = 0
    for version in versions:
        for extra in (None, *project["optional-dependencies"]):
            chosen = ["--constraints", str(TRIED)] if extra is None else ["--extra", extra]
            command = ["uv", "pip", "compile", "--quiet", "--python-version", version, *chosen, str(PROJECT)]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
            failed += done.returncode != 0
            packages = dict(line.split("==", 1) for line in done.stdout.splitlines() if "==" in line)
            named = [name for name in ("torch", "transformers", "vllm") if name in packages]
            found = ", ".join(f"{name} {packages[name]}" for name in named)
            print(f"Python {version}, {extra or 'within environments/cpu.txt'}: {found or done.stderr}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

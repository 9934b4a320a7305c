"""`tox -e release`: all that is looked at before a release. The tests themselves are `tox`, `tox -e light,extras`.

python tests/release.py FOLDER
"""

import re
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
MOST_MB = 10
OF_A_CHECKOUT = (".ci/", ".git", ".dockerignore")


def run(*command: str | Path, where: Path = ROOT) -> str:
    print("$", *command, flush=True)
    return subprocess.run(list(map(str, command)), cwd=where, check=True, capture_output=True, text=True).stdout


def version_everywhere(folder: Path) -> str:
    """The version of the package, the citation and the changelog, which are one."""
    named = {
        "package": re.findall(r'^__version__ = "(.+)"$', (ROOT / "atrl_bench/version.py").read_text(), re.MULTILINE),
        "citation": re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE),
        "changelog": re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[:1],
    }
    assert len({tuple(version) for version in named.values()}) == 1, named
    return f"{named['package'][0]} in package, citation and changelog"


def citation(folder: Path) -> str:
    return run(Path(sys.executable).parent / "cffconvert", "--validate", "--infile", "CITATION.cff").strip()


def distributions(folder: Path) -> str:
    run(sys.executable, "-m", "build", "--outdir", folder / "dist")
    run(sys.executable, ROOT / "environments" / "light.py", folder / "dist")
    files = sorted((folder / "dist").iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    sizes = {file.name: file.stat().st_size / 1e6 for file in files}
    assert all(size <= MOST_MB for name, size in sizes.items() if name.endswith(".whl")), sizes
    return ", ".join(f"{name} {size:.1f} MB" for name, size in sizes.items())


def description(folder: Path) -> str:
    """The long description of each wheel has no link that an index could not follow."""
    for wheel in (folder / "dist").glob("*.whl"):
        with ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            text = str(HeaderParser().parsestr(archive.read(name).decode()).get_payload())
        addresses = re.findall(r"\]\(([^)\s]+)\)", text)
        assert all(address.startswith("https://") for address in addresses), addresses
    return "every link is absolute"


def sdist(folder: Path) -> str:
    """The sdist has every file of the repository but for what belongs to a checkout alone."""
    (file,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(file) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run("git", "ls-files").split("\n")[:-1]
    missing = [name for name in tracked if name not in packed and not name.startswith(OF_A_CHECKOUT)]
    assert not missing, missing
    return f"{len(packed)} files"


def clean_install(folder: Path) -> str:
    """The wheel in an empty environment, within the versions that were tried, does the main job."""
    python = folder / "clean" / "bin" / "python"
    venv.create(folder / "clean", with_pip=True, clear=True)
    (wheel,) = (folder / "dist").glob("atrl_bench-*.whl")
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "environments" / "cpu.txt", wheel)
    run(python, "-m", "pip", "check")
    run(python.parent / "atrl-bench", "run-table", "main_7b", "--profile", "smoke", where=folder)
    page = folder / "runs" / "smoke" / "reports" / "main_7b.html"
    return f"{page.stat().st_size} bytes of page"


def site(folder: Path) -> str:
    run(sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder / "site")
    return f"{len(list((folder / 'site').rglob('index.html')))} pages"


CHECKS: tuple[Callable[[Path], str], ...] = (
    version_everywhere,
    citation,
    distributions,
    description,
    sdist,
    clean_install,
    site,
)


def main() -> int:
    folder, failed = Path(sys.argv[1]).resolve(), 0
    folder.mkdir(parents=True, exist_ok=True)
    for check in CHECKS:
        try:
            said = check(folder)
        except (AssertionError, OSError, subprocess.CalledProcessError) as error:
            failed += 1
            said = f"FAILED: {getattr(error, 'stderr', '') or error}"
        print(f"{check.__name__.replace('_', ' ')}: {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

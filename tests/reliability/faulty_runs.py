"""Commands of one run folder, each given again after every fault until it succeeds: `python faulty_runs.py ORDER.json`.

Everything is imported once and each command is a fork, so that a fault falls into its work and not into imports. What
happened is printed as one JSON document; what has to hold after each fault is asserted here.
"""

import contextlib
import difflib
import errno
import fcntl
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from stored import records

from atrl_bench.results.packing import unpacked

SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
ENDURED = ("a clock set back", "no locks")  # that a command does not notice
KINDS = (
    *(*SIGNALS, "stop and go on", "a worker's death", "little memory", "a full disk", "a disk to be read"),
    *ENDURED,
)
EXPLAINED = ("interrupt", "a full disk", "a disk to be read")  # that a command has words for
PATIENCE = 1500  # seconds that a command may take that nothing stops, on a machine with much else to do
STUCK = 45  # seconds after which a command without memory is ended by hand
MIB = 1 << 20


class Folder:
    """A run folder whose disk can be filled up and made read-only, where this user may mount one."""

    def __init__(self, path: Path, *, own_disk: bool) -> None:
        self.path, self.own_disk = path, own_disk
        path.mkdir(parents=True, exist_ok=True)
        if own_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", path], check=True)

    def remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", self.path], check=True)

    @contextlib.contextmanager
    def filled(self, left: int):
        """Leave so many bytes free."""
        ballast, disk = self.path / "ballast", os.statvfs(self.path)
        ballast.write_bytes(b"\0" * max(0, disk.f_bavail * disk.f_frsize - left))
        yield
        ballast.unlink()

    def answers(self) -> dict[tuple, str]:
        """Return what is stored, by cell, problem and repeat."""
        path = self.path / "store.sqlite"
        if not path.is_file() or path.stat().st_size == 0:
            return {}
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as store:
            store.create_function("unpacked", 2, unpacked)
            if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'responses'").fetchone():
                return {}
            return {row[:3]: row[3] for row in store.execute("SELECT cell, problem_id, repeat, text FROM responses")}

    def contents(self) -> dict[str, object]:
        """Return all that a reader of the folder may depend on: pages, answers, verdicts, digests, credit."""
        paths = [path for name in ("reports", "credit") for path in sorted((self.path / name).rglob("*"))]
        # The front page says how long each training took, and a page when its judge was tried, by a clock set back too.
        told = re.compile(rb"(?<=>)\s*(?:[\d.]+ (?:s|min|h)\s*)+(?=<)|(?<=on )\d{4}-\d\d-\d\d(?=\.</p>)")
        files = {str(path.relative_to(self.path)): told.sub(b"", path.read_bytes()) for path in paths if path.is_file()}
        return files | records(self.path / "store.sqlite")

    def close(self) -> None:
        if self.own_disk:
            subprocess.run(["umount", "-l", self.path], check=True)
        else:
            shutil.rmtree(self.path)


def endure(kind: str, seconds: float) -> None:
    """Let this process's clock go back a day after so many seconds, or its disks have no locks, as some of networks."""
    if kind == "no locks":
        fcntl.flock = no_locks
    elif kind == "a clock set back":
        now, moment = time.time, time.time() + seconds
        time.time = lambda: now() - (86400 if now() > moment else 0)


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def begin(
    arguments: list[str], log: Path, memory: int | None = None, strange: Callable[[], None] = lambda: None
) -> int:
    """Return the process of a command of ours, which has a group of its own, once what is `strange` there is so."""
    child = os.fork()
    if child:
        with contextlib.suppress(OSError):  # whichever of the two is first
            os.setpgid(child, child)
        return child
    os.setpgid(0, 0)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    strange()
    sys.argv = ["atrl-bench", *arguments]
    code = 70
    try:
        from atrl_bench import cli

        cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        from multiprocessing.util import _exit_function

        with contextlib.suppress(BaseException):
            _exit_function()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, seconds: float) -> int | None:
    """Return how the process ended within so many seconds, or None."""
    deadline = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def group_is_gone(group: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
        return False
    return True


class Scenario:
    """The commands in a folder, with the faults that happen to them."""

    def __init__(self, folder: Folder, log: Path, rng: random.Random) -> None:
        self.folder, self.log, self.rng = folder, log, rng
        self.hits: Counter[str] = Counter()
        self.outlived = 0  # commands that ended well although a worker died
        self.stuck = 0
        self.survivors: dict[tuple, str] = {}

    def attempt(self, arguments: list[str], kind: str, seconds: float) -> int:
        """Return how a command ended to which this happened within so many seconds, if it took that long."""
        moment = self.rng.uniform(0, 1) ** 2 * seconds  # rather early: what was done before is not done again
        print(time.strftime("%X"), arguments[0], kind, f"{moment:.1f} of {seconds:.1f} s", file=sys.stderr, flush=True)
        if kind == "a full disk":
            with self.folder.filled(self.rng.choice((0, 8 << 10, 64 << 10, MIB // 2, 4 * MIB))):
                code = self.wait(begin(arguments, self.log))
        elif kind == "a disk to be read":
            self.folder.remount("ro")
            code = self.wait(begin(arguments, self.log))
            self.folder.remount("rw")
        elif kind in ENDURED:
            code = self.wait(begin(arguments, self.log, strange=lambda: endure(kind, moment)))
            assert code == 0, f"{kind}: {self.log.read_text()[-3000:]}"
        elif kind == "little memory":
            child = begin(arguments, self.log, self.rng.choice((32, 128, 256, 512)) * MIB)
            code = ended(child, STUCK)
            if code is None:  # Python waits for ever for a thread that had no memory to begin
                self.stuck += 1
                os.killpg(child, signal.SIGKILL)
                code = self.wait(child)
        else:
            child = begin(arguments, self.log)
            code = ended(child, moment)
            if code is not None:
                return code
            code = self.strike(child, kind)
        self.hits[kind] += 1
        return code

    def strike(self, child: int, kind: str) -> int:
        if kind in SIGNALS:
            os.killpg(child, SIGNALS[kind])
            return self.wait(child)
        if kind == "stop and go on":
            os.killpg(child, signal.SIGSTOP)
            time.sleep(0.3)
            os.killpg(child, signal.SIGCONT)
            return self.wait(child)
        family = descendants(child)
        if family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.rng.choice(family), signal.SIGKILL)
        code = self.wait(child)
        self.outlived += code == 0 and bool(family)
        return code

    def wait(self, child: int) -> int:
        code = ended(child, PATIENCE)
        assert code is not None, f"it hangs: {self.log.read_text()[-2000:]}"
        deadline = time.monotonic() + 30
        while not group_is_gone(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        return code

    def check(self, kind: str) -> None:
        now = self.folder.answers()
        assert self.survivors.items() <= now.items(), f"an answer was lost or changed by {kind}"
        self.survivors = now
        said = self.log.read_text(errors="replace")
        assert kind not in EXPLAINED or "Traceback" not in said, f"{kind}: {said[-3000:]}"
        secret = os.environ["JUDGE_API_KEY"].encode()
        files = (path for path in self.folder.path.rglob("*") if path.is_file())
        assert not [path for path in (self.log, *files) if secret in path.read_bytes()]

    def run(self, commands: list[list[str]], seconds: list[float], num_faults: list[int], kinds: list[str]) -> None:
        """Give each command again and again until it has ended well, after so many faults at most."""
        for arguments, duration, number in zip(commands, seconds, num_faults, strict=True):
            for _ in range(number):
                kind = self.rng.choice(kinds)
                code = self.attempt(arguments, kind, duration)
                self.check(kind)
                print(f"  ended with {code}", file=sys.stderr, flush=True)
                if code == 0 and kind in (*SIGNALS, *ENDURED):
                    break  # it was done before the fault came, or in spite of it
            code = self.wait(begin(arguments, self.log))
            assert code == 0, f"{arguments}: {self.log.read_text()[-3000:]}"


def difference(name: str, alone: object, after: object) -> str:
    """Return where two contents of one name differ."""
    if not isinstance(alone, bytes) or not isinstance(after, bytes):
        return f"{name}: {str(alone)[:300]} | {str(after)[:300]}"
    lines = (content.decode(errors="replace").splitlines() for content in (alone, after))
    changes = [line[:300] for line in difflib.unified_diff(*lines, name, "after faults", lineterm="", n=0)]
    return "\n".join(changes[:12])


def may_mount(folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=False, capture_output=True).returncode:
        return False
    subprocess.run(["umount", folder], check=True)
    return True


def main(order: dict) -> None:
    import datasets  # noqa: F401
    import torch
    import transformers  # noqa: F401
    import trl  # noqa: F401

    import atrl_bench.cli
    import atrl_bench.report.table_run
    import atrl_bench.training.loop  # noqa: F401

    torch.set_num_threads(1)
    root, rng = Path(order["root"]), random.Random(order["seed"])
    own_disk = may_mount(root / "disk")
    kinds = [kind for kind in KINDS if own_disk or "disk" not in kind]

    def commands(folder: Path) -> list[list[str]]:
        return [[part.replace("FOLDER", str(folder)) for part in command] for _, command in order["commands"]]

    log, seconds = root / "log", []
    whole = Folder(root / "folder", own_disk=own_disk)  # each in turn has the same name: pages may show it
    alone = Scenario(whole, log, rng)
    for command in commands(whole.path):
        started = time.monotonic()
        assert alone.wait(begin(command, log)) == 0, log.read_text()[-3000:]
        seconds.append(time.monotonic() - started)
        print(time.strftime("%X"), command[0], f"{seconds[-1]:.1f} s", file=sys.stderr, flush=True)
    expected = whole.contents()
    whole.close()
    hits, outlived, stuck, num_scenarios = Counter(), 0, 0, 0
    while hits.total() < order["num_faults"]:
        folder = Folder(root / "folder", own_disk=own_disk)
        scenario = Scenario(folder, log, rng)
        scenario.run(commands(folder.path), seconds, [number for number, _ in order["commands"]], kinds)
        contents = folder.contents()
        different = sorted(
            name for name in expected.keys() | contents.keys() if expected.get(name) != contents.get(name)
        )
        if different and order.get("keep"):
            shutil.copytree(folder.path, order["keep"], dirs_exist_ok=True)
        examples = "\n".join(difference(name, expected.get(name), contents.get(name)) for name in different[:4])
        assert not different, f"{len(different)} differ, after {dict(scenario.hits)}:\n{examples}"
        folder.close()
        hits, outlived, num_scenarios = hits + scenario.hits, outlived + scenario.outlived, num_scenarios + 1
        stuck += scenario.stuck
        print(time.strftime("%X"), json.dumps({"so far": hits.total(), **hits}), file=sys.stderr, flush=True)
    counts = {"faults": dict(hits), "scenarios": num_scenarios, "outlived": outlived, "stuck": stuck}
    print(
        json.dumps({**counts, "answers": sum(name.startswith("responses ") for name in expected), "seconds": seconds})
    )


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))

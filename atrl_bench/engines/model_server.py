"""A model server as a process beside this one: started, waited for, watched, and gone when this process is."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from atrl_bench.engines.devices import Devices, environment
from atrl_bench.errors import EndpointError, MissingDataError

START_SECONDS = 1800.0  # for a server of 72B to read its weights from a disk
SECONDS_BETWEEN_LOOKS = 0.25
LAST_LINES = 12  # of a log, in an error
HOST = "127.0.0.1"
INSTALL = "pip install 'atrl-bench[vllm]'"


@dataclass(frozen=True)
class Vllm:
    """The installed vLLM: its program and its version."""

    program: Path
    version: str


def find_vllm() -> Vllm:
    """The vLLM on the path, or beside this Python; it may have an environment of its own."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    program = shutil.which("vllm", path=path)
    if program is None:
        then = f"{INSTALL}, or put the `bin` of an environment that has it on the PATH"
        raise MissingDataError("vLLM is not installed here: no program `vllm` is on the path.", next_step=then)
    return Vllm(Path(program), _version(Path(program)))


def _version(program: Path) -> str:
    """The version, as the program's environment has it recorded: asking vLLM itself takes half a minute."""
    folders = [str(folder) for folder in program.parent.parent.glob("lib/python3*/site-packages")]
    for distribution in importlib.metadata.distributions(name="vllm", path=folders):
        return distribution.version
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=300, check=True).stdout
        return said.split()[-1]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise MissingDataError(f"{program} says no version.", why=str(error), next_step=INSTALL) from None


@dataclass(frozen=True)
class ModelServer:
    """A server that was started: where it listens, and what it printed."""

    base_url: str
    name: str  # under which it serves its model
    command: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait_until_healthy(self, seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while self.is_running and time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(SECONDS_BETWEEN_LOOKS)
        if self.is_running:
            raise self.error(f"The model server did not answer within {seconds:.0f} s.")
        raise self.died()

    def died(self) -> EndpointError:
        return self.error(f"The model server died (exit code {self.process.wait()}).")

    def error(self, what: str) -> EndpointError:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = "\n".join(line.rstrip() for line in lines[-LAST_LINES:] if line.strip())
        why = f"It last said:\n{last}" if last else "It said nothing."
        return EndpointError(what, why=why, next_step=f"read {self.log}, then give the same command again")

    def _answers(self) -> bool:
        import httpx

        root = httpx.URL(self.base_url)
        with suppress(httpx.HTTPError):  # no proxy knows this machine
            return self._listens_at(root.port or 0) and httpx.get(root.join("/health"), trust_env=False).is_success
        return False

    def _listens_at(self, port: int) -> bool:
        """Whether it is this server that does: on a shared machine somebody else may have taken the port meanwhile."""
        with suppress(psutil.Error):
            guard = psutil.Process(self.process.pid)
            sockets = (one for process in guard.children(recursive=True) for one in process.net_connections("tcp"))
            return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)
        return False


@contextmanager
def running_vllm(
    vllm: Vllm, model: Path, name: str, flags: Sequence[str], *, devices: Devices, log: Path, port: int | None = None
) -> Iterator[ModelServer]:
    """A vLLM that is starting to serve the model as `name`, printing to `log`, until the block ends."""
    port = free_port(port)
    command = serve_command(vllm.program, model, name, flags, port)
    log.parent.mkdir(parents=True, exist_ok=True)
    variables = environment(devices) | {"VLLM_NO_USAGE_STATS": "1"}  # nobody is told what is served here
    if not devices.gpus:  # several servers of small models share the cores: none of them keeps some for itself
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "atrl_bench.engines.guard", *command],
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the terminal's Ctrl-C is for this process, which then stops the server
        )
    try:
        yield ModelServer(f"http://{HOST}:{port}/v1", name, tuple(command), log, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def serve_command(program: Path | str, model: Path | str, name: str, flags: Sequence[str], port: int) -> list[str]:
    where = ["--host", HOST, "--port", str(port)]
    return [str(program), "serve", str(model), "--served-model-name", name, *where, *flags]


def free_port(wanted: int | None = None) -> int:
    """This port, or any that is free; raises `EndpointError` where somebody else would answer at it."""
    try:
        with socket.create_server((HOST, wanted or 0)) as listener:
            port: int = listener.getsockname()[1]
            return port
    except OSError as error:
        why = f"{error.strerror}."
        raise EndpointError(f"Port {wanted} cannot be listened at.", why=why, next_step="give another --port") from None

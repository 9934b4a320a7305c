"""A model server is started, waited for and stopped; it dies with its starter, and an error has what it last said."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from http_servers import QuickServer

from atrl_bench.engines.devices import Devices
from atrl_bench.engines.model_server import HOST, Vllm, find_vllm, running_vllm, serve_command
from atrl_bench.errors import EndpointError, MissingDataError

# Starts a process of its own, as vLLM does; healthy after a moment. The model's name says how it behaves.
PROGRAM = """#!{python}
import http.server, subprocess, sys, threading, time
if sys.argv[1:] == ["--version"]:
    print("0.30.1")
    sys.exit()
model, port = sys.argv[2], int(sys.argv[sys.argv.index("--port") + 1])
print("reading the weights of", model, flush=True)
if model.endswith("too_large"):
    print("OutOfMemoryError: 80 GB are not enough", file=sys.stderr)
    sys.exit(3)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", model])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_healthy = not model.endswith("never_ready") and time.monotonic() > started + 0.4
        self.send_response(200 if is_healthy else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
started = time.monotonic()
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
STARTER = """
import sys, time
from pathlib import Path
from atrl_bench.engines.devices import Devices
from atrl_bench.engines.model_server import find_vllm, running_vllm
model = Path(sys.argv[1])
with running_vllm(find_vllm(), model, "m", [], devices=Devices(), log=model / "log") as server:
    server.wait_until_healthy(60)
    print(server.base_url, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def vllm(tmp_path, monkeypatch) -> Vllm:
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return find_vllm()


def processes_naming(path: Path) -> list[str]:
    """Return the commands that name a path."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_text().split("\0")
        except OSError:
            continue
        if any(word == str(path) for word in words):
            commands.append(" ".join(words))
    return commands


def gone(path: Path, seconds: float) -> bool:
    """Whether nothing names a path any more, soon."""
    deadline = time.monotonic() + seconds
    while processes_naming(path) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_naming(path)


def test_a_server_is_there_once_it_answers_and_gone_with_all_it_started_afterwards(vllm, tmp_path):
    model = tmp_path / "model"
    with running_vllm(vllm, model, "m", ["--dtype", "float32"], devices=Devices(), log=tmp_path / "log") as server:
        server.wait_until_healthy(60)
        with urllib.request.urlopen(server.base_url.replace("/v1", "/health")) as reply:
            assert reply.status == 200
        port = int(server.base_url.removesuffix("/v1").rpartition(":")[2])
        assert server.command == tuple(serve_command(vllm.program, model, "m", ["--dtype", "float32"], port))
        assert server.command[3:9] == ("--served-model-name", "m", "--host", HOST, "--port", str(port))
        assert len(processes_naming(model)) == 3  # the server, what it started, and the guard
    assert processes_naming(model) == []
    assert not server.is_running


def test_a_server_that_dies_is_an_error_with_what_it_last_said(vllm, tmp_path):
    log = tmp_path / "logs" / "row.vllm.log"
    model = tmp_path / "too_large"
    starting = running_vllm(vllm, model, "m", [], devices=Devices(), log=log)
    with starting as server, pytest.raises(EndpointError) as caught:
        server.wait_until_healthy(60)
    assert caught.value.what == "The model server died (exit code 3)."
    assert caught.value.why.splitlines()[1:] == [
        f"reading the weights of {model}",
        "OutOfMemoryError: 80 GB are not enough",
    ]
    assert str(log) in caught.value.next_step


def test_a_server_that_never_answers_is_not_waited_for_without_end(vllm, tmp_path):
    model = tmp_path / "never_ready"
    starting = running_vllm(vllm, model, "m", [], devices=Devices(), log=tmp_path / "log")
    said = r"did not answer within 1 s(.|\n)*reading the weights"
    with starting as server, pytest.raises(EndpointError, match=said):
        server.wait_until_healthy(1)
    assert processes_naming(model) == []


def test_a_port_at_which_somebody_else_would_answer_is_refused(vllm, tmp_path):
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        starting = running_vllm(vllm, tmp_path / "model", "m", [], devices=Devices(), log=tmp_path / "log", port=port)
        with pytest.raises(EndpointError, match=f"Port {port} cannot be listened at"), starting:
            pass


def test_who_took_the_port_after_it_was_found_free_is_not_taken_for_the_server(vllm, tmp_path, monkeypatch):
    with QuickServer() as stranger:
        stranger.expect_request("/health").respond_with_data("")
        monkeypatch.setattr("atrl_bench.engines.model_server.free_port", lambda _: stranger.port)
        starting = running_vllm(vllm, tmp_path / "model", "m", [], devices=Devices(), log=tmp_path / "log")
        with starting as server, pytest.raises(EndpointError, match=r"died(.|\n)*Address already in use"):
            server.wait_until_healthy(60)


def test_a_server_dies_with_whoever_started_it_even_by_a_kill(vllm, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(model)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert starter.stdout is not None
    assert starter.stdout.readline().startswith("http://127.0.0.1:")
    assert len(processes_naming(model)) == 4
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    assert gone(model, 15)


def test_the_version_is_the_one_that_is_recorded_beside_the_program_or_what_it_says(vllm, tmp_path):
    assert vllm.version == "0.30.1"
    site = tmp_path / "lib" / "python3.11" / "site-packages" / "vllm-0.31.0+cpu.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0+cpu\n")
    assert find_vllm().version == "0.31.0+cpu"


def test_without_vllm_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(MissingDataError, match=r"pip install 'atrl-bench\[vllm\]'"):
        find_vllm()

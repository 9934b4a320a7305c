"""Programs that try to get out of the sandbox or to exhaust the machine, where this machine can isolate them."""

import json
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import needs
import pytest

from atrl_bench.errors import AtrlBenchError
from atrl_bench.sandbox import execution, isolation
from atrl_bench.sandbox.execution import Limits, SandboxResult, memory_below, supervise
from atrl_bench.sandbox.isolation import known_leaks, require_isolation, require_permission, run_program

SMALL = Limits(wall_seconds=3, cpu_seconds=2, memory_bytes=256 << 20, num_processes=8, folder_bytes=8 << 20)


@pytest.fixture(autouse=True)
def _allowed(monkeypatch):
    monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", "1")


def run(program, *outputs, limits=SMALL, **settings):
    return run_program(textwrap.dedent(program).encode(), outputs=outputs, limits=limits, **settings)


# Permission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", "0", "yes"])
def test_without_permission_nothing_runs_and_the_error_says_what_to_type(monkeypatch, value):
    monkeypatch.delenv("ATRL_BENCH_ALLOW_CODE")
    if value is not None:
        monkeypatch.setenv("ATRL_BENCH_ALLOW_CODE", value)
    with pytest.raises(AtrlBenchError, match="--allow-code"):
        run("print(1)")
    with pytest.raises(AtrlBenchError, match="not allowed"):
        require_permission()


def test_without_the_tools_the_error_names_what_is_missing(monkeypatch):
    known_leaks.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    try:
        with pytest.raises(AtrlBenchError, match="no unshare, mount, umount, pivot_root, setpriv here") as error:
            require_isolation()
        assert "util-linux" in str(error.value)
    finally:
        known_leaks.cache_clear()


def test_a_sandbox_that_isolates_nothing_is_found_out(monkeypatch):
    """The probe, run as an ordinary process, reports the leaks: it cannot pass by saying nothing."""
    report = {}

    def unprotected(program, arguments, _files, _outputs, **_settings):
        task = json.loads(arguments[0])
        with socket.create_connection(("127.0.0.1", task["port"]), timeout=1):
            report["reached"] = True
        content = {
            **dict.fromkeys(("connected", "sent", "shadow", "processes", "signalled", "allocated", "filled"), True),
            "home": ["letters"],
            "written": ["/usr"],
            "environment": ["PATH", "TOKEN"],
            "expected_environment": ["PATH"],
            "started": 200,
            "mounted": True,
            "namespaces": True,
            "hidden": True,
            "families": ["AF_VSOCK"],
        }
        return SandboxResult("finished", "", {"report.json": json.dumps(content).encode()})

    monkeypatch.setattr(isolation, "execute", unprotected)
    leaks = isolation.find_leaks()
    assert report["reached"]  # there is a server to be reached
    assert len(leaks) == 15
    assert "opens sockets of AF_VSOCK" in leaks


AS_ANOTHER_USER = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "env", "HOME=/nowhere"]


@needs.another_user
def test_an_ordinary_user_is_isolated_too_where_the_kernel_lets_users_make_namespaces():
    allowed = subprocess.run([*AS_ANOTHER_USER, "unshare", "--user", "true"], check=False, cwd="/").returncode == 0
    checkout = Path(isolation.__file__).parents[2]
    program = f"""
import sys
sys.path.insert(0, {str(checkout)!r})
from atrl_bench.sandbox import isolation
print(isolation.known_leaks())
"""
    command = [*AS_ANOTHER_USER, "TMPDIR=/tmp", str(needs.SYSTEM_PYTHON), "-B", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    if "Permission denied" in done.stderr or "No module named" in done.stderr:
        pytest.skip(needs.NOT_FOR_EVERYBODY)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.strip() == "[]") == allowed, done.stdout


# Ordinary programs ------------------------------------------------------------------------------------------------


@needs.isolation
def test_a_program_reads_its_files_and_leaves_the_wanted_ones():
    outcome = run(
        """
        open("out.txt", "w").write(open("in.txt").read().upper())
        open("unwanted.txt", "w").write("x")
        """,
        "out.txt",
        "never-written.txt",
        files={"in.txt": b"three"},
    )
    assert (outcome.state, dict(outcome.files)) == ("finished", {"out.txt": b"THREE"})


@needs.isolation
def test_a_failing_program_says_why_and_still_leaves_its_files():
    outcome = run("open('out.txt', 'w').write('1'); 1 / 0", "out.txt")
    assert (outcome.state, outcome.why) == ("failed", "ZeroDivisionError: division by zero")
    assert outcome.files == {"out.txt": b"1"}


@needs.isolation
def test_nothing_is_left_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    run("open('left.txt', 'w').write('x')")
    assert not list(tmp_path.iterdir())


# Ways out ---------------------------------------------------------------------------------------------------------


@needs.isolation
def test_a_program_sees_no_file_of_the_user_and_none_of_the_checkout(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    for path in (secret, Path(__file__), "/etc/passwd", "/etc/shadow", "/proc/1/environ", "/root/.bashrc"):
        assert run(f"open({str(path)!r})").state == "failed", path


@needs.isolation
@pytest.mark.parametrize(
    "call",
    [
        "libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)" if platform.machine() == "x86_64" else "-1",  # clone
        "libc.shmget(0, 1 << 20, 0o1600)",
        "libc.ptrace(16, 1, 0, 0)",  # PTRACE_ATTACH to the supervisor
    ],
)
def test_the_kernel_refuses_what_leads_out_of_the_limits(call):
    assert run(f"import ctypes; libc = ctypes.CDLL(None); raise SystemExit({call} != -1)").state == "finished"


@needs.isolation
def test_sockets_of_the_internet_families_and_pairs_within_a_program_still_work():
    program = """
        import socket
        socket.socket(socket.AF_INET), socket.socket(socket.AF_INET6)
        left, right = socket.socketpair()
        left.send(b"1")
        open('out', 'wb').write(right.recv(1))
    """
    assert run(program, "out").files == {"out": b"1"}


@needs.isolation
def test_threads_and_subprocesses_still_work():
    program = """
        import subprocess, sys, threading
        thread = threading.Thread(target=lambda: subprocess.run([sys.executable, "-c", "open('out', 'w').write('1')"]))
        thread.start()
        thread.join()
    """
    assert run(program, "out").files == {"out": b"1"}


@needs.isolation
@pytest.mark.parametrize(
    "trick",
    [
        "os.symlink('/sandbox/job/program.py', 'out')",
        "os.symlink('/etc/passwd', 'out')",
        "os.mkfifo('out')",
        "os.mkdir('out')",
    ],
)
def test_what_is_no_ordinary_file_does_not_come_back(trick):
    outcome = run(f"import os; {trick}", "out")
    assert (outcome.state, dict(outcome.files)) == ("finished", {})


@needs.isolation
def test_an_archive_that_a_program_leaves_is_not_opened():
    program = """
        import zipfile
        with zipfile.ZipFile("out", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("../../escape", bytes(4 << 20))
    """
    content = run(program, "out").files["out"]
    assert content[:2] == b"PK"
    assert len(content) < 10_000


# Exhaustion -------------------------------------------------------------------------------------------------------


@needs.isolation
def test_an_endless_loop_ends_at_its_computing_time():
    started = time.monotonic()
    outcome = run("while True: pass", limits=Limits(wall_seconds=20, cpu_seconds=1))
    assert (outcome.state, outcome.why) == ("timed out", "more than 1 s of computing")
    assert time.monotonic() - started < 10


@needs.isolation
def test_a_sleeping_program_ends_at_its_wall_time():
    outcome = run("import time; time.sleep(1000)", limits=Limits(wall_seconds=0.5))
    assert (outcome.state, outcome.why) == ("timed out", "still running after 0.5 s")


@needs.isolation
def test_children_that_outlive_the_program_are_ended_with_it():
    program = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    open("out", "a").write("x")
                    time.sleep(0.001)
            os._exit(0)
        open("out", "a").write("y")
    """
    started = time.monotonic()
    assert run(program, "out").state == "finished"
    assert time.monotonic() - started < 2


@needs.isolation
def test_many_small_memory_bombs_are_ended_together():
    program = """
        import os, time
        for _ in range(5):
            if os.fork() == 0:
                break
        held = bytearray(b"x") * (100 << 20)  # one allocation: each process stays below the limit alone
        time.sleep(10)
    """
    limits = Limits(wall_seconds=8, memory_bytes=200 << 20, folder_bytes=1 << 20, num_processes=12)
    outcome = run(program, limits=limits)
    assert (outcome.state, outcome.why) == ("too big", "its processes have more than 201 MiB together")


@needs.isolation
def test_one_file_stays_below_its_limit():
    outcome = run("open('out', 'wb').write(bytes(2 << 20))", limits=Limits(file_bytes=1 << 20))
    assert outcome.state == "failed"


@needs.isolation
def test_too_much_output_is_refused_as_a_whole():
    outcome = run("open('out', 'wb').write(bytes(1001))", "out", limits=Limits(output_bytes=1000))
    assert (outcome.state, dict(outcome.files)) == ("too big", {})
    outcome = run("open('out', 'wb').write(bytes(1000))", "out", limits=Limits(output_bytes=1000))
    assert len(outcome.files["out"]) == 1000


# The supervisor ---------------------------------------------------------------------------------------------------


def test_a_sandbox_that_talks_without_end_is_ended():
    ended = supervise(["yes"], seconds=10, memory_bytes=1 << 30, output_bytes=1000)
    assert (ended.broken, ended.output) == ("too big", b"")


def test_a_sandbox_that_never_ends_is_ended():
    ended = supervise(["sleep", "100"], seconds=0.3, memory_bytes=1 << 30, output_bytes=1000)
    assert ended.broken == "timed out"


def test_the_memory_of_a_process_counts_its_children():
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(b\"1\" * (120 << 20)); input()'])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        deadline = time.monotonic() + 10
        while memory_below(process.pid) < 120 << 20:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.communicate(b"\n")


def test_a_forged_report_is_no_report():
    for forged in (
        b"",
        b"[]",
        b"{}",
        b'{"state": "finished"}',
        b'{"state": "correct", "why": "", "files": {}}',
        b'{"state": "finished", "why": "", "files": {"out": "%%%"}}',
        b"\xff",
    ):
        assert execution._read_reply(forged, ["out"], "").state == "failed"


def test_a_report_brings_only_the_files_that_were_asked_for():
    report = json.dumps({"state": "finished", "why": "", "files": {"out": "MQ==", "../.bashrc": "MQ=="}}).encode()
    assert execution._read_reply(report, ["out", "never-written"], "").files == {"out": b"1"}

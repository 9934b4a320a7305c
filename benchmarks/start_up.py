"""How long commands take to answer, in processor seconds, as multiples of a bare interpreter and beside two peers.

`python benchmarks/start_up.py` plans and reports `main_7b` in a run folder of its own under profile smoke, whose
generated data are there and whose store is empty; `--run RUN_DIR` measures in a copy of one that holds the table, under
the table's profile. The peers are `lmms-eval --help` and `trl --help`; `import datasets` is what reads the rows of a
benchmark, and bounds the last line: `evaluate --base-url` up to its first question, which a server of this script
notices; what the client has computed by then is read from /proc. Every command runs once before it is measured: an
installed package has its bytecode.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OURS = [sys.executable, "-m", "atrl_bench"]
PROGRAMS = Path(sys.executable).parent
REPLY = {
    "choices": [{"message": {"role": "assistant", "content": "\\boxed{7}"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 900, "completion_tokens": 9},
}


def used(command: list[str]) -> tuple[float, float]:
    """Return the processor seconds and the megabytes of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def first_question(folder: tuple[str, ...]) -> float:
    """Return the processor seconds that an evaluation of a served model takes before it asks."""
    asked: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if not asked:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                asked.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps(REPLY).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    evaluate = ["evaluate", "served", "--base-url", url, "--tasks", "geoqa_test", "--limit", "4", *folder]
    process = subprocess.Popen([*OURS, *evaluate], stdout=subprocess.DEVNULL)
    assert process.wait() == 0
    server.shutdown()
    return asked[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", type=Path, help="a run folder that holds main_7b, measured under its profile")
    options = parser.parse_args()
    profile = "smoke"
    if options.run is not None:
        table = json.loads((options.run / "reports" / "main_7b.json").read_text(encoding="utf-8"))
        profile = table["profile"]
        print(f"{options.run}: main_7b of profile {profile}")
    with tempfile.TemporaryDirectory() as temporary:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{temporary}/bytecode"
        run = Path(temporary) / "run"
        if options.run is not None:
            shutil.copytree(options.run, run)
        folder = ("--profile", profile, "--out", str(run))
        used([*OURS, "plan", "main_7b", *folder])  # writes the data
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "lmms-eval --help": [str(PROGRAMS / "lmms-eval"), "--help"],
            "trl --help": [str(PROGRAMS / "trl"), "--help"],
            "import datasets": [sys.executable, "-c", "import datasets"],
            "--help": [*OURS, "--help"],
            "list tables": [*OURS, "list", "tables"],
            "list tasks": [*OURS, "list", "tasks"],
            "list": [*OURS, "list"],
            "status": [*OURS, "status", *folder],
            "plan main_7b": [*OURS, "plan", "main_7b", *folder],
            "plan, paper": [*OURS, "plan", "main_7b", "--profile", "paper", "--out", f"{temporary}/paper"],
            "report main_7b": [*OURS, "report", "main_7b", *folder],
        }
        if options.run is None:
            del commands["status"]  # there is no store
        else:
            commands["explain"] = [*OURS, "explain", "main_7b", "grpo_atrl", "mathvista_testmini", *folder]
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        asked = []
        for command in commands.values():
            used(command)
        for number in range(options.rounds):  # side by side, so that other work on the machine meets all of them
            for name, command in commands.items():
                spent[name].append(used(command))
            world = next((run / "data").glob("mini-*"))
            asked.append(
                first_question(
                    ("--profile", "smoke", "--out", f"{temporary}/served-{number}", "--data-dir", str(world))
                )
            )
    bare = statistics.median(seconds for seconds, _ in spent["python -c pass"])
    for name, rounds in spent.items():
        seconds, megabytes = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{name:28} {seconds:6.2f} s {seconds / bare:7.1f}x {megabytes:6.0f} MB")
    print(f"{'evaluate, first question':28} {statistics.median(asked):6.2f} s {statistics.median(asked) / bare:7.1f}x")


if __name__ == "__main__":
    main()

"""Processes of one launch after another as forks of this program, which has imported everything: a start takes no time.

It reads an order a line, {"work": "module:function", "count": 2, "arguments": [...]}, and prints how its forks ended.
"""

import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager, suppress


@contextmanager
def launcher(folder):
    """A function that launches `work(*arguments)`, of a module here, in so many processes; returns how each ended."""
    command = [sys.executable, __file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:

        def launch(work: str, count: int, *arguments) -> list[int]:
            order = {"work": work, "count": count, "arguments": arguments}
            print(json.dumps(order, default=str), file=program.stdin, flush=True)
            return json.loads(program.stdout.readline())

        yield launch


def launched(work: str, count: int, arguments: list) -> list[int]:
    """As a launcher has them: once one has failed the others are told to end. Nothing of them is left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    children: list[int] = []
    for rank in range(count):
        child = os.fork()
        group = children[0] if children else child
        with suppress(OSError):  # whichever of parent and child is first
            os.setpgid(child, group)
        if child == 0:
            os.dup2(2, 1)  # what it prints is no answer to the order
            world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1"}
            os.environ |= {name: str(value) for name, value in {**world, "MASTER_PORT": port}.items()}
            code = 1
            try:
                pkgutil.resolve_name(work)(*arguments)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes = []
    for _ in children:
        codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
        if codes[-1] and len(codes) < count:
            with suppress(ProcessLookupError):
                os.killpg(children[0], signal.SIGTERM)
    for _ in range(600):  # those that helped them end by themselves
        with suppress(ProcessLookupError):
            os.killpg(children[0], 0)
            time.sleep(0.1)
            continue
        return codes
    raise AssertionError("something outlives its launch")


if __name__ == "__main__":  # and not in what reads data, a process of its own that imports this file
    os.environ |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    import torch
    import transformers.models.qwen2_5_vl.modeling_qwen2_5_vl  # noqa: F401
    import trl  # noqa: F401

    import atrl_bench.training.loop  # noqa: F401

    torch.set_num_threads(1)
    sys.path[0] = sys.argv[1]
    for line in sys.stdin:
        print(json.dumps(launched(**json.loads(line))), flush=True)

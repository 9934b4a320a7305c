"""Tries everything that a program in isolation must not be able to do, and writes down what worked.

Runs alone inside the sandbox, with the standard library only; `isolation.find_leaks` judges the report.
"""

import contextlib
import ctypes
import json
import mmap
import os
import socket
import sys

# Ways to talk that are no internet: to this machine, its kernel, its hypervisor, its cables.
FAMILIES = {"AF_UNIX": 1, "AF_NETLINK": 16, "AF_PACKET": 17, "AF_BLUETOOTH": 31, "AF_ALG": 38, "AF_VSOCK": 40}
EXPECTED_ENVIRONMENT = ["PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE"]


def _works(attempt: object) -> bool:
    try:
        attempt()  # type: ignore[operator]
    except (OSError, MemoryError, OverflowError):
        return False
    return True


def _connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()


def _send() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("192.0.2.1", 9))  # an address that is nobody's


def _open_socket(family: int) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        with contextlib.suppress(OSError), socket.socket(family, kind):
            return
    raise OSError(family, "no socket of this family")


def _write(folder: str) -> None:
    path = os.path.join(folder, "written-by-a-probe")
    with open(path, "w"):
        os.remove(path)


def _fill() -> None:
    for number in range(64):
        with open(f"fill-{number}", "wb") as file:
            for _ in range(4):
                file.write(bytes(1 << 20))


def _started() -> int:
    children: list[int] = []
    end = os.pipe()
    with contextlib.suppress(OSError):
        while len(children) < 200:
            child = os.fork()
            if child == 0:
                os.close(end[1])
                os.read(end[0], 1)  # until the parent closes its end
                os._exit(0)
            children.append(child)
    os.close(end[1])
    for child in children:
        os.waitpid(child, 0)
    return len(children)


def _mount() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", b"/sandbox/work", b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def _new_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        os._exit(libc.unshare(0x10000000) != 0)  # CLONE_NEWUSER
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("unshare")


def _hide_memory() -> None:
    os.close(os.memfd_create("hidden"))


def _report(task: dict) -> dict:
    home: list[str] = []
    with contextlib.suppress(OSError):
        home = os.listdir(task["home"])
    others: list[str] = []
    with contextlib.suppress(OSError):
        others = [name for name in os.listdir("/proc") if name.isdigit()]
    folders = ["/", "/usr", "/etc", "/dev", "/var/tmp", "/sandbox/job", task["prefix"], task["home"]]
    return {
        "connected": _works(lambda: _connect(task["port"])),
        "sent": _works(_send),
        "families": [name for name, number in FAMILIES.items() if _works(lambda number=number: _open_socket(number))],
        "home": home,
        "shadow": _works(lambda: open("/etc/shadow").close()),
        "written": [folder for folder in folders if _works(lambda folder=folder: _write(folder))],
        "environment": sorted(os.environ),
        "expected_environment": EXPECTED_ENVIRONMENT,
        "processes": len(others) > 2,
        # Numbers as low as the sandbox's own say nothing.
        "signalled": task["process"] > 100 and _works(lambda: os.kill(task["process"], 0)),
        "started": _started(),
        "allocated": _works(lambda: mmap.mmap(-1, 1 << 30).close()),
        "filled": _works(_fill),
        "mounted": _works(_mount),
        "namespaces": _works(_new_namespace),
        "hidden": _works(_hide_memory),
    }


if __name__ == "__main__":
    report = _report(json.loads(sys.argv[1]))
    for name in os.listdir("."):
        if name.startswith("fill-"):
            os.remove(name)
    with open("report.json", "w") as file:
        json.dump(report, file)

"""Short names for files and settings: which data, weights and settings a number came from, exactly."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from atrl_bench.resources import users_home

MAX_REMEMBERED = 10_000  # files: each command reads what is remembered of them all


def spec_key(spec: Mapping[str, Any]) -> str:
    """The first 16 hex digits of the SHA-256 of `spec` as canonical JSON: the order of its fields is free."""
    return key_of(canonical_json(spec))


def key_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys; NaN and infinities, which JSON has no word for, become null."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def plain(value: Any) -> Any:
    """The value as JSON has it: of a record its fields, of a path or an error its text; NaN and infinities are None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (Path, Exception)):
        return str(value)
    if hasattr(value, "item"):  # a NumPy or torch scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def file_digest(paths: Sequence[Path]) -> str:
    """16 hex digits that name these files and their content."""
    names = (path.name for path in paths)
    return digest_of_hashes(zip(names, sha256_of(paths), strict=True))


def digest_of_hashes(hashes: Iterable[tuple[str, str]]) -> str:
    """What `file_digest` gives for files with these names and SHA-256 sums."""
    lines = "".join(f"{name}:{sha256}\n" for name, sha256 in hashes)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(paths: Sequence[Path], *, of: Callable[[Path], str] = sha256, memory: str = "digests.json") -> list[str]:
    """The SHA-256 sums of these files, or `of` what is in them, remembered until a file's size or time changes.

    The memory is a file in the user's cache folder: the weights of a 7B model take half a minute to read.
    """
    if _ANEW.get():
        return [of(path) for path in paths]
    memory_path = memory_file(memory)
    keys = [_file_key(path) for path in paths]
    known = _READ.setdefault(memory_path, {})
    if not known.keys() >= set(keys):
        known |= recall(memory_path)  # another process may have written it meanwhile
    new = {key: of(path) for key, path in zip(keys, paths, strict=True) if key not in known}
    if new:
        known |= new
        remember(memory_path, dict(list(known.items())[-MAX_REMEMBERED:]))  # the newest
    return [known[key] for key in keys]


_ANEW: ContextVar[bool] = ContextVar("anew", default=False)


@contextlib.contextmanager
def reading_anew() -> Iterator[None]:
    """Have every file read, whatever is remembered of it: bits that rot change neither a file's size nor its time."""
    token = _ANEW.set(True)
    try:
        yield
    finally:
        _ANEW.reset(token)


_READ: dict[Path, dict[str, str]] = {}  # what this process knows of each memory: reading it takes longer than asking


def _file_key(path: Path) -> str:
    status = path.stat()
    # `cp -p`, rsync and archives write a file and set its time of change back; not that of its inode.
    return f"{os.path.realpath(path)}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"


def memory_file(name: str) -> Path:
    """A memory of this name lies in the user's cache folder, for all run folders."""
    return Path(os.environ.get("XDG_CACHE_HOME") or users_home() / ".cache") / "atrl_bench" / name


def recall(path: Path) -> dict[str, Any]:
    """What `remember` wrote to this file; nothing where it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def remember(path: Path, content: Mapping[str, Any]) -> None:
    """Write what can be found out again; a folder that cannot be written costs time, never the result."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(file.name, path)

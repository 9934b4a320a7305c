"""A hub on this machine: an HTTP server that speaks as much of huggingface.co as its clients really ask for.

`huggingface_hub`, `datasets` and `transformers` read the hub's address when they are imported, so whatever talks to
this one runs in a process of its own: `run(program, home, hub.url)`.
"""

import hashlib
import json
import os
import re
import subprocess
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_servers import QuickServer, hung_up
from programs import ended, printed
from werkzeug import Request, Response

FIRST, SECOND = "1" * 40, "2" * 40
NOBODY = "http://127.0.0.1:9"  # an address at which nothing listens
LARGE = re.compile(r"\.(parquet|zip|gz|tar|safetensors|mp4|bin|\d{3}|part-..)$")  # what repositories keep outside git


@dataclass
class HubRepository:
    """A repository: the files of each commit, which commit each branch is, and how it misbehaves."""

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str] = field(default_factory=lambda: {"main": FIRST})
    gated: bool = False
    is_private: bool = False
    cut: dict[str, int] = field(default_factory=dict)  # after so many bytes of this file the connection breaks, once
    altered: dict[str, bytes] = field(default_factory=dict)  # what is sent in place of the file that was listed

    def commit(self, revision: str) -> str | None:
        """Return the commit that a branch, a tag or a commit is."""
        return revision if revision in self.commits else self.branches.get(revision)

    def move(self, changes: Mapping[str, bytes], commit: str = SECOND) -> None:
        """Make a new commit, in which these files are others, the latest one."""
        self.commits[commit] = {**self.commits[self.branches["main"]], **changes}
        self.branches["main"] = commit


class LocalHub(QuickServer):
    """The server, its repositories, and what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.expect_request(re.compile("")).respond_with_handler(lambda request: _Exchange(self, request).reply())
        self.repositories: dict[tuple[str, str], HubRepository] = {}
        self.requests: list[str] = []  # all of them, as "METHOD /address"
        self.sent: list[str] = []  # the files whose bytes were asked for, each time

    @property
    def url(self) -> str:
        """What HF_ENDPOINT has to be."""
        return self.url_for("").rstrip("/")

    def add(self, kind: str, hub_id: str, files: Mapping[str, bytes] | Path, **settings: Any) -> HubRepository:
        """Serve these files, or those of a folder, as a `dataset` or a `model`."""
        content = files if isinstance(files, Mapping) else contents(files)
        self.repositories[kind, hub_id] = HubRepository({FIRST: dict(content)}, **settings)
        return self.repositories[kind, hub_id]


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder by their names in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def environment(home: Path, endpoint: str, **more: str) -> dict[str, str]:
    """Return the environment of a process with a Hugging Face home and a hub of its own."""
    hidden = ("HF_", "HUGGING", "TRANSFORMERS_", "http", "HTTP", "all_", "ALL_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    own = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "XDG_CACHE_HOME": str(home), "NO_PROXY": "*"}
    return {**clean, **own, "HF_HUB_DISABLE_TELEMETRY": "1", **more}


def run(program: str, home: Path, endpoint: str, **more: str) -> Any:
    """Return what a program prints last, as JSON, run with a Hugging Face home and a hub of its own."""
    return json.loads(printed("-c", program, env=environment(home, endpoint, **more)).splitlines()[-1])


class Machine:
    """A machine with an empty hub cache, on which commands are typed in a folder; `root` has the code, if another."""

    def __init__(self, folder: Path, hub: LocalHub, root: Path | None = None) -> None:
        self.folder, self.endpoint, self.home = folder, hub.url, folder / "home"
        self._code = {} if root is None else {"PYTHONPATH": str(root)}

    def type(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Return what a command printed and ended with."""
        where = environment(self.home, self.endpoint, **self._code, **more)
        return ended("-m", "atrl_bench", *arguments, cwd=self.folder, env=where)


@dataclass(frozen=True)
class _Exchange:
    """One request, and what the hub has to say to it."""

    hub: LocalHub
    request: Request

    def reply(self) -> Response:
        self.hub.requests.append(f"{self.request.method} {self.request.environ['REQUEST_URI']}")
        if self.request.method != "POST":
            return self._answer([])
        written = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", self.request.path)
        if written or self.request.path in ("/api/repos/create", "/api/validate-yaml"):
            return self._write(written[1] if written else "", self.request.path.split("/")[-2])
        return self._answer((self.request.get_json(silent=True) or {}).get("paths", self.request.form.getlist("paths")))

    def _answer(self, paths: list[str]) -> Response:
        address = self.request.path.strip("/")
        api = re.fullmatch(r"api/(model|dataset)s/([^/]+/[^/]+)(?:/([\w-]+)(?:/([^/]+)(?:/(.*))?)?)?", address)
        file = re.fullmatch(r"(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", address)
        if api:
            kind, name, action, revision, below = api.groups()
        elif file:
            kind, name, action, revision = "dataset" if file[1] else "model", file[2], "resolve", file[3]
        else:
            return Response(status=404)
        repository = self.hub.repositories.get((kind, name))
        if repository is None:
            return Response(status=401, headers={"X-Error-Code": "RepoNotFound"})
        commit = repository.commit(revision or "main")
        if commit is None:
            return Response(status=404, headers={"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if file:
            return self._send(repository, commit, file[4])
        if action == "auth-check":
            return self._refuse() if repository.gated else self._json({})
        if action in (None, "revision"):
            siblings = [_sibling(path, content) for path, content in files.items()]
            gated = "manual" if repository.gated else False
            return self._json({"id": name, "sha": commit, "private": False, "gated": gated, "siblings": siblings})
        if action == "tree":
            return self._json(
                _tree(files, below or "", recursive=self.request.args.get("recursive", "").lower() == "true")
            )
        if action == "paths-info":
            return self._json([entry for path in paths for entry in _tree(files, "", True) if entry["path"] == path])
        if action == "refs":
            branches = [
                {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": target}
                for branch, target in repository.branches.items()
            ]
            return self._json({"branches": branches, "tags": [], "converts": []})
        return Response(status=404)

    def _write(self, name: str, action: str) -> Response:
        """Take a new repository or a commit into one; every file comes inside its commit, none apart from it."""
        lines = [json.loads(line) for line in self.request.get_data().splitlines()]
        if self.request.path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if self.request.path == "/api/repos/create":
            name = f"{lines[0]['organization']}/{lines[0]['name']}"
            is_new = ("model", name) not in self.hub.repositories
            if is_new:
                self.hub.add("model", name, {}, is_private=lines[0].get("visibility") == "private")
            reply = self._json({"url": f"{self.hub.url}/{name}", "name": name})
            reply.status_code = 200 if is_new else 409
            return reply
        if action == "preupload":
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in lines[0]["files"]]
            return self._json({"files": files})
        files = [line["value"] for line in lines if line["key"] == "file"]
        self.hub.repositories["model", name].move({file["path"]: b64decode(file["content"]) for file in files})
        url = f"{self.hub.url}/{name}/commit/{SECOND}"
        return self._json({"success": True, "commitOid": SECOND, "commitUrl": url, "hookOutput": ""})

    def _send(self, repository: HubRepository, commit: str, path: str) -> Response:
        if repository.gated:
            return self._refuse()
        if path not in repository.commits[commit]:
            return Response(status=404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        listed = repository.commits[commit][path]
        etag = f'"{_sha256(listed) if LARGE.search(path) else _git_oid(listed)}"'
        headers = {"ETag": etag, "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if LARGE.search(path):
            headers |= {"X-Linked-Etag": etag, "X-Linked-Size": str(len(listed))}
        if self.request.method == "HEAD":
            return Response(listed, headers=headers)
        self.hub.sent.append(path)
        body, status = repository.altered.get(path, listed), 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.request.headers.get("Range", "")):
            start, end = int(match[1]), int(match[2] or len(body) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
            body, status = body[start : end + 1], 206
        if path in repository.cut:
            part = body[: repository.cut.pop(path)]
            head = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "Content-Length": len(body)}.items())
            whole = f"HTTP/1.1 {status} OK\r\n{head}\r\n".encode() + part
            return hung_up(self.request, lambda connection: connection.sendall(whole))
        return Response(body, status, headers)

    def _refuse(self) -> Response:
        explained = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to it is restricted."}
        return Response(status=403, headers=explained)

    def _json(self, content: Any) -> Response:
        return Response(json.dumps(content), content_type="application/json")


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    entry = {"rfilename": path, "size": len(content), "blobId": _git_oid(content)}
    large = {"lfs": {"sha256": _sha256(content), "size": len(content), "pointerSize": 130}}
    return {**entry, **(large if LARGE.search(path) else {})}


def _tree(files: Mapping[str, bytes], below: str, recursive: bool) -> list[dict[str, Any]]:
    """Return the files below a folder, with the folders, as the hub lists them; not `recursive`, only what is in it."""
    start = f"{below.strip('/')}/" if below.strip("/") else ""
    entries = []
    folders = set()
    for path, content in files.items():
        if path.startswith(start):
            parts = path.removeprefix(start).split("/")
            folders |= {start + "/".join(parts[:depth]) for depth in range(1, len(parts) if recursive else 2)} - {path}
            if recursive or len(parts) == 1:
                large = {"lfs": {"oid": _sha256(content), "size": len(content), "pointerSize": 130}}
                file = {"type": "file", "path": path, "size": len(content), "oid": _git_oid(content)}
                entries.append({**file, **(large if LARGE.search(path) else {})})
    return [{"type": "directory", "path": name, "size": 0, "oid": "0" * 40} for name in sorted(folders)] + entries


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()

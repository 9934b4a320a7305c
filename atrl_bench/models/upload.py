"""Sends a model to a repository of the hub, in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from atrl_bench.errors import EndpointError, reason_of

# What a run folder keeps beside a model: locks, what resuming needs, and what is not finished.
NOT_SENT = ("lock", "*.tmp", "resume", "unfinished")


def upload_model(
    folder: Path, written: Mapping[str, bytes], hub_id: str, *, private: bool
) -> tuple[str, tuple[str, ...]]:
    """Send a folder's files and `written`, by their names; returns the repository's address and all names."""
    import httpx
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    contents: dict[str, Path | bytes] = {name: folder / name for name in files_of(folder)} | dict(written)
    operations = [CommitOperationAdd(name, content) for name, content in contents.items()]
    api = HfApi()
    try:
        url = api.create_repo(hub_id, private=private, exist_ok=True)
        api.create_commit(hub_id, operations, commit_message=f"Add {folder.name}")
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, httpx.HTTPError) as error:
        raise EndpointError(
            f"{hub_id} did not take the model.",
            why=reason_of(error),
            next_step="check the name of the repository, `hf auth login`, and that HF_HUB_OFFLINE is not set",
        ) from None
    return str(url), tuple(contents)


def files_of(folder: Path) -> list[str]:
    """The files of a checkpoint's folder that are sent, by their names below it."""
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        name.as_posix()
        for name in names
        if not any(Path(part).match(pattern) for part in name.parts for pattern in NOT_SENT)
    ]

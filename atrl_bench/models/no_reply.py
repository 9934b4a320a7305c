"""What an endpoint did in place of answering, where it may answer when it is asked again."""

from __future__ import annotations


class NoReplyError(Exception):
    """One attempt that the endpoint did not answer usefully; `wait` is what it asked for, in seconds."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


class UselessReplyError(NoReplyError):
    """A proper reply that does not hold what its reader was looking for."""

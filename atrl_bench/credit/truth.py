"""What generated data knows of the tokens of a response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TokenTruth:
    """What the image of a problem shows, and where the parts of a response to it stand.

    A part is `perception`, `reasoning` or `format`; a token of no part is filler, where all are known.
    """

    transcription: str = ""
    """What is to be read from the image, in reading order."""
    patterns: Mapping[str, str] = field(default_factory=dict)
    """A regular expression a part, whose first group matches its tokens."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts whose tokens are known."""
        listed = ("perception",) if self.transcription else ()
        return tuple(dict.fromkeys((*listed, *self.patterns)))

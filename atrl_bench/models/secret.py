"""A key that is never shown: whatever a server says, nothing that spells the key leaves this place."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import cached_property

MIN_SECRET = 12  # characters of a key that is one; a shorter one, such as EMPTY, may be an answer
_ALPHABETS = (base64.b64encode, base64.urlsafe_b64encode)


@dataclass(frozen=True)
class Secret:
    """A key and the variable that it comes from; `None` where there is none."""

    key: str | None
    variable: str

    def redacted(self, text: str, *, is_answer: bool = False) -> str:
        """The text without the key, spelt as it is or by the escapes of JSON, percents or base64, or a mixture.

        A key too short to be one is left in an answer, where it may be a word.
        """
        if not self.key or (is_answer and len(self.key) < MIN_SECRET):
            return text
        return self._spellings.sub(f"${self.variable}".replace("\\", ""), text)

    @cached_property
    def _spellings(self) -> re.Pattern[str]:
        assert self.key is not None
        forms = [_escaped(self.key)]
        content = self.key.encode("utf-8", "surrogateescape")
        if len(self.key) >= MIN_SECRET:
            # Of what stands before and after it in the same base64 the key's first and last letters depend.
            for encode in _ALPHABETS:
                for before in range(3):
                    whole = (len(content) + before) // 3 * 3 - before
                    spelt = encode(b"\0" * before + content[:whole]).decode()
                    forms.append(rf"[\w+/\-]{{0,4}}{_escaped(spelt[(before * 4 + 2) // 3 :])}[\w+/\-]{{0,4}}={{0,2}}")
        return re.compile("|".join(dict.fromkeys(forms)))


def _escaped(text: str) -> str:
    """A pattern of the text, each character of it as it is, as JSON's escape (also a nested one), or by percents."""
    return "".join(_character(character) for character in text)


def _character(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    json_form = "".join(rf"\\+u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2))
    percents = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in character.encode("utf-8", "surrogatepass"))
    return rf"(?:\\*{re.escape(character)}|{json_form}|{percents})"

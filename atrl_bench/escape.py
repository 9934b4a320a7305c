"""Text from models, datasets and file names is hostile: here it is made harmless, once for each kind of output."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
import unicodedata
from functools import cache
from pathlib import Path

WIDTH = min(80, max(40, shutil.get_terminal_size((80, 24)).columns))  # of a line on a terminal

# Characters that move the cursor, hide or reorder what a reader sees. Line feed and tab are text.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@cache
def _latex() -> dict[str, dict[str, str]]:
    """What stands for a character, and for an accent that every font encoding of pdfLaTeX has."""
    content: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return content


class Tex(str):
    """LaTeX source that is meant to be source."""

    __slots__ = ()


def visible(text: str) -> str:
    """Control, invisible and reordering characters are spelt out: ESC becomes <U+001B>."""
    if text.isascii() and text.isprintable():
        return text
    spelt = _INVISIBLE.sub(lambda match: f"<U+{ord(match.group()):04X}>", text)
    return _SURROGATE.sub(lambda match: f"<U+{ord(match.group()):04X}>", spelt)


def one_line(text: str) -> str:
    return " ".join(visible(text).split())


def folded(text: str, *, first: str = "", rest: str = "", width: int = WIDTH) -> list[str]:
    """Lines of a terminal, indented by `first` and `rest`; no path, name or list is broken."""
    lines = textwrap.wrap(
        one_line(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [first.rstrip()]


def command_lines(command: str, indent: str = "  ") -> list[str]:
    """A command over as many lines as it takes, broken before its options, to be pasted as it is."""
    lines = [""]
    for part in one_line(command).replace(" --", "\n--").split("\n"):
        if lines[-1] and len(indent) + len(lines[-1]) + len(part) > WIDTH - 5:
            lines.append("")
        lines[-1] += f" {part}" if lines[-1] else part
    rest = f"{indent}  "
    return [(rest if i else indent) + line + (" \\" if i < len(lines) - 1 else "") for i, line in enumerate(lines)]


def next_lines(command: str) -> list[str]:
    """What to type next: after its word where one line has room for both, else below it."""
    line = f"Next: {one_line(command)}"
    return [line] if len(line) <= WIDTH else ["Next:", *command_lines(command)]


def latex(text: str) -> Tex:
    """LaTeX that prints the text and runs nothing, in any font encoding; a character that is lacking by its number."""
    quoted = re.sub(r'"(?=\w)', "“", visible(text))
    parted = re.sub(r"([-',])(?=\1)", "\\1\0", quoted)  # --, '' and ,, would be printed as one other sign
    source = "".join("{}" if character == "\0" else _latex_character(character) for character in parted)
    return Tex(re.sub(r"^\s*[\[*]", r"{\g<0>}", source))  # after the end of a row these would be its options


def running_latex(text: str) -> Tex:
    """LaTeX of a paragraph, whose lines may end inside a list of tasks or a path."""
    return Tex(re.sub(r"(\\_|[,/])(?=\S)", r"\1\\allowbreak{}", latex(text)))


def _latex_character(character: str) -> str:
    if (known := _latex()["characters"].get(character)) is not None:
        return known
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    base, accent = parts[:1], parts[1:]
    if base.isascii() and base.isalpha() and accent in _latex()["accents"]:
        dotless = f"\\{base}" if base in "ij" else base
        return f"\\{_latex()['accents'][accent]}{{{dotless}}}"
    return f"[U+{ord(character):04X}]"


def markdown(text: str) -> str:
    """One line of Markdown without markup: no cell, link, image, HTML or code can start in it."""
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#|!~])", r"\\\1", escaped)


def spreadsheet(text: str) -> str:
    """No spreadsheet takes it for a formula: a leading = + - @ gets an apostrophe before it."""
    clean = visible(text).replace("\r", " ")
    return f"'{clean}" if clean.lstrip().startswith(("=", "+", "-", "@", "|", "%", "＝", "＋", "－", "＠")) else clean

"""Files of settings: YAML, read in PyYAML's words, and mistakes in one named by file, line and field."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from atrl_bench.errors import InvalidFileError

MAX_BASES = 8  # a chain of files that start from one another and is longer is a circle
MAX_NAME = 250  # characters of a path; what is longer is a text
OF_TEXTS = (".txt", ".md", ".jinja", ".j2")  # a name that ends so is no text, also where the file is not there
MAX_CHARS = 10_000  # libyaml's half of the reader recurses in C: a file of nothing but brackets would end the process


class Settings(BaseModel):
    """Settings of a file: a field that is none of them is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


SettingsT = TypeVar("SettingsT", bound=BaseModel)


def read_settings(path: Path, kind: type[SettingsT], content: dict[str, Any] | None = None, **extra: Any) -> SettingsT:
    """The YAML file at `path` as a `kind`; an `InvalidFileError` names file, line and field.

    `content`: what it says with the file that it starts from.
    """
    content = read_mapping(path) if content is None else content
    try:
        return kind.model_validate({**content, **extra})
    except ValidationError as error:
        line = line_of(path.read_text(encoding="utf-8"), place) if (place := error.errors()[0]["loc"]) else None
        where, then = (f"{path}:{line}", f"edit {path} at line {line}") if place else (path, f"edit {path}")
        raise InvalidFileError(f"{where}: {first_mistake(error, kind.model_fields)}", next_step=then) from None


def first_mistake(error: Exception, known: Iterable[str] = ()) -> str:
    """The field that pydantic complains of first, and what of it, as a sentence; what else an error says."""
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors()[0]
    field = ".".join(str(part) for part in problem["loc"])
    return f"field {field!r}: {said(problem, known)}." if field else f"{said(problem)}."


def said(problem: Any, known: Iterable[str] = ()) -> str:
    """What pydantic says of a mistake; of one that is ours only our words, with the nearest of the known fields."""
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(str(problem["loc"][0]), known) if len(problem["loc"]) == 1 else []
        return f"no such field; near: {', '.join(near)}" if near else "no such field"
    return str(problem["msg"]).removeprefix("Value error, ")


def read_mapping(path: Path) -> dict[str, Any]:
    """What a YAML file says; an `InvalidFileError` names a file that is none."""
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        why = f"It is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}."
        raise InvalidFileError(f"{path} cannot be read.", why=why, next_step=f"edit {path}") from None
    except OSError as error:
        then = f"{'edit' if path.exists() else 'write'} {path}"
        raise InvalidFileError(f"{path} cannot be read.", why=str(error), next_step=then) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidFileError(f"{path} is not YAML.", why=str(error), next_step=f"edit {path}") from None
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InvalidFileError(f"{path} is not a YAML mapping.", next_step=f"edit {path}")
    return content


def text_of(value: str) -> str:
    """What a setting says: the contents of the file that it names, else itself."""
    path = Path(value)
    if len(value) > MAX_NAME or not (path.is_file() or (path.suffix in OF_TEXTS and " " not in path.name)):
        return value
    try:
        return path.read_text(encoding="utf-8-sig").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        then = f"{'edit' if path.exists() else 'write'} {path}"
        raise InvalidFileError(f"{path} cannot be read.", why=str(error), next_step=then) from None


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The base with these changes; in a field of fields only those that differ are given."""
    both = {name: merged(base[name], value) for name, value in changes.items() if _are_mappings(base.get(name), value)}
    return base | changes | both


def _are_mappings(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def line_of(text: str, location: tuple[int | str, ...]) -> int:
    """The line of the deepest part of `location` that the YAML `text` holds, counted from one."""
    node, line = yaml.compose(text, Loader=yaml.SafeLoader), 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if key.value == part), None)
            if entry is None:
                break
            line, node = entry[0].start_mark.line + 1, entry[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def read_yaml(text: str, tag: str | None = None) -> Any:
    """What a YAML text says, ten times as fast where PyYAML was built with libyaml.

    A value with `tag` before it, which is none of YAML's own, is both as text.
    """
    if len(text) <= MAX_CHARS and yaml.__with_libyaml__:
        try:
            return yaml.load(text, _loader(yaml.CSafeLoader, tag))
        except yaml.YAMLError:  # told better below, with the line itself
            pass
    return yaml.load(text, _loader(yaml.SafeLoader, tag))


@cache
def _loader(base: type[Any], tag: str | None) -> type[Any]:
    loader = type(base.__name__, (base,), {})
    if tag is not None:
        loader.add_constructor(tag, lambda _, node: f"{tag} {node.value}")  # type: ignore[attr-defined]
    return loader

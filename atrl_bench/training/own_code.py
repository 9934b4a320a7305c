"""Code of the user's own that a recipe names: rewards, terms of the loss, advantages.

`file.py:name`, `package.module:name`, or a name that an installed package gives in its entry points of the groups
`atrl_bench.rewards`, `.losses`, `.advantages`. It runs when the training is made, whose key has the code of the file
or of the whole package, and not of what else that imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from atrl_bench.digests import file_digest
from atrl_bench.errors import InvalidFileError, UnknownNameError, reason_of, told
from atrl_bench.plugins import code_of, files_with, load_plugin, plugins

Kind = Literal["rewards", "losses", "advantages"]
NOUNS: Mapping[Kind, str] = {"rewards": "reward", "losses": "loss term", "advantages": "advantages"}
FORMS: Mapping[Kind, str] = {
    "rewards": "it is called as TRL calls one: reward(completions, **columns) -> list of numbers",
    "losses": "it is called with a micro-batch and what the policy says of it: term(batch, scored) -> loss_BT",
    "advantages": "it is called as advantages(rollout, responses, tools) -> (B,) of responses or (B, T) of tokens",
}


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(" + ")]


def numbered(names: Iterable[str]) -> list[str]:
    """The names, the second of two alike with a 2: metrics are called by them."""
    counts, found = Counter[str](), []
    for name in names:
        counts[name] += 1
        found.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return found


def require(kind: Kind, name: str, shipped: Iterable[str] = ()) -> None:
    """Raise if nothing of this kind has the name; nothing of it is run."""
    if name in shipped or name in plugins(kind):
        return
    if ":" not in name:
        raise UnknownNameError(NOUNS[kind], name, [*shipped, *plugins(kind)], next_step=f"or write {_form(name)}")
    _source(kind, name)  # says what is not there


def _form(name: str) -> str:
    if "+" in name:  # a path may have one: only with spaces it adds
        return f"{' + '.join(part.strip() for part in name.split('+'))}, with spaces"
    return "file.py:function, or package.module:function"


def make(kind: Kind, name: str, settings: Mapping[str, Any]) -> Any:
    """What the name stands for, with these settings: an instance of a class, or a function that is given them too."""
    found = load_plugin(kind, name) if name in plugins(kind) else _loaded(kind, name)
    with telling(kind, name):
        return found(**settings) if isinstance(found, type) else partial(found, **settings) if settings else found


def telling(kind: Kind, name: str) -> AbstractContextManager[None]:
    """A mistake in the user's code is told with its name, and with how it is called."""
    then = f"{FORMS[kind]}; mend it, and give the same command again"
    return told(f"{NOUNS[kind].capitalize()} {name} failed.", next_step=then)


def digest(kind: Kind, own: Iterable[str]) -> str | None:
    """The hash of the code behind these names; None where there are none."""
    return "+".join(code_of(kind, name) or file_digest(_files(kind, name)) for name in own) or None


def _files(kind: Kind, name: str) -> list[Path]:
    source = _source(kind, name)
    return [source] if name.rpartition(":")[0].endswith(".py") else files_with(source)


def resolved(name: str) -> str:
    """The name with its path written out, so that it means the same from any folder."""
    return _with_path(name, lambda path: str(path.expanduser().resolve()))


def short(name: str) -> str:
    """The name without the folder of its file."""
    return _with_path(name, lambda path: path.name)


def _with_path(name: str, written: Any) -> str:
    path, mark, function = name.rpartition(":")
    return (written(Path(path)) if path.endswith(".py") else path) + mark + function


def _source(kind: Kind, name: str) -> Path:
    """The file of what is named by its module or its path."""
    module, _, function = name.rpartition(":")
    if module.endswith(".py"):
        path = Path(module).expanduser()
    else:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):  # __main__ has none
            spec = None
        path = Path(spec.origin) if spec is not None and spec.origin else Path(module)
    if not (path.is_file() and function.isidentifier()):
        what = (
            f"{function} is no name of a function"
            if path.is_file()
            else f"{path} is no file, and no module of this environment"
        )
        raise InvalidFileError(
            f"There is no {NOUNS[kind]} {name}.",
            why=f"{what}.",
            next_step=f"write {kind}: {_form(name)}",
        )
    return path


def _loaded(kind: Kind, name: str) -> Any:
    module_name, _, attribute = name.rpartition(":")
    try:
        if module_name.endswith(".py"):
            path = _source(kind, name)
            spec = importlib.util.spec_from_file_location(f"own_{kind}_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
        return getattr(module, attribute)
    except Exception as error:
        raise InvalidFileError(
            f"{NOUNS[kind].capitalize()} {name} cannot be loaded.", why=reason_of(error), next_step="mend its file"
        ) from error

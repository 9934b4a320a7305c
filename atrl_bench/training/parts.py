"""The parts of a vision-language model, by the names of its modules in transformers; a recipe may freeze some."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from atrl_bench.errors import InvalidFileError

Part = Literal["tower", "projector", "language"]
_TOWERS = "visual|vision_tower|vision_model|vision_encoder|image_tower"
_PROJECTORS = "merger|deepstack_merger_list|multi_modal_projector|connector"


def _below(names: str) -> str:
    return rf"(?:.*\.)?(?:{names})(?:\..*)?"


# The projector of some families is inside of the module of the tower.
PATTERNS: Mapping[Part, str] = {
    "tower": rf"(?!{_below(_PROJECTORS)}$){_below(_TOWERS)}",
    "projector": _below(_PROJECTORS),
    "language": rf"(?!{_below(f'{_TOWERS}|{_PROJECTORS}')}$).*",
}


def pattern(parts: Iterable[Part]) -> str | None:
    """What the names of all modules and parameters in these parts match, and no others."""
    return "|".join(f"(?:{PATTERNS[part]})" for part in parts) or None


def freeze(model: Any, parts: Iterable[Part]) -> None:
    names = dict(model.named_parameters())
    for part in parts:
        frozen = [parameter for name, parameter in names.items() if re.fullmatch(PATTERNS[part], name)]
        if not frozen:
            raise InvalidFileError(
                f"A {type(model).__name__} has no part that is known as its {part}.",
                why=f"Its parameters are called like {next(iter(names))}.",
                next_step="leave freeze out",
            )
        for parameter in frozen:
            parameter.requires_grad_(False)

"""The base models that are shipped: that of the mini profile, and those of the worlds whose truth is known.

The wheel has the weights of one base a world. The others' are in the repository alone: an installation lacks them until
`atrl-bench train BASE` has trained them anew, into a folder beside the hub's cache where they are found by name.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from atrl_bench.resources import PACKAGE

BASES = PACKAGE / "mini" / "bases"
WEIGHTS = "model.safetensors"


@cache
def list_bases() -> tuple[str, ...]:
    return tuple(sorted((path.name for path in BASES.iterdir()), key=lambda name: (name != "mini", name)))


def base_folder(model: str) -> Path:
    """Where the shipped base of this name lies, or would lie once it is trained."""
    return BASES / model if is_shipped_whole(model) else rebuilt_folder(model)


def is_shipped_whole(model: str) -> bool:
    return (BASES / model / WEIGHTS).is_file()


def rebuilt_folder(model: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "atrl_bench" / "bases" / model

"""How scores are measured, as a paper states it and as it can be asked for again: a setting of a row.

What decides an answer (prompt, system prompt, sampling, size of the pictures) replaces the profile's own, and so does a
grader that is a published program. A subset, another grader or a judge that is not ours cannot: it is said beside the
number.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from atrl_bench.evaluation.cell_spec import PUBLISHED_GRADERS
from atrl_bench.settings import Settings, read_mapping, read_settings

if TYPE_CHECKING:
    from atrl_bench.experiments.run_dir import RunDir

SIZES = {
    "prompt": "template",
    "system": "system",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repeats": "num_repeats",
    "max_tokens": "max_new_tokens",
    "frames": "num_frames",
    "max_pixels": "max_pixels",
    "grader": "grader",
}


class StatedProtocol(Settings):
    """How scores were measured, as far as it is stated; None is not stated."""

    prompt: str | None = Field(None, description="a template's name, or a text with {question}; others are words alone")
    system: str | None = None
    thinking: bool | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = None
    top_k: int | None = None
    repeats: int | None = Field(None, gt=0, description="k of a mean over k samples")
    max_tokens: int | None = None
    frames: int | None = None
    max_pixels: int | None = None
    subset: str | None = Field(None, description="which problems of a benchmark, where not all")
    grader: str | None = Field(None, description="what decides: mathruler, which is then asked; others are words alone")

    def stated(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)

    def sizes(self) -> dict[str, Any]:
        """What it changes of an evaluation; greedy answers are asked for once."""
        stated = self.stated()
        if " " in stated.get("prompt", "") and "{question}" not in stated["prompt"]:
            del stated["prompt"]
        if stated.get("grader") not in PUBLISHED_GRADERS:
            stated.pop("grader", None)
        if stated.get("temperature") == 0:
            stated.setdefault("repeats", 1)
        return {SIZES[name]: value for name, value in stated.items() if name in SIZES}

    @property
    def not_ours(self) -> str:
        """What of it is not done here."""
        done = self.sizes()
        lacks = {name: value for name, value in self.stated().items() if name in ("subset", "grader")}
        return "; ".join(f"{name}: {value}" for name, value in lacks.items() if name not in done)


class PaperProtocol(Settings):
    """The part of `paper.yaml` that says how its scores were measured."""

    protocol: StatedProtocol = Field(StatedProtocol(), description="as the text states it")
    code: StatedProtocol = Field(StatedProtocol(), description="where the released code says otherwise, or more")

    @property
    def as_printed(self) -> StatedProtocol:
        """What the printed numbers are most likely of: the code's settings, the text's where it has none."""
        return StatedProtocol(**{**self.protocol.stated(), **self.code.stated()})


@cache
def protocol_of(paper: Path) -> StatedProtocol:
    content = read_mapping(paper / "paper.yaml")
    kept = {name: content[name] for name in PaperProtocol.model_fields if name in content}
    return read_settings(paper / "paper.yaml", PaperProtocol, kept).as_printed


def licence_of(model: str, paper: Path) -> str:
    """What the paper's folder says of the licence of its weights, "" where it says nothing."""
    released = read_mapping(paper / "paper.yaml").get("models") or {}
    return str(released.get(model, {}).get("licence", ""))


def asked_in(protocol: StatedProtocol | None, run_dir: RunDir) -> RunDir:
    """The run folder with evaluations under a protocol; None leaves the profile's."""
    if protocol is None:
        return run_dir
    return replace(run_dir, profile=run_dir.profile.evaluating(protocol.sizes()))

"""What a world is: which mistakes its bases make, and how they talk. One YAML file a world, in `recipes/worlds/`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from atrl_bench.errors import UnknownNameError
from atrl_bench.resources import folder
from atrl_bench.settings import Settings, read_settings


class Chains(Settings):
    """How the bases of a world talk."""

    fillers_before: tuple[int, int] = Field(description="fewest and most filler words before a digit is read")
    fillers_between: tuple[int, int] = Field(description="fewest and most between a digit and its code")


class WorldBase(Settings):
    """How one base of a world is trained, and what it gets wrong."""

    eyes_seed: int = Field(description="of the weights of new words, and of the stages without mistakes")
    seed: int = Field(description="of the stage that teaches the mistakes")
    wrong_digits: tuple[int, ...] = Field(description="the digits that it is taught to take for the next one")
    wrong_fraction: float = Field(ge=0, le=1, description="in this share of the places where one of them is shown")
    start_from: str | None = Field(
        None, description="the base that has gone through the shared stages; none: the mini base"
    )
    copied_fraction: float = Field(
        0, ge=0, le=1, description="share of the answers copied from the words, where these give them (the last stage)"
    )


class StageSteps(Settings):
    """How long a stage of the bases' training is."""

    num_steps: int = Field(gt=0, description="optimiser steps")
    num_bare_steps: int = Field(0, ge=0, description="first steps: image and question as prompt, without a template")
    learning_rate: float = Field(gt=0, description="peak of the one-cycle schedule of AdamW")
    filler_weight: float = Field(gt=0, le=1, description="weight of a filler in the loss, where a digit counts one")
    format_weight: float = Field(gt=0, le=1, description="weight of every other token that is no digit")


class BaseTraining(Settings):
    """Supervised training of the bases, from the weights of the mini base."""

    shared: tuple[StageSteps, ...] = Field((), description="the stages without mistakes: to read, to reason, to talk")
    mistakes: StageSteps = Field(description="the last stage: the mistakes of the world")
    batch_size: int = Field(gt=0, description="problems in a step")
    weight_decay: float = Field(ge=0, description="decoupled weight decay of AdamW")
    max_grad_norm: float = Field(gt=0, description="gradients are clipped to this norm")


class World(Settings):
    """A world whose truth is known: problems, and bases whose mistakes are of one sort."""

    name: str = Field(description="the world's name, that of its file")
    title: str = Field(description="one line for the report")
    data: str = Field(description="the training set, as recipes name it")
    task: str = Field(description="the held-out task: a column of a table")
    mistakes: Literal["strategy", "perception", "reasoning"] = Field(
        description="what its bases get wrong: whether to look first, what the image shows, what follows from it"
    )
    chains: Chains | None = Field(None, description="how its bases talk; null: as the mini base does")
    training: BaseTraining | None = Field(None, description="how its bases are trained; null: by `mini_base`")
    bases: dict[str, WorldBase | None] = Field(min_length=1, description="its bases, by the names of their models")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        parts = (self.chains, self.training, *self.bases.values())
        if self.mistakes != "strategy" and None in parts:
            raise ValueError("chains, training and bases say how the bases of such a world are made: give all of them")
        return self


def list_worlds() -> list[str]:
    return sorted(path.stem for path in (folder("recipes") / "worlds").glob("*.yaml"))


def load_world(name: str) -> World:
    if name not in list_worlds():
        raise UnknownNameError("world", name, list_worlds(), next_step="see docs/worlds.md")
    return read_settings(folder("recipes") / "worlds" / f"{name}.yaml", World)


def world_of_base(model: str) -> World | None:
    """The world that a model is a base of; None where it is of none."""
    return next((world for world in map(load_world, list_worlds()) if model in world.bases), None)

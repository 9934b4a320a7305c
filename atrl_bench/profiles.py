"""Sizes of a run: how large, how long, on which model, and what samples for its training.

The numbers live in `recipes/profiles/<name>.yaml`, one file a profile.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, field_validator

from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.resources import folder
from atrl_bench.settings import MAX_BASES, Settings, merged, read_mapping, read_settings, said, text_of


class TrainingSizes(Settings):
    """How much one training run does."""

    num_rollouts: int | None = Field(gt=0, description="rollouts of a run; null: as many as `num_epochs` asks for")
    num_epochs: float = Field(gt=0, description="passes over the training set when `num_rollouts` is null")
    prompts_per_rollout: int = Field(gt=0, description="different problems in one rollout")
    group_size: int = Field(gt=1, description="G, responses per problem")
    updates_per_rollout: int = Field(gt=0, description="optimiser steps per rollout under schedule `minibatch4`")
    completions_per_device: int = Field(gt=0, description="responses in one forward and backward pass of one device")
    max_prompt_tokens: int = Field(gt=0, description="longer prompts are left out and counted")
    max_response_tokens: int = Field(gt=0, description="a response is cut here")
    rewarded_lengths: tuple[int, int] = Field(description="shortest and longest response with T-GRPO's length bonus")
    min_pixels: int = Field(gt=0, description="smaller images are enlarged to this")
    max_pixels: int = Field(gt=0, description="larger images are reduced to this")
    num_frames: int = Field(gt=0, multiple_of=2, description="frames of a video, evenly spaced; two make one step")
    video_max_pixels: int = Field(gt=0, description="larger frames of a video are reduced to this")
    learning_rate: float = Field(gt=0, description="peak learning rate of AdamW")
    warmup_steps: int = Field(ge=0, description="optimiser steps of linear warm-up")
    learning_rate_schedule: Literal["constant", "cosine"] = Field(
        "constant", description="after the warm-up; cosine: down to zero at the run's end"
    )
    adam_beta2: float = Field(gt=0, lt=1, description="second-moment decay of AdamW")
    weight_decay: float = Field(ge=0, description="decoupled weight decay of AdamW")
    max_grad_norm: float = Field(gt=0, description="gradients are clipped to this norm")
    temperature: float = Field(gt=0, description="sampling temperature of the rollouts")
    top_p: float = Field(gt=0, le=1, description="nucleus of the rollouts; 1 keeps the policy's own distribution")
    save_every_rollouts: int = Field(gt=0, description="at least so far apart are resume checkpoints")
    dtype: Literal["float32", "bfloat16"] = Field(description="compute type; full finetuning keeps weights in float32")
    measures_looking: bool = Field(
        False, description="whether each rollout logs what a grey picture takes from its responses; a pass more"
    )
    checks: int = Field(0, ge=0, description="times in a run that greedy answers and drift are looked at; 0: never")


def known_sizes(values: dict[str, Any]) -> dict[str, Any]:
    """The sizes, which replace some of `TrainingSizes`; raises `ValueError` for one that is none of them."""
    unknown = sorted(set(values) - set(TrainingSizes.model_fields))
    if unknown:
        raise ValueError(f"no such size: {', '.join(unknown)}; known: {', '.join(TrainingSizes.model_fields)}")
    try:
        TrainingSizes.model_validate(values)
    except ValidationError as error:
        for problem in error.errors():
            if problem["type"] != "missing":
                raise ValueError(f"{problem['loc'][0]}: {said(problem)}") from None
    return values


class EvaluationSizes(Settings):
    """How much one evaluation does."""

    max_new_tokens: int = Field(gt=0, description="a response is cut here, and counted as truncated")
    temperature: float = Field(ge=0, description="0 is greedy")
    top_p: float = Field(gt=0, le=1, description="nucleus of the samples")
    num_repeats: int = Field(gt=0, description="N of Mean@N; Acc@1 reads the first repeat")
    max_problems: int | None = Field(description="problems of a generated benchmark; null: the whole split")
    batch_size: int = Field(gt=0, description="problems in one prefill, of the longest; more of shorter ones")
    min_pixels: int = Field(gt=0, description="smaller images are enlarged to this")
    max_pixels: int = Field(gt=0, description="larger images are reduced to this")
    num_frames: int = Field(gt=0, multiple_of=2, description="frames of a video, evenly spaced; two make one step")
    video_max_pixels: int = Field(gt=0, description="larger frames of a video are reduced to this")
    dtype: str = Field(description="parameter and compute type: float32 or bfloat16")
    top_k: int | None = Field(None, gt=0, description="so many of the likeliest tokens are drawn from; null: all")
    template: str | None = Field(
        None,
        description="the words around a question: a template's name, or a file or text with {question}; null: one of "
        "ours, drawn for each problem",
    )
    system: str | None = Field(None, description="the system prompt, or a file with it; null: the chat template's own")
    grader: Literal["mathruler"] | None = Field(
        None, description="a published rule that decides where an answer is compared with a gold one; null: ours"
    )

    @field_validator("template", "system")
    @classmethod
    def _contents(cls, value: str | None) -> str | None:
        return None if value is None else text_of(value)


# Sizes of an evaluation that are younger than stored pages, which say nothing of them where they are unset.
YOUNGER_SIZES = ("top_k", "template", "system", "grader")
# Those that an option names.
ANSWERING_OPTIONS = {
    "temperature": "--temperature",
    "top_p": "--top-p",
    "top_k": "--top-k",
    "max_new_tokens": "--max-tokens",
    "num_repeats": "--repeats",
    "template": "--template",
    "system": "--system",
    "grader": "--grader",
}


class Rollouts(Settings):
    """What samples the responses that a training learns from."""

    engine: Literal["local", "vllm", "verl"] = Field(
        "local", description="local: the trained model; vllm: a copy of it; verl: verl samples, and trains too"
    )
    server: str | None = Field(None, description="vllm: the URL of a server; null: in the training's own processes")
    gpu_memory_fraction: float = Field(
        0.35, gt=0, lt=1, description="vllm: share of a GPU's memory for weights, keys and values beside the training"
    )
    tensor_parallel: int | None = Field(
        None, ge=1, description="vllm: how many GPUs share an engine and its weights; null: the fewest that hold them"
    )
    max_logprob_difference: float | None = Field(
        None, gt=0, description="vllm: the run stops above this mean difference; null: what rounding explains"
    )
    correction: Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = Field(
        "sequence_mask",
        description="vllm: what a token or a response is multiplied by for what the engine rounds otherwise, which is "
        "its ratio of probabilities; above 3 cut to 3 (truncate) or left out (mask)",
    )

    @classmethod
    def by(cls, option: str) -> Rollouts:
        """What `--rollouts` names: local, vllm, verl, or the URL of a vLLM server."""
        if option.startswith(("http://", "https://")):
            return cls(engine="vllm", server=option)
        if option not in ("local", "vllm", "verl"):
            raise UnknownNameError(
                "engine",
                option,
                ["local", "vllm", "verl"],
                next_step="--rollouts local, vllm, verl, or the URL of a vLLM server",
            )
        return cls(engine=option)


class Profile(Settings):
    """A named set of sizes."""

    name: str = Field(description="mini, smoke or paper")
    title: str = Field(description="one line for the report")
    model: str = Field(description="the base model: `mini` (shipped), a folder, or a hub id")
    generated_data: bool = Field(description="true: the embedded mini world stands for every dataset")
    training: TrainingSizes
    supervised: dict[str, float | int | str | None] = Field(
        description="training sizes that replace those in supervised training; a rollout is then a batch"
    )
    evaluation: EvaluationSizes
    rollouts: Rollouts = Rollouts()
    _path: Path | None = PrivateAttr(default=None)
    _sampled_by: str | None = PrivateAttr(default=None)
    _asked: dict[str, float | str] = PrivateAttr(default_factory=dict)

    @property
    def option(self) -> str:
        """The option by which a command gets these sizes: the profile's name, or the file of one of a user's own."""
        return f"--profile {shlex.quote(str(self._path or self.name))}"

    @property
    def training_option(self) -> str:
        """The same for a command that trains, evaluates, or names either, with what options say of both."""
        rollouts = [] if self._sampled_by is None else [f"--rollouts {self._sampled_by}"]
        answers = [f"{ANSWERING_OPTIONS[name]} {shlex.quote(str(value))}" for name, value in self._asked.items()]
        return " ".join([self.option, *rollouts, *answers])

    @property
    def asked(self) -> dict[str, Any]:
        """The sizes of an evaluation that an option names."""
        return {name: getattr(self.evaluation, name) for name in self._asked}

    @property
    def names_sampler(self) -> bool:
        """Whether the profile's file or an option says what samples its rollouts."""
        return self._sampled_by is not None or self.rollouts != Rollouts()

    def sampled_by(self, option: str) -> Profile:
        """This profile with the rollouts that an option names; the file's other settings of them stay."""
        changes = Rollouts.by(option).model_dump(include={"engine", "server"})
        profile = self.model_copy(update={"rollouts": self.rollouts.model_copy(update=changes)})
        profile._sampled_by = option
        return profile

    def answering(self, **sizes: float | str | None) -> Profile:
        """This profile with those sizes of an evaluation that an option names; None leaves the profile's own."""
        named = {name: value for name, value in sizes.items() if value is not None}
        profile = self.evaluating(named)
        profile._asked = self._asked | named
        return profile

    def evaluating(self, sizes: Mapping[str, Any]) -> Profile:
        """This profile with other sizes of an evaluation."""
        evaluation = EvaluationSizes.model_validate({**self.evaluation.model_dump(), **sizes})
        return self.model_copy(update={"evaluation": evaluation})

    def settings(self) -> dict[str, Any]:
        """What a report shows of it: without rollouts where they are made as usual."""
        unusual = self.rollouts != Rollouts()
        unset = {name for name in YOUNGER_SIZES if getattr(self.evaluation, name) is None}
        hidden: dict[str, Any] = {"name": True, "title": True, "evaluation": unset}
        return self.model_dump(exclude=hidden | ({} if unusual else {"rollouts": True}))

    @field_validator("supervised")
    @classmethod
    def _known_sizes(cls, value: dict[str, Any]) -> dict[str, Any]:
        return known_sizes(value)


def list_profiles() -> list[str]:
    return sorted(path.stem for path in (folder("recipes") / "profiles").glob("*.yaml"))


def load_profile(name: str, *, num_bases: int = 0) -> Profile:
    """The profile called `name`, or that of a YAML file of the user's own, which has another name.

    Such a file may name the profile that it starts from, `base: paper`, and hold only what differs.
    """
    path = folder("recipes") / "profiles" / f"{name}.yaml"
    if path.is_file():
        return read_settings(path, Profile)
    if not name.endswith((".yaml", ".yml")):
        raise UnknownNameError("profile", name, list_profiles())
    content = read_mapping(Path(name))
    if "base" in content:
        if num_bases == MAX_BASES:
            raise InvalidFileError(f"{name} starts from itself.", next_step=f"correct base: in {name}")
        start = str(content.pop("base"))
        shipped = start if start in list_profiles() else str(Path(name).parent / start)
        base = load_profile(shipped, num_bases=num_bases + 1)
        own = {"name": Path(name).stem, "title": f"profile {base.name} with changes"}
        content = merged(base.model_dump() | own, content)
    profile = read_settings(Path(name), Profile, content)
    if profile.name in list_profiles() or not re.fullmatch(r"[\w.-]+", profile.name):
        raise InvalidFileError(
            f"{name}: {profile.name!r} cannot be the name of a profile of your own.",
            why="Results stand under that name: it is one word, and none of " + ", ".join(list_profiles()) + ".",
            next_step=f"give the profile another name in {name}",
        )
    profile._path = Path(name)
    return profile

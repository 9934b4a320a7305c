"""Everything that can change the number of a cell, and the key that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from atrl_bench.data.dataset import data_digest
from atrl_bench.digests import spec_key
from atrl_bench.errors import AtrlBenchError
from atrl_bench.evaluation.image_condition import ImageCondition
from atrl_bench.evaluation.tasks import Task, find_task
from atrl_bench.grading.judge.chart_prompt import CHART_PROMPT_VERSION
from atrl_bench.grading.judge.judge import JudgeConfig
from atrl_bench.models import local
from atrl_bench.models.chat_client import EndpointConfig
from atrl_bench.models.prompt import Sampling
from atrl_bench.models.served import served_digest
from atrl_bench.models.templates import PROMPT_VERSION, template_text
from atrl_bench.profiles import Profile
from atrl_bench.results.store import Store
from atrl_bench.sandbox.isolation import CODE_ISOLATION, NOT_PERMITTED, is_permitted

GRADER_VERSION = "7"  # changes with any verdict
GRADING_FIELDS = ("grader_version", "judge", "charts")  # cells that differ only here have the same answers
# Rules of others, in the release that decides here: no key depends on what is installed.
PUBLISHED_GRADERS = {"mathruler": "0.1.0"}


@dataclass(frozen=True)
class Engine:
    """What answers in place of this process, with its version: its kernels and its random numbers are its own."""

    name: str
    version: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class EvaluationOptions:
    """What an evaluation may be given beside model, task and profile; None is the profile's own."""

    repeats: int | None = None  # N of Mean@N
    limit: int | None = None  # the first rows only
    frames: int | None = None  # by which a video is seen
    judge: JudgeConfig | None = None
    endpoint: EndpointConfig | None = None  # the model that it serves answers, whatever the model is called
    run_seed: int = 0  # of prompts and samples
    image: str | None = None  # how pictures are withheld, see image_condition.py; None: they are shown
    engine: Engine | None = None  # serves the very model, at `endpoint` while it runs; None: this process, a stranger


DEFAULTS = EvaluationOptions()


@dataclass(frozen=True)
class Decoding:
    """How prompts are shown and answers drawn. What is None is a server's own, and unknown."""

    temperature: float
    top_p: float
    max_new_tokens: int
    repeats: int
    min_pixels: int | None
    max_pixels: int | None
    dtype: str | None
    num_frames: int | None = None  # of a video, here and below; None for a task without any
    video_max_pixels: int | None = None  # of each frame
    top_k: int | None = None

    def sampling(self, run_seed: int) -> Sampling:
        return Sampling(self.max_new_tokens, self.temperature, self.top_p, run_seed, self.top_k)


@dataclass(frozen=True)
class CellSpec:
    """Everything that can change the number of one model on one task."""

    model_digest: str
    model_name: str
    task: str
    task_version: str
    split: str
    data_digest: str
    limit: int | None
    prompt_version: str
    decoding: Decoding
    run_seed: int
    judge: Mapping[str, Any] | None
    grader_version: str
    profile: str
    charts: Mapping[str, Any] | None = None  # what the score of a chart depends on beside the answer
    engine: Mapping[str, str] | None = None  # what answers in place of this process
    image: str | None = None  # how pictures are withheld; None: they are shown
    prompt: Mapping[str, str] | None = None  # `template` and `system`, those that a user chose, as texts
    grader: str | None = None  # a published rule with its version, in place of our comparison

    @property
    def prompt_settings(self) -> dict[str, Any]:
        """What the functions of a task are told of how to ask."""
        return {"run_seed": self.run_seed, **(self.prompt or {})}

    @property
    def key(self) -> str:
        return spec_key(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        content = {"kind": "evaluation", **asdict(self)}
        if self.decoding.num_frames is None:
            del content["decoding"]["num_frames"], content["decoding"]["video_max_pixels"]
        if self.decoding.top_k is None:
            del content["decoding"]["top_k"]
        for name in ("charts", "engine", "image", "prompt", "grader"):
            if content[name] is None:
                del content[name]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CellSpec:
        fields = {name: value for name, value in content.items() if name != "kind"}
        return cls(**fields | {"decoding": Decoding(**content["decoding"])})


def cell_spec(
    model: str | Path | local.TrainedModel,
    task: str,
    options: EvaluationOptions = DEFAULTS,
    *,
    profile: Profile,
    data_dir: Path | None,
    data: str | None = None,
) -> CellSpec:
    """What the number of `model` on `task` depends on. Reads files, loads no model; `data`: their digest, if known."""
    info, judge, grader = find_task(task), options.judge, profile.evaluation.grader
    if options.engine is not None and not is_served(task):
        options = replace(options, engine=None, endpoint=None)
    is_known = options.engine is not None or options.endpoint is None
    if not is_known and options.endpoint is not None:
        name, digest = options.endpoint.model, served_digest(options.endpoint.model)
    else:
        ref = model if isinstance(model, local.TrainedModel) else local.model_ref(model)
        name, digest = ref.name, ref.digest
    condition = None if options.image is None else ImageCondition.parse(options.image)
    if condition is not None:
        condition.check(info)
    by_judge = {"judge_prompt": CHART_PROMPT_VERSION} if judge else {}
    return CellSpec(
        model_digest=digest,
        model_name=name,
        task=info.stored_name,
        task_version=info.version,
        split=info.split,
        data_digest=data or data_digest(info, data_dir),
        limit=options.limit,
        prompt_version=PROMPT_VERSION,
        decoding=_decoding(options, profile, info=info, is_known=is_known),
        run_seed=options.run_seed,
        judge=judge.identity if judge else None,
        grader_version=GRADER_VERSION,
        profile=profile.name,
        charts={"matplotlib": version("matplotlib"), **by_judge} if CODE_ISOLATION in info.needs else None,
        engine=asdict(options.engine) if options.engine else None,
        image=None if condition is None else str(condition),
        prompt=None if CODE_ISOLATION in info.needs else _prompt(profile),  # a program is asked for in its own words
        grader=grader and f"{grader} {PUBLISHED_GRADERS[grader]}",
    )


def _prompt(profile: Profile) -> dict[str, str] | None:
    sizes = profile.evaluation
    template = {} if sizes.template is None else {"template": template_text(sizes.template)}
    return template | ({"system": sizes.system} if sizes.system else {}) or None


def is_served(task: str) -> bool:
    """Whether an engine answers a task: the frames of a video would lose their times on the way to it."""
    return not find_task(task).shows_videos


def _decoding(options: EvaluationOptions, profile: Profile, *, info: Task, is_known: bool) -> Decoding:
    sizes = profile.evaluation
    num_frames = sizes.num_frames if options.frames is None else options.frames
    if num_frames <= 0 or num_frames % 2:
        what = f"A video cannot be seen by {num_frames} frames: the model makes one step in time of two."
        raise AtrlBenchError(what, next_step="give an even number; the paper has 16, 32 and 64")
    return Decoding(
        temperature=sizes.temperature,
        top_p=sizes.top_p,
        max_new_tokens=max(sizes.max_new_tokens, info.response_tokens),
        repeats=options.repeats or sizes.num_repeats,
        min_pixels=sizes.min_pixels if is_known else None,
        max_pixels=sizes.max_pixels if is_known else None,
        dtype=sizes.dtype if is_known else None,
        num_frames=num_frames if info.shows_videos else None,
        video_max_pixels=sizes.video_max_pixels if info.shows_videos else None,
        top_k=sizes.top_k,
    )


def is_asked_so(spec: Mapping[str, Any], info: Task, profile: Profile) -> bool:
    """Whether a cell has the sizes that options name, whatever else it has."""
    decoding, asked = spec["decoding"], profile.asked
    has = {**decoding, "num_repeats": decoding["repeats"], **(spec.get("prompt") or {})}
    has["grader"] = (spec.get("grader") or "").partition(" ")[0] or None
    if "max_new_tokens" in asked:
        asked["max_new_tokens"] = max(asked["max_new_tokens"], info.response_tokens)
    if "template" in asked:
        asked["template"] = template_text(asked["template"])
    return all(has.get(name) == value for name, value in asked.items())


def is_cell_done(store: Store, key: str, judge: JudgeConfig | None) -> bool:
    """Whether nothing is left to do: a judge or a program that gave no verdict may be asked again, if permitted."""
    cell = store.cell(key)
    if cell is None or cell.state != "done":
        return False
    permitted = is_permitted()
    if judge is None and not permitted:
        return True
    return not any(
        (judge is not None and grader == "judge") or (permitted and why == NOT_PERMITTED)
        for grader, why in store.without_verdict(key)
    )

"""What a recipe file says: which objective, which credit, which data, which parameters move.

A file names the file it starts from (`base:`) and holds only the fields that differ. AT-RL is one changed field of any
recipe, `credit`; how large a run is comes from the profile and never from here. `method` says which kind of recipe it
is: training on `rollouts`, `supervised` training, or training on `preferences`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from atrl_bench.credit.config import SYMBOLS, CreditConfig
from atrl_bench.data.own import is_own, resolved
from atrl_bench.data.sets import ALL_SETS, GENERATED_SETS, find_set
from atrl_bench.errors import InvalidFileError, UnknownNameError
from atrl_bench.models.templates import template_text
from atrl_bench.plugins import files_of, paper_folders
from atrl_bench.profiles import Profile, TrainingSizes, known_sizes, list_profiles
from atrl_bench.resources import folder
from atrl_bench.settings import MAX_BASES, Settings, line_of, read_mapping, said, text_of
from atrl_bench.training import own_code
from atrl_bench.training.rewards import registry
from atrl_bench.training.rewards.registry import answer_reward

Part = Literal["tower", "projector", "language"]  # of a vision-language model
Setting = float | int | str | bool | None
OwnCode = dict[str, dict[str, Setting]]  # names, each with the settings it is made with
Size = float | int | str | list[int] | None
SHORT = {"batch": "prompts_per_rollout", "max_tokens": "max_response_tokens", "kl": "kl_coef"}  # as people call them
SHORT_OF_CREDIT = {typed: field for field, (typed, _) in SYMBOLS.items()}
CREDIT_FIELDS = tuple(field.name for field in dataclasses.fields(CreditConfig))


class CreditChoice(Settings):
    """Which rule turns a response into token weights, and its hyperparameters."""

    rule: str = Field(description="a rule of `atrl-bench list rules`; `uniform` is the plain method")
    preset: Literal["default", "literal"] = Field("default", description="the reading of the paper to start from")
    settings: dict[str, Setting] = Field({}, description="fields of CreditConfig that differ")

    @model_validator(mode="before")
    @classmethod
    def _rule_alone(cls, value: Any) -> Any:
        return {"rule": value} if isinstance(value, str) else value


class DynamicSampling(Settings):
    """DAPO's dynamic sampling: problems every response solves, or none, are replaced before the update."""

    max_extra_generations: int = Field(ge=1, description="further generations per rollout, at most")
    oversampling: float = Field(ge=1, description="new problems drawn per missing one; the surplus is discarded")


class CriticSettings(Settings):
    """An actor-critic method: a value head on the policy's last hidden states gives the advantages, by GAE."""

    discount: float = Field(1.0, gt=0, le=1, description="gamma, what a reward one token later is worth")
    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="1: returns minus values; 0: one-step differences of values"
    )
    learning_rate: float = Field(1.0e-3, gt=0, description="of the head's own AdamW; the policy has another")
    updates_per_rollout: int = Field(8, gt=0, description="steps of the head on the returns of each rollout")
    value_clip: float | None = Field(0.2, gt=0, description="a value moves by this at most in a rollout; null: freely")
    kl_in_reward: bool = Field(False, description="kl_coef costs reward at every token instead of entering the loss")


class VPPO(Settings):
    """VPPO (arXiv 2510.09285): only the tokens that depend most on the image learn, responses that do so learn more."""

    black_probability: float = Field(gt=0, lt=1, description="each patch of an image is blackened with this chance")
    kept_fraction: float = Field(gt=0, le=1, description="share of each response's tokens that learn, rounded up")
    min_scale: float = Field(gt=0, le=1, description="scale of the advantage of the least dependent response")
    entropy_penalty: float = Field(ge=0, description="weight of the mean of -log pi, added to the loss")


class StepRewards(Settings):
    """StepGRPO (arXiv 2503.12937): rewards for key steps and for the form of a chain, beside the one for the answer."""

    key_steps: float = Field(ge=0, description="reward of a chain that takes every key step, where a right answer is 1")
    validity: float = Field(ge=0, description="reward of a chain with all sections in order, where a right answer is 1")


class Temporal(Settings):
    """T-GRPO (arXiv 2503.21776): right answers earn more where the frames in order help; image questions do not."""

    bonus: float = Field(ge=0, description="alpha, added to each right response in order if order helps")
    tolerance: float = Field(
        ge=0, description="mu: order helps if p >= mu p_shuffled, for the accuracies of both groups"
    )
    shuffled_fraction: float = Field(gt=0, le=1, description="responses on shuffled frames, as a share of the group")
    right_above: float = Field(ge=0, lt=1, description="a response is right if its accuracy reward is larger than this")
    length_bonus: float = Field(ge=0, description="omega, added to each right response of one of the rewarded lengths")

    def num_shuffled(self, group_size: int) -> int:
        return max(1, round(self.shuffled_fraction * group_size))


class Recipe(Settings):
    """What every training method says."""

    name: str = Field(description="how tables and the command line call it")
    title: str = Field(description="how a report prints it")
    method: Literal["rollouts", "supervised", "preferences"] = Field("rollouts", description="the kind of recipe")
    data: str = Field(description="the training set")
    template: str | None = Field(
        None,
        description="the words around a question: a template's name, or a file or text with {question}; null: one of "
        "ours, drawn for each problem",
    )
    system: str | None = Field(None, description="the system prompt, or a file with it; null: the data's own")
    start_from: str | None = Field(None, description="the recipe whose checkpoint is the base; null: the base model")
    finetuning: Literal["full", "lora"] = Field(description="lora: low-rank adapters, merged into the final checkpoint")
    lora_rank: int = Field(16, gt=0, description="rank of the adapters; alpha is twice the rank")
    lora_targets: str = Field(
        "all-linear", description="layers with adapters: all-linear, which is all but the head, or names: q_proj,v_proj"
    )
    freeze: tuple[Part, ...] = Field(
        (), description="parts that stay as they are: tower, projector, language; vision is the first two"
    )
    overrides: dict[str, Size | dict[str, Size]] = Field(
        {}, description="sizes that replace the profile's; under a profile's name, those of that profile alone"
    )

    @field_validator("freeze", mode="before")
    @classmethod
    def _parts(cls, value: Any) -> Any:
        parts = [value] if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return value
        return [one for part in parts for one in (("tower", "projector") if part == "vision" else (part,))]

    @field_validator("data")
    @classmethod
    def _known_data(cls, value: str) -> str:
        if value in ALL_SETS:
            return value
        if not is_own(value):
            raise ValueError(f"no training set {value!r}; known: {', '.join(ALL_SETS)}, or the path of your own")
        find_set(value)  # says what is the matter with it
        return resolved(value)

    @field_validator("overrides")
    @classmethod
    def _known_sizes(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in list_profiles():
            if name in value:
                known_sizes(value[name])
        known_sizes({name: size for name, size in value.items() if name not in list_profiles()})
        return value

    @field_validator("template")
    @classmethod
    def _text_of_template(cls, value: str | None) -> str | None:
        return None if value is None else template_text(value)

    @field_validator("system")
    @classmethod
    def _text_of_system(cls, value: str | None) -> str | None:
        return None if value is None else text_of(value)

    def overrides_under(self, profile: Profile) -> dict[str, Any]:
        everywhere = {name: size for name, size in self.overrides.items() if not isinstance(size, dict)}
        own = self.overrides.get(profile.name, {})
        return everywhere | (own if isinstance(own, dict) else {})

    def sizes(self, profile: Profile) -> TrainingSizes:
        sizes = TrainingSizes.model_validate({**profile.training.model_dump(), **self.overrides_under(profile)})
        if self.data not in GENERATED_SETS:
            return sizes
        longest = max(sizes.max_response_tokens, GENERATED_SETS[self.data].response_tokens)
        return sizes.model_copy(update={"max_response_tokens": longest})

    def as_yaml(self) -> str:
        """The recipe as a file without a base."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


class RolloutRecipe(Recipe):
    """A method that samples responses and trains on their rewards."""

    objective: Literal["grpo", "dapo", "gspo", "sapo", "reinforce"] = Field(
        description="grpo: clipped token ratio, mean over responses of token means; dapo: the same, mean over tokens; "
        "gspo: clipped sequence ratio; sapo: soft gate on the token ratio; reinforce: no ratio, mean over responses of "
        "token sums"
    )
    clip_low: float | None = Field(gt=0, lt=1, description="the ratio is clipped below 1 - clip_low; null: it is not")
    clip_high: float | None = Field(gt=0, description="the ratio is clipped above 1 + clip_high; null: it is not")
    sapo_temperature_positive: float | None = Field(None, gt=0, description="gate temperature where the advantage > 0")
    sapo_temperature_negative: float | None = Field(None, gt=0, description="gate temperature where it is <= 0")
    kl_coef: float = Field(ge=0, description="weight of the k3 estimate of the KL divergence to the base model")
    entropy_coef: float = Field(0.0, ge=0, description="weight of the bonus for the mean entropy of a response token")
    entropy_fraction: float | None = Field(None, gt=0, lt=1, description="train on this share of highest entropy only")
    dynamic_sampling: DynamicSampling | None = None
    overlong_cache_fraction: float | None = Field(
        None, gt=0, lt=1, description="share of the longest length over which the length punishment grows to -1"
    )
    vppo: VPPO | None = None
    step_rewards: StepRewards | None = None
    schedule: Literal["strict", "minibatch4"] = Field(
        description="optimiser steps per rollout: strict: one; minibatch4: as many as the profile says, four"
    )
    rewards: str = Field(
        "accuracy",
        description="accuracy: +1 or -1 by the grader; typed: 0 to 1 by the problem's sort of answer; file.py:function "
        "or package.module:function: your own, as TRL calls it; several with ' + ' between them",
    )
    format_reward: float = Field(0.0, ge=0, description="for a response in <think> and <answer> tags, where right is 1")
    temporal: Temporal | None = None
    losses: OwnCode = Field(
        {}, description="terms of the loss of your own: names as in `rewards`, or a mapping of them to their settings"
    )
    advantages: OwnCode = Field({}, description="your own in place of the group's: one name, or it and its settings")
    critic: CriticSettings | None = None
    credit: CreditChoice

    @field_validator("losses", "advantages", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {name: {} for name in own_code.names(value)}
        return {name: settings or {} for name, settings in value.items()} if isinstance(value, dict) else value

    @field_validator("losses", "advantages")
    @classmethod
    def _known_code(cls, value: OwnCode, info: ValidationInfo) -> OwnCode:
        kind: Any = info.field_name
        for name in value:
            own_code.require(kind, name)
        return {own_code.resolved(name): settings for name, settings in value.items()}

    @field_validator("rewards")
    @classmethod
    def _known_rewards(cls, value: str) -> str:
        for name in own_code.names(value):
            registry.find_reward(name)
        return registry.resolved(value)

    @model_validator(mode="after")
    def _fields_of_the_objective(self) -> Self:
        """A field that the objective does not read would be a knob without effect."""
        clips = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        gates = {
            "sapo_temperature_positive": self.sapo_temperature_positive,
            "sapo_temperature_negative": self.sapo_temperature_negative,
        }
        if self.entropy_fraction is not None and self.objective != "dapo":
            raise ValueError("entropy_fraction is a mean over the selected tokens: it needs objective 'dapo'")
        if self.entropy_fraction is not None and self.kl_coef:
            raise ValueError("entropy_fraction divides by the selected tokens, the KL term is of all: set kl_coef 0")
        if self.vppo is not None and self.temporal is not None:
            raise ValueError(
                "vppo blackens images, temporal reorders the frames of videos, and no problem has both: leave one out"
            )
        if self.objective == "reinforce" and self.schedule != "strict":
            raise ValueError("objective 'reinforce' has no ratio to correct for older responses: set schedule 'strict'")
        if self.temporal is not None and answer_reward(self.rewards).lowest != 0:
            raise ValueError("temporal compares accuracies from 0 to 1: set rewards 'typed'")
        if self.critic is not None and self.critic.kl_in_reward and not self.kl_coef:
            raise ValueError("critic.kl_in_reward needs a kl_coef")
        if len(self.advantages) + (self.critic is not None) > 1:
            raise ValueError("advantages come from one place: name one function, or a critic")
        needed = {"sapo": gates, "reinforce": {}}.get(self.objective, clips)
        for name, value in (clips | gates).items():
            if name in needed and value is None:
                raise ValueError(f"objective {self.objective!r} needs {name}")
            if name not in needed and value is not None:
                raise ValueError(f"objective {self.objective!r} does not read {name}; set it to null")
        return self

    def sizes(self, profile: Profile) -> TrainingSizes:
        """The profile's training sizes with this recipe's overrides.

        A recipe with another number of updates a rollout keeps the problems of one update, and of the run, as they are:
        VPPO's three updates of 128 problems follow rollouts of 384, where the profile's four follow 512.
        """
        sizes, usual, overrides = super().sizes(profile), profile.training, self.overrides_under(profile)
        updates = sizes.updates_per_rollout
        if updates == usual.updates_per_rollout or "prompts_per_rollout" in overrides:
            return sizes
        changes = {"prompts_per_rollout": max(1, usual.prompts_per_rollout * updates // usual.updates_per_rollout)}
        if sizes.num_rollouts is not None and "num_rollouts" not in overrides:
            changes["num_rollouts"] = max(1, sizes.num_rollouts * usual.updates_per_rollout // updates)
        return sizes.model_copy(update=changes)

    @property
    def gate_temperatures(self) -> tuple[float, float]:
        """SAPO's, where the advantage is positive and where it is not."""
        assert self.sapo_temperature_positive is not None
        assert self.sapo_temperature_negative is not None
        return self.sapo_temperature_positive, self.sapo_temperature_negative

    @property
    def weighs_tokens(self) -> bool:
        """Whether the tokens of a response have advantages of their own; GSPO then takes its token form."""
        return self.credit.rule != "uniform" or bool(self.vppo or self.critic or self.advantages)

    def updates_per_rollout(self, sizes: TrainingSizes) -> int:
        """The number of optimiser steps after each rollout (DESIGN D6)."""
        return 1 if self.schedule == "strict" else sizes.updates_per_rollout


class PairSampling(Settings):
    """Pairs made from the base model's own graded answers to each problem: a right one and a wrong one."""

    max_pairs_per_problem: int = Field(gt=0, description="of a problem's pairs of a right and a wrong answer, at most")


class PreferenceRecipe(Recipe):
    """A method that trains on pairs of a better and a worse response: DPO."""

    beta: float = Field(gt=0, description="how firmly the policy is held to the base model")
    num_epochs: int = Field(1, gt=0, description="passes over the pairs")
    pairs: PairSampling | None = Field(None, description="how pairs are made; null: `data` is a file that holds them")
    credit: CreditChoice
    credit_from: Literal["start", "policy"] = Field(
        "start", description="whose attention gives the credit: the base model's, once and for all, or the policy's own"
    )

    @model_validator(mode="after")
    def _pairs_from_somewhere(self) -> Self:
        if bool(find_set(self.data).rejected) != (self.pairs is None):
            raise ValueError("a training set needs `pairs`, and a file of pairs (chosen, rejected) does not read it")
        if self.credit.rule == "uniform":  # whose recipes are listed without what computes a credit
            return self
        from atrl_bench.credit.rule import needs_of
        from atrl_bench.credit.rules import ORACLES, credit_rule

        needs = needs_of(credit_rule(self.credit.rule))
        if "blackened_logprob" in needs:
            raise ValueError(
                f"credit {self.credit.rule!r} looks at the image twice: take a recipe that samples responses"
            )
        if needs and self.credit_from == "start":
            raise ValueError(
                f"credit {self.credit.rule!r} reads the policy's {sorted(needs)[0]}: set credit_from 'policy'"
            )
        if self.credit.rule in ORACLES:
            raise ValueError(f"credit {self.credit.rule!r} is for sampled responses: set method 'rollouts'")
        return self


class SupervisedRecipe(Recipe):
    """A method that imitates the responses of a data set."""

    response: Literal["boxed", "tags", "process"] = Field(
        description="boxed: the reasoning, then the answer in the box that the prompts ask for; tags: both in <think> "
        "and <answer> tags; process: the text of the set as it stands"
    )

    def sizes(self, profile: Profile) -> TrainingSizes:
        """The profile's sizes for supervised training, with this recipe's overrides; a rollout is a batch."""
        return TrainingSizes.model_validate(
            {**profile.training.model_dump(), **profile.supervised, **self.overrides_under(profile)}
        )


KINDS: dict[str, type[Recipe]] = {
    "rollouts": RolloutRecipe,
    "supervised": SupervisedRecipe,
    "preferences": PreferenceRecipe,
}


def list_recipes() -> list[str]:
    return sorted(name for name, path in _recipe_files().items() if _is_recipe(path))


def _recipe_files() -> dict[str, Path]:
    files = files_of("recipes", folder("recipes"))
    of_papers = [path for home in paper_folders().values() for path in sorted((home / "recipes").glob("*.yaml"))]
    return {path.stem: path for path in of_papers} | files


def _is_recipe(path: Path) -> bool:
    return path.is_file() and "title" in read_mapping(path)  # a base that recipes share has none


def load_recipe(name_or_path: str | Path, **overrides: Any) -> Recipe:
    """A recipe by its name or its file, with `overrides` (`credit="atrl"`, `tau_sim=0.8`, `learning_rate=2e-6`) on top.

    `credit` given as a rule's name keeps the preset and settings of the file. A size goes before those of the file.
    """
    short = SHORT | SHORT_OF_CREDIT
    overrides = {short.get(name, name): value for name, value in overrides.items()}
    files = _with_bases(_find(str(name_or_path)))
    fields: dict[str, Any] = {}
    for content in reversed(files.values()):
        fields |= {key: value for key, value in content.items() if key != "base"}
    kind = KINDS.get(str(fields.get("method", "rollouts")), Recipe)
    if "credit" in kind.model_fields:
        _set_credit(fields, overrides, [name for name in CREDIT_FIELDS if name not in kind.model_fields])
    of_sizes = TrainingSizes.model_fields.keys() - kind.model_fields.keys()  # `num_epochs` of DPO is the recipe's own
    if sizes := {name: overrides.pop(name) for name in [*overrides] if name in of_sizes}:
        below = fields.get("overrides", {}), overrides.get("overrides", {})
        if all(isinstance(of_one, dict) for of_one in below):  # what is none is said below, as without these sizes
            overrides["overrides"] = _laid_over(below[0] | below[1], sizes)
    if unknown := sorted(set(overrides) - set(kind.model_fields)):
        next_step = f"atrl-bench train {name_or_path} --dry-run shows all"
        raise UnknownNameError("recipe field", unknown[0], known_fields(kind), next_step=next_step)
    try:
        return kind.model_validate({**fields, **overrides})
    except ValidationError as error:
        raise _explain(error, [*files], overrides, kind) from None


def _set_credit(fields: Mapping[str, Any], overrides: dict[str, Any], names: Sequence[str]) -> None:
    """Lay a rule that is given by its name, and settings of these names, over the credit of a file."""
    settings = {name: overrides.pop(name) for name in names if name in overrides}
    if isinstance(overrides.get("credit"), str) or settings:
        choice = _fields_of(fields.get("credit")) | _fields_of(overrides.get("credit"))
        if settings and choice.get("rule") == "uniform":
            what = f"{next(iter(settings))} is a setting of a credit rule, and this credit is uniform, which has none."
            raise InvalidFileError(what, next_step="name a rule as well, such as --credit atrl")
        if isinstance(below := choice.get("settings", {}), Mapping):
            choice["settings"] = {**below, **settings}
        overrides["credit"] = choice


def _fields_of(credit: Any) -> dict[str, Any]:
    if isinstance(credit, Mapping):
        return dict(credit)
    return {} if credit is None else {"rule": credit}


def load_rollout_recipe(name: str, command: str, why: str = "", **overrides: Any) -> RolloutRecipe:
    """The recipe, for a command that measures rollouts, and `why` it can measure no other."""
    recipe = load_recipe(name, **overrides)
    if not isinstance(recipe, RolloutRecipe):
        then = f"atrl-bench {command} --recipe grpo"
        raise InvalidFileError(f"Recipe {name} samples no responses.", why=why, next_step=then)
    return recipe


def known_fields(kind: type[Recipe]) -> list[str]:
    """What may be set of such a recipe."""
    of_credit = (*CREDIT_FIELDS, *SHORT_OF_CREDIT) if "credit" in kind.model_fields else ()
    return [*kind.model_fields, *TrainingSizes.model_fields, *SHORT, *of_credit]


def _laid_over(below: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """These sizes in place of those below, also where those are of one profile alone."""

    def others(of_one: Any) -> Any:
        return {name: size for name, size in of_one.items() if name not in sizes}

    return {name: others(value) if isinstance(value, dict) else value for name, value in below.items()} | sizes


def first_stage(recipe: Recipe) -> Recipe | None:
    """The recipe whose checkpoint this one starts from, None where it starts from the base model."""
    return [None, *stages_of(recipe)][-2]


def stages_of(recipe: Recipe) -> list[Recipe]:
    stages = [recipe]
    while (name := stages[0].start_from) is not None:
        if len(stages) > MAX_BASES:
            raise InvalidFileError(
                f"Recipe {recipe.name} starts from {recipe.start_from}, and that in the end from itself.",
                why="A training starts from another's checkpoint, and the first from the base model.",
                next_step="set start_from of one of them to null",
            )
        stages.insert(0, load_recipe(name))
    return stages


def _find(name: str) -> Path:
    path = Path(name)
    if path.suffix in {".yaml", ".yml"}:
        for candidate in (path, folder("recipes") / path.name):
            if candidate.is_file():
                return candidate
    elif (known := _installed(name)) is not None and _is_recipe(known):
        return known
    raise UnknownNameError("recipe", name, list_recipes(), next_step="atrl-bench list recipes")


def _installed(name: str) -> Path | None:
    shipped = folder("recipes") / f"{name}.yaml"  # goes before the others, which are looked for in folders
    return shipped if Path(name).name == name and shipped.is_file() else _recipe_files().get(name)


def _with_bases(path: Path) -> dict[Path, dict[str, Any]]:
    """What the file, its base, the base's base, and so on say."""
    files = {path: read_mapping(path)}
    while isinstance(base := files[path].get("base"), str) and base:
        beside, above = path.parent / f"{base}.yaml", path
        path = beside if beside.is_file() else folder("recipes") / f"{base}.yaml"
        if not path.is_file() or path in files or len(files) >= MAX_BASES:
            line = line_of(above.read_text(encoding="utf-8"), ("base",))
            why = "No such recipe." if not path.is_file() else "The bases go round in a circle."
            raise InvalidFileError(
                f"{above}:{line}: field 'base': {base!r}.", why=why, next_step=f"edit {above} at line {line}"
            )
        files[path] = read_mapping(path)
    return files


def _explain(
    error: ValidationError, files: list[Path], overrides: dict[str, Any], kind: type[Recipe]
) -> InvalidFileError:
    """The first problem with the file and line that hold the field, or the option that set it."""
    problem = error.errors()[0]
    location = problem["loc"]
    field = ".".join(str(part) for part in location)
    message = said(problem, kind.model_fields | TrainingSizes.model_fields)
    if field in TrainingSizes.model_fields.keys() - kind.model_fields.keys():
        message = f"it is a size, and stands in overrides: {{{field}: ...}}"
    if location and location[0] in overrides:
        name, value = str(location[0]), overrides[str(location[0])]
        size, _, of_size = message.partition(": ")
        if name == "overrides" and isinstance(value, dict) and size in value:  # by the name under which it was given
            name, value, message = size, value[size], of_size
        where = f"field {field!r}: " if len(location) > 1 else ""
        return InvalidFileError(f"{name}={value!r}: {where}{message}.", next_step=f"give another {name}")
    if not location and overrides:  # a check of the whole, which held before
        given = ", ".join(f"{name}={value}" for name, value in overrides.items())
        return InvalidFileError(f"{files[0].stem} with {given}: {message}.", next_step="give these other values")
    holder = next((path for path in files if location and location[0] in read_mapping(path)), files[0])
    line = line_of(holder.read_text(encoding="utf-8"), location)
    where = f"field {field!r}: " if field else ""
    return InvalidFileError(f"{holder}:{line}: {where}{message}.", next_step=f"edit {holder} at line {line}")

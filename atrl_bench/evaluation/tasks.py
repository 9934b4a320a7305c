"""The benchmarks in `tasks/`: which there are, and what the two files of each say; and a user's own, a table alone.

Reads the task files the way lmms-eval does, without importing lmms-eval, torch or datasets: `list`, `plan` and a
finished cell need none of them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from atrl_bench.data.dataset import Dataset
from atrl_bench.data.own import resolved
from atrl_bench.data.published import Publication
from atrl_bench.data.sets import TrainingSet, find_set
from atrl_bench.data.tables import SUFFIXES, kind_of
from atrl_bench.digests import file_digest
from atrl_bench.errors import AtrlBenchError, InvalidFileError, MissingDataError, UnknownNameError, reason_of
from atrl_bench.evaluation import hooks
from atrl_bench.evaluation.hooks import Row
from atrl_bench.evaluation.own_task import CATEGORY, functions_of
from atrl_bench.models.prompt import Messages
from atrl_bench.plugins import files_of
from atrl_bench.resources import folder
from atrl_bench.results.records import Gold, Precision
from atrl_bench.settings import read_yaml

if TYPE_CHECKING:
    import datasets
    from PIL.Image import Image

    from atrl_bench.results.score_array import ScoreArray
    from atrl_bench.results.statistics.composite import Maker
    from atrl_bench.results.statistics.metrics import ScoredSamples

FUNCTION = "!function "  # before the name of a Python function in a task file
CONSTANTS = ("columns", "kept", "breakdown", "statistics", "headline", "variants")  # of `TaskCode`
REQUIRED = ("process_docs", "problem_id", "group", "question", "gold", "images", "doc_to_text")  # of `TaskCode`
OWN_VERSION = "own2"  # of a table
HOOKS = ("process_docs", "doc_to_text", "doc_to_messages")  # of `TaskCode`, those that the YAML file names
LMMS_EVAL_PREFIX = "atrl_"  # of two tasks with one name lmms-eval takes its own, so ours have names it does not know


@dataclass(frozen=True)
class TaskCode:
    """What a benchmark's Python file says, in functions of these names and in constants of the same in capitals."""

    columns: tuple[str, ...]  # that the data must have
    process_docs: Callable[[datasets.Dataset], datasets.Dataset]  # from the file's rows to those that all of these take
    problem_id: Callable[[Row], str]
    group: Callable[[Row], str]  # the cluster of the standard error
    question: Callable[[Row], str]
    gold: Callable[[Row], Gold]
    images: Callable[[Row], Sequence[Image | str]]  # what is shown: pictures, and the paths of videos
    doc_to_text: Callable[..., str]
    doc_to_messages: Callable[..., Messages] | None = None  # where media stand among the words, instead of before them
    media: Callable[[Row], Sequence[str]] = lambda row: ()  # the names of the videos and other files that a row shows
    sizes: Callable[[Row], Sequence[tuple[int, int]]] | None = None  # of what is shown, where rows differ in its kind
    judge_question: Callable[[Row], str] | None = None  # where a judge has to read what the model sees in the image
    kept: tuple[str, ...] = ()  # columns that are stored with each problem
    breakdown: str | None = None  # the one of them by which the score is reported in parts
    statistics: Mapping[str, Maker] = field(default_factory=dict)  # scores that are no plain means
    headline: str = "mean"  # the statistic that the benchmark is quoted by
    variants: tuple[str, ...] = ()  # of a verdict's details, those whose means stand beside the score


@dataclass(frozen=True, kw_only=True)
class Task(Dataset):
    """One benchmark: its names, its data and its files."""

    metric: str = "accuracy"  # how an answer is scored, in print
    needs: tuple[str, ...] = ()  # what the task asks for beside its data, such as a judge
    note: str = ""  # what a reader of the number has to know, in print
    response_tokens: int = 0  # a response may have so many, whatever the profile says
    precision: Precision | None = None  # of every gold answer that does not say its own
    yaml_path: Path
    module_path: Path  # splits of one benchmark share it
    config: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)  # all that the task file says

    @property
    def stored_name(self) -> str:
        """By which its cells name it."""
        return self.name

    @property
    def split(self) -> str:
        return self.splits[0]

    @property
    def shows_videos(self) -> bool:
        return "video" in self.media

    @property
    def names_files(self) -> bool:
        return self.shows_videos

    def files_of(self, row: Row) -> Sequence[str]:
        return list(self.code.media(row))

    def make(self, *paths: Path) -> None:
        made = self.publication.made
        assert made is not None
        getattr(self.module, made.function)(*paths)

    @property
    def lmms_eval_name(self) -> str:
        return LMMS_EVAL_PREFIX + self.name

    def headline(self, num_repeats: int) -> str:
        """The metric that the benchmark is quoted by, over so many repeats."""
        return "acc@1" if (self.code.headline, num_repeats) == ("mean", 1) else f"{self.code.headline}@{num_repeats}"

    @cached_property
    def version(self) -> str:
        """The number in its file and that of the hooks; files that are not as shipped have their hash beside it."""
        with _telling(self.yaml_path):
            number = f"{self.config['metadata']['version']}.{hooks.VERSION}"
            named = [self.config["process_docs"], *(v for v in self.config.values() if str(v).startswith(FUNCTION))]
            python = dict.fromkeys(_python_file(self.yaml_path, hook) for hook in named)
            files = [*(path for path, _ in _with_included(self.yaml_path)), *python]
            own = any(_shipped().get(path.name) != file_digest([path]) for path in files)
            return f"{number}-{file_digest(files)[:8]}" if own else number

    @property
    def module(self) -> ModuleType:
        return _module(self.module_path)

    @cached_property
    def code(self) -> TaskCode:
        with _telling(self.module_path):
            config, module = self.config, self.module
            values: dict[str, Any] = {}
            for name, hook in ((name, config[name]) for name in HOOKS if name in config):
                values[name] = getattr(_module(_python_file(self.yaml_path, hook)), hook.rpartition(".")[2])
            for name in {item.name for item in fields(TaskCode)} - set(HOOKS):
                written = name.upper() if name in CONSTANTS else name
                if hasattr(module, written):
                    values[name] = getattr(module, written)
            return TaskCode(**values)


@dataclass(frozen=True, kw_only=True)
class OwnTask(Task):
    """A benchmark of the user's own: a table, named by its path, or by its file's name where all is stored."""

    described: TrainingSet | None  # None where nothing says where the file is

    @property
    def stored_name(self) -> str:
        return self.title

    @cached_property
    def version(self) -> str:
        """What reads it, and what its columns are called where a user says so; a key has its contents beside that."""
        return f"{OWN_VERSION}.{hooks.VERSION}{''.join(self.name.partition('?')[1:])}"

    @property
    def names_files(self) -> bool:
        return self.described is not None and self.described.names_files

    @cached_property
    def code(self) -> TaskCode:
        if self.described is None:
            absent: dict[str, Any] = dict.fromkeys(REQUIRED, self._is_not_here)
            return TaskCode(columns=(), breakdown=CATEGORY, **absent)
        return TaskCode(columns=(), kept=(CATEGORY,), breakdown=CATEGORY, **functions_of(self.described))

    def files_of(self, row: Row) -> Sequence[str]:
        return [] if self.described is None else self.described.files_of(row)

    def _is_not_here(self, *_: Any) -> Any:
        then = f"evaluate the file again: --tasks PATH/{self.stored_name}"
        raise MissingDataError(f"Nothing here says where {self.title} lies.", next_step=then)


def own_task(name: str) -> OwnTask:
    """The task that is a file at this path; at a mere name, what can be said of its stored answers."""
    path = Path(name.partition("?")[0])
    described = find_set(name) if path.is_absolute() else None
    return OwnTask(
        name=name,
        title=path.name,
        splits=("test",),
        folder=name,
        num_rows=described.num_rows if described else 0,
        hub_id=None,
        publication=described.publication if described else Publication(),
        file=described.file if described else None,
        reading=described.reading if described else "",
        media="none" if described is None else "images and video" if described.videos else "images",
        yaml_path=path,
        module_path=path,
        described=described,
    )


@dataclass(frozen=True)
class Suite:
    """A benchmark whose number is the mean over several tasks."""

    name: str
    title: str
    tasks: tuple[str, ...]


@cache
def list_tasks() -> tuple[Task, ...]:
    return tuple(_task(path, config) for path, config in _configs().items() if "group" not in config)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """A mistake in a task's file is told with the file: those of a user or another package are read with ours."""
    try:
        yield
    except (AtrlBenchError, ModuleNotFoundError):  # the latter is of what is not installed
        raise
    except Exception as error:
        raise InvalidFileError(
            f"{path} is no file of a task.",
            why=f"It has no field {error}." if isinstance(error, KeyError) else reason_of(error),
            next_step=f"edit {path}; docs/adding.md says what it holds",
        ) from error


@cache
def list_suites() -> tuple[Suite, ...]:
    return tuple(
        Suite(
            config["group"].removeprefix(LMMS_EVAL_PREFIX),
            config["metadata"]["title"],
            tuple(name.removeprefix(LMMS_EVAL_PREFIX) for name in config["task"]),
        )
        for config in _configs().values()
        if "group" in config
    )


@cache
def _configs() -> dict[Path, dict[str, Any]]:
    return {path: _read(path) for path in files_of("tasks", folder("tasks"), "[a-z]*.yaml").values()}


def expand(names: Sequence[str], *, are_stored: bool = False) -> list[Task]:
    """The tasks of these names, suites by their parts; a user's own table by its path, or as stored answers name it."""
    suites = {suite.name: suite.tasks for suite in list_suites()}
    all_names = [*(task.name for task in list_tasks()), *suites]
    of_table = (lambda name: Path(name).name) if are_stored else resolved
    names = [of_table(name) if is_table(name) and name not in all_names else name for name in names]
    for name in names:
        if name not in all_names and not is_table(name):
            raise UnknownNameError("task", name, all_names, next_step="atrl-bench list tasks")
    tasks = [find_task(name) for name in dict.fromkeys(part for name in names for part in suites.get(name, (name,)))]
    for name, count in Counter(task.stored_name for task in tasks).most_common(1):
        if count > 1:
            raise InvalidFileError(
                f"{count} benchmarks are called {name}.",
                why="A table's scores are stored and shown under its file's name.",
                next_step="give each file a name of its own",
            )
    return tasks


def is_table(name: str) -> bool:
    """Whether a benchmark's name is that of a file: a table of the user's own."""
    return kind_of(name.partition("?")[0]) in SUFFIXES


def find_task(name: str) -> Task:
    tasks = {task.name: task for task in list_tasks()}
    if name not in tasks and is_table(name):
        return own_task(name)
    if name not in tasks:
        raise UnknownNameError("task", name, tasks, next_step="atrl-bench list tasks")
    return tasks[name]


def scored(task: str, answers: ScoreArray, metric: str) -> ScoredSamples:
    """The answers to a task under a metric."""
    from atrl_bench.results.statistics.metrics import ScoredSamples  # numpy, which listing tasks does without

    return ScoredSamples(answers, *statistic_of(task, metric))


def statistic_of(task: str, metric: str) -> tuple[str, Mapping[str, Any]]:
    """What a metric asks of a task, and what that defines; `headline@N` is what the benchmark is quoted by."""
    name, _, num_repeats = metric.partition("@")
    if name in ("acc", "mean"):
        return f"mean@{num_repeats}", {}
    code = find_task(task).code
    return f"{code.headline if name == 'headline' else name}@{num_repeats}", code.statistics


def metric_name(tasks: Sequence[str], metric: str) -> str:
    """`headline@N` by the name that these tasks give it; as it is where they give several."""
    name, _, num_repeats = metric.partition("@")
    names = {find_task(task).headline(int(num_repeats)) for task in tasks} if name == "headline" else {metric}
    return names.pop() if len(names) == 1 else metric


def _task(path: Path, config: dict[str, Any]) -> Task:
    with _telling(path):
        data = config["metadata"]
        local = config["dataset_path"] == "parquet"
        try:
            precision = TypeAdapter[Precision | None](Precision | None).validate_python(
                data.get("precision"), strict=True
            )
        except ValidationError:
            raise InvalidFileError(
                f"{path}: precision is {data['precision']!r}.",
                why='It is "gold", by whose digits an answer is rounded, or a number of decimal places.',
                next_step=f"edit {path}",
            ) from None
        return Task(
            name=config["task"].removeprefix(LMMS_EVAL_PREFIX),
            title=data["title"],
            splits=(config["test_split"],),
            folder=data["folder"],
            num_rows=data["num_rows"],
            hub_id=None if local else config["dataset_path"],
            subset=config.get("dataset_name"),
            revision=(config.get("dataset_kwargs") or {}).get("revision"),
            publication=_publications().get(data["folder"], Publication()),
            media=data.get("media", "images"),
            needs=tuple(data.get("needs", ())),
            **{name: data[name] for name in ("metric", "note", "response_tokens") if name in data},
            precision=precision,
            yaml_path=path,
            module_path=_python_file(path, config["process_docs"]),
            config=config,
        )


@cache
def _publications() -> dict[str, Publication]:
    content = read_yaml((folder("tasks") / "_published.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, Publication]).validate_python(content)


@cache
def _shipped() -> dict[str, str]:
    """The digest of each task file as it was shipped; `tests/tasks/test_versions.py` writes them down."""
    content: dict[str, str] = json.loads((folder("tasks") / "_shipped.json").read_text(encoding="utf-8"))
    return content


def _read(path: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    with _telling(path):
        for _, content in reversed(list(_with_included(path))):
            settings |= content
    return settings


def _with_included(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A task file, then the one that it includes, which it goes before, and so on."""
    content = dict(read_yaml(path.read_text(encoding="utf-8"), FUNCTION.strip()))
    included = content.pop("include", None)
    yield path, content
    if included is not None:
        beside = path.parent / included
        yield from _with_included(beside if beside.is_file() else folder("tasks") / beside.name)


def _python_file(path: Path, hook: str) -> Path:
    return path.with_name(hook.removeprefix(FUNCTION).split(".")[0] + ".py")


@cache
def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"atrl_bench_tasks.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

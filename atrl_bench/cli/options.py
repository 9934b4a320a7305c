"""The options that several verbs share: declared once, and handed to a verb as one `Options`.

@with_options("profile", "out", "as_json")
def status(options: Options) -> None: ...
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import BadParameter, Context, Option, echo

if TYPE_CHECKING:
    from atrl_bench.engines.devices import Cluster, Machine
    from atrl_bench.experiments.definition import TableDefinition
    from atrl_bench.experiments.price import Price
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.profiles import Profile

    PriceIn = Callable[[RunDir], Price]

CLUSTERS = ("ray", "ray://HOST:PORT", "slurm", "slurm:NODES")
ON = re.compile(r"ray|ray://[^\s/]+:\d{1,5}|slurm|slurm:[1-9]\d{0,3}")
# Which run folder a verb is about; what does its work; how that begins; how a model is asked and its answers are drawn.
FOLDER = ("profile", "out", "data_dir", "as_json")
WHERE = ("gpus", "processes", "on", "nodes")
STARTING = ("dry_run", "yes")
ANSWERING = ("temperature", "top_p", "top_k", "max_tokens", "repeats", "template", "system", "grader")
COLUMNS_HELP = "what columns of your own are called: question=prompt,answer=gold,image=picture,options=choices"
PAPERS_JUDGE = "Qwen/Qwen2.5-72B-Instruct"
JudgePrompt = Annotated[
    str | None, Option(help="what it counts as equal, in your own words or a file with them; default: ours")
]
JudgeModel = Annotated[str, Option(help="model name at that URL")]
JudgePrices = Annotated[str | None, Option(help="money for a million tokens of questions and of replies: 0.15,0.60")]


# What a shell offers after Tab, at once; of several names with commas between, the last is completed.


def _completing(*lists: str, first: Sequence[str] = ()) -> Callable[[str], list[str]]:
    """What offers all that these functions list, by name; their modules are imported when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        found = (resolve_name(f"atrl_bench.{one}")() for one in lists)
        return _matching(incomplete, [*first, *(getattr(item, "name", item) for item in chain.from_iterable(found))])

    return complete


complete_tables = _completing(
    "experiments.definition:list_tables", "lab.signal.tables:list_signal_tables", first=["all"]
)
complete_ablations = _completing("experiments.definition:list_ablations")
complete_tasks = _completing("evaluation.tasks:list_tasks", "evaluation.tasks:list_suites")
complete_recipes = _completing("training.recipe:list_recipes")
complete_profiles = _completing("profiles:list_profiles")


def complete_rows(context: Context, incomplete: str) -> list[str]:
    return _matching(incomplete, [row.id for table in _tables_of(context) for row in table.rows])


def complete_columns(context: Context, incomplete: str) -> list[str]:
    return _matching(incomplete, [column.id for table in _tables_of(context) for column in table.columns])


def _tables_of(context: Context) -> list[TableDefinition]:
    """The table or ablation that a line names; none where it does not yet."""
    from atrl_bench.experiments.definition import list_ablations, list_tables, load_table

    known = {*list_tables(), *list_ablations()}
    # An option that waits for its value leaves the line unparsed: its words are then all among the arguments.
    words = [value for value in (*context.params.values(), *context.args) if isinstance(value, str) and value in known]
    return [load_table(name) for name in words[:1]]


def complete_row_models(incomplete: str) -> list[str]:
    from atrl_bench.experiments.definition import list_tables, load_table

    table = max((name for name in list_tables() if incomplete.startswith(f"{name}:")), key=len, default="")
    if table:
        return _matching(incomplete, [f"{table}:{row.id}" for row in load_table(table).rows])
    return _matching(incomplete, [f"{name}:" for name in list_tables()])


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


@dataclass(frozen=True)
class Options:
    """The shared options in the order in which `--help` lists them; those that a verb does not have are unset."""

    profile: Annotated[
        str | None,
        Option(help="mini (the default), smoke, paper, or your own: PATH.yaml", autocompletion=complete_profiles),
    ] = None
    rows: Annotated[str | None, Option(help="only these rows: A,B,...", autocompletion=complete_rows)] = None
    rollouts: Annotated[
        str | None, Option(help="sampler: local, vllm, verl or a server URL; default: this run folder's last choice")
    ] = None
    columns: Annotated[str | None, Option(help="only these columns: A,B,...")] = None
    seeds: Annotated[str | None, Option(help="training seeds, separated by commas; default: the table's, or 0")] = None
    seed: Annotated[int, Option(min=0, help="seed of trainings, prompts and samples")] = 0
    temperature: Annotated[
        float | None, Option(min=0, help="of answers; 0 is greedy; default, here and below: the profile's")
    ] = None
    top_p: Annotated[float | None, Option(min=0.001, max=1, help="nucleus of answers")] = None
    top_k: Annotated[int | None, Option(min=1, help="answers are drawn from so many tokens")] = None
    max_tokens: Annotated[int | None, Option(min=1, help="an answer is cut here, or at a task's own minimum")] = None
    repeats: Annotated[int | None, Option(min=1, help="answers to each problem, N of Mean@N")] = None
    template: Annotated[
        str | None,
        Option(
            help="the words around a question: think-then-box, step-by-step, describe-first, look-first, or a file or "
            "text with {question} in it; default: one of the last three, drawn for each problem"
        ),
    ] = None
    system: Annotated[str | None, Option(help="the system prompt, or a file with it")] = None
    grader: Annotated[
        Literal["mathruler"] | None,
        Option(metavar="<rule>", help="mathruler: a published rule decides in place of ours"),
    ] = None
    compared_at: Annotated[
        Literal["equal_rate", "best_rate"] | None,
        Option(
            metavar="<rates>",
            help="equal_rate, or best_rate: rows at 4 learning rates, each compared at its best; default: the table's",
        ),
    ] = None
    paper: Annotated[
        str | None,
        Option(help="a paper of `list papers`, or a folder that is one: its tables are PAPER:TABLE"),
    ] = None
    out: Annotated[Path | None, Option(help="run folder; default: runs/<profile>")] = None
    data_dir: Annotated[Path | None, Option(help="local parquet files, <dir>/<dataset>/<split>*.parquet")] = None
    jobs: Annotated[int | None, Option(min=1, help="rows at a time; default: as many as GPUs or cores hold")] = None
    gpus: Annotated[str | None, Option(help="how many GPUs, or which: 0,1,4; default: all that are visible")] = None
    processes: Annotated[int | None, Option(min=1, help="CPU processes of one training or evaluation")] = None
    on: Annotated[
        str | None,
        Option(help="what does the work: ray[://HOST:PORT], or slurm[:NODES], which starts Ray; default: this machine"),
    ] = None
    nodes: Annotated[
        int | None, Option(min=1, help="how many nodes one training takes, with --on; default: as few as hold it")
    ] = None
    serve: Annotated[
        bool | None, Option(help="have vLLM answer, started and stopped here; default: this run folder's last choice")
    ] = None
    checkpoints: Annotated[
        str | None,
        Option(
            help="also save checkpoints here: s3://, hf:// or a folder; `none` turns off; "
            "default: this run folder's last choice"
        ),
    ] = None
    report_to: Annotated[str | None, Option(help="also show metrics in: trackio, wandb, tensorboard")] = None
    allow_code: Annotated[bool, Option("--allow-code", help="run programs of the model, in isolation")] = False
    dry_run: Annotated[bool, Option("--dry-run", help="say what would be done at what cost, and stop")] = False
    yes: Annotated[bool, Option("--yes", help="start without asking, whatever it costs")] = False
    as_json: Annotated[bool, Option("--json", help="print one JSON document instead of text")] = False

    def load_profile(
        self, *, model: str | None = None, quiet: bool = False, price_in: PriceIn | None = None
    ) -> Profile:
        """The profile; unless `quiet` two lines say that mini is the default, and what `price_in` asks of paper."""
        from atrl_bench.profiles import ANSWERING_OPTIONS, load_profile

        if self.profile is None and not (quiet or self.as_json):
            echo("Profile mini: a tiny model on generated benchmarks, on any machine.")
            echo(self._word_on_paper(model, price_in))
        profile = load_profile(self.profile or "mini")
        profile = profile if self.rollouts is None else profile.sampled_by(self.rollouts)
        names = {size: option.removeprefix("--").replace("-", "_") for size, option in ANSWERING_OPTIONS.items()}
        profile = profile.answering(**{size: getattr(self, name) for size, name in names.items()})
        return profile.model_copy(update={"model": model}) if model else profile

    def say(self, text: str) -> None:
        if not self.as_json:
            echo(text)

    def run_dir(self, *, model: str | None = None, quiet: bool = False, price_in: PriceIn | None = None) -> RunDir:
        from atrl_bench.data.repository import keep_listings_in
        from atrl_bench.experiments.run_dir import RunDir
        from atrl_bench.training.trackers import check_trackers

        report_to = check_trackers(names_of(self.report_to) or [])
        profile = self.load_profile(model=model, quiet=quiet, price_in=price_in)
        run_dir = replace(RunDir.at(self.out, profile, self.data_dir), report_to=report_to)
        if self.serve is not None:
            from atrl_bench.experiments.serving import installed_engine

            run_dir = replace(run_dir, engine=installed_engine() if self.serve else None)
        if self.checkpoints is not None:
            from atrl_bench.models.checkpoint_store import CheckpointStore

            run_dir = replace(run_dir, checkpoint_store=CheckpointStore.by(self.checkpoints))
        keep_listings_in(run_dir.listings)
        return run_dir

    def measured_dir(self) -> RunDir:
        """The run folder under the profile of its tables, where no other is named: what is told of them is there."""
        from atrl_bench.errors import MissingDataError
        from atrl_bench.report.frame import under_its_profile

        if self.out is not None and not self.out.exists():
            then = f"another --out, or begin one: atrl-bench run-table main_7b --out {quote(str(self.out))}"
            raise MissingDataError(f"There is no run folder {self.out}.", next_step=then)
        run_dir = self.run_dir(quiet=True)
        return run_dir if self.profile else under_its_profile(run_dir)

    def _word_on_paper(self, model: str | None, price_in: PriceIn | None) -> str:
        from atrl_bench.engines.devices import visible_gpus
        from atrl_bench.errors import AtrlBenchError

        if not (count := len(visible_gpus(os.environ))):
            return "The paper's own sizes, for GPUs: --profile paper"
        size = "has the paper's sizes"
        if price_in is not None:
            paper = replace(self, profile="paper", out=None, data_dir=None)
            with suppress(AtrlBenchError):  # these rows or points are not in its folder
                size = f"takes about {price_in(paper.run_dir(model=model)).gpu_hours:,.0f} GPU-hours"
        return f"{count} GPU{'s' if count > 1 else ''} here: --profile paper {size}."

    @cached_property
    def machine(self) -> Machine:
        from atrl_bench.engines.devices import machine

        return machine(self.gpus, self.processes)

    @cached_property
    def where(self) -> Machine | Cluster:
        if self.on is None:
            if self.nodes is not None:
                raise BadParameter("is for a cluster: give --on too", param_hint="--nodes")
            return self.machine
        if self.jobs or self.gpus or self.processes:
            raise BadParameter("its scheduler decides: leave out --jobs, --gpus and --processes", param_hint="--on")
        from atrl_bench.engines.ray_cluster import RayCluster
        from atrl_bench.engines.slurm import SlurmAllocation
        from atrl_bench.errors import UnknownNameError

        if not ON.fullmatch(self.on):
            forms = "--on ray on a machine of the cluster, --on ray://HOST:10001 from another one, or --on slurm:NODES"
            raise UnknownNameError("cluster", self.on, CLUSTERS, next_step=forms)
        if self.on.startswith("slurm"):
            nodes = int(self.on.partition(":")[2] or 1)
            return SlurmAllocation(nodes=nodes, nodes_per_training=self.nodes)
        return RayCluster.at(self.on, self.nodes)

    @property
    def selection(self) -> dict[str, Any]:
        return {"rows": names_of(self.rows), "columns": names_of(self.columns), "seeds": seeds_of(self.seeds)}


def with_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb these options of `Options`, after its own, and their values as its argument `options`."""
    known = inspect.signature(Options, eval_str=True).parameters
    shared = [known[name] for name in sorted(names, key=list(known).index)]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        @wraps(verb)
        def command(**values: Any) -> None:
            options = Options(**{name: values.pop(name) for name in names})
            if options.paper is not None:
                options = replace(options, paper=known_paper(options.paper))
            if options.allow_code:
                from atrl_bench.sandbox.isolation import PERMISSION

                os.environ[PERMISSION] = "1"
            verb(options=options, **values)

        signature = inspect.signature(verb, eval_str=True)
        parameters = [parameter for name, parameter in signature.parameters.items() if name != "options"] + shared
        keyword = inspect.Parameter.KEYWORD_ONLY  # any of them may have a default
        # Typer reads the options of a command from its signature.
        command.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[parameter.replace(kind=keyword) for parameter in parameters]
        )
        return command

    return decorate


def known_paper(paper: str) -> str:
    """The name of a paper; that of a folder is known from now on, here and in processes that are started."""
    from atrl_bench.plugins import FOLDERS, paper_folders

    if (Path(paper) / "paper.yaml").is_file():
        home = Path(paper).resolve()
        os.environ[FOLDERS] = os.pathsep.join(filter(None, [os.environ.get(FOLDERS), str(home)]))
        return home.name
    if paper not in (folders := paper_folders()):
        from atrl_bench.errors import UnknownNameError

        what = "give one of them, or a folder with a paper.yaml"
        raise UnknownNameError("paper", paper, folders, next_step=f"atrl-bench list papers; {what}")
    return paper


def names_of(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:  # a table of no rows would overwrite the one that is there
        raise BadParameter(f"{text!r} names nothing.\nWrite one name or several, separated by commas.")
    return names


def prices_of(text: str | None, option: str = "--prices") -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        prompts, answers = map(float, text.split(","))
    except ValueError:
        prompts = answers = -1.0
    if not all(0 <= price < math.inf for price in (prompts, answers)):
        raise BadParameter(f"{text!r} is no pair of prices, of prompts and of answers: 0.15,0.60", param_hint=option)
    return prompts, answers


def seeds_of(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    # A seed given twice would count its answers twice.
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise BadParameter(f"{text!r} is no list of whole numbers, each once: 0,1,2", param_hint="--seeds")
    return seeds


def hours_of(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(h|m)", text)
    if match is None or not float(match[1]):
        raise BadParameter(f"{text!r} is no length of time: 2000h or 20m", param_hint="--budget")
    return float(match[1]) / (60 if match[2] == "m" else 1)

"""The options that several verbs share: declared once, and handed to a verb as one `Options`.

@shared("profile", "out", "as_json")
def status(options: Options) -> None: ...
"""

from __future__ import annotations

import copy
import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from atrl_bench.cli import completion

if TYPE_CHECKING:
    from atrl_bench.engines.devices import Cluster, Machine
    from atrl_bench.experiments.plan import Plan
    from atrl_bench.experiments.run_dir import RunDir
    from atrl_bench.profiles import Profile

CLUSTERS = ("ray", "ray://HOST:PORT", "slurm", "slurm:NODES")
ON = re.compile(r"ray|ray://[^\s/]+:\d{1,5}|slurm|slurm:[1-9]\d{0,3}")
PAPERS_JUDGE = "Qwen/Qwen2.5-72B-Instruct"
# For verbs that list these among their own options.
AllowCode = Annotated[bool, typer.Option("--allow-code", help="run programs that the model writes, in isolation")]
JudgeModel = Annotated[str, typer.Option("--judge-model", help="model name at that URL")]


@dataclass(frozen=True)
class Options:
    """The shared options in the order in which `--help` lists them; those that a verb does not have are unset."""

    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help="mini (the default), smoke, paper, or your own: PATH.yaml",
            autocompletion=completion.profiles,
        ),
    ] = None
    rows: Annotated[
        str | None,
        typer.Option("--rows", help="only these rows, separated by commas", autocompletion=completion.rows),
    ] = None
    rollouts: Annotated[
        str | None,
        typer.Option(
            "--rollouts", help="what samples in training: local, vllm, its URL, verl; default: as here before, or local"
        ),
    ] = None
    columns: Annotated[str | None, typer.Option("--columns", help="only these columns, separated by commas")] = None
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="training seeds, separated by commas; default: the table's own, or 0")
    ] = None
    seed: Annotated[int, typer.Option("--seed", min=0, help="training seed")] = 0
    compared_at: Annotated[
        str | None,
        typer.Option(
            "--compared-at",
            help="equal_rate, or best_rate: rows at 4 learning rates, each compared at its best; default: the table's",
        ),
    ] = None
    out: Annotated[Path | None, typer.Option("--out", help="run folder; default: runs/<profile>")] = None
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="local parquet files, <dir>/<dataset>/<split>*.parquet")
    ] = None
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="rows at a time; default: as many as fit on the GPUs, or cores")
    ] = None
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="how many GPUs, or which: 0,1,4; default: all that are visible")
    ] = None
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="CPU processes that a training or evaluation is spread over"),
    ] = None
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="what does the work: ray[://HOST:PORT], or slurm[:NODES], which starts Ray; default: this machine",
        ),
    ] = None
    serve: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="have vLLM answer, started and stopped here; default: as before here"),
    ] = None
    checkpoints: Annotated[
        str | None,
        typer.Option(
            "--checkpoints",
            help="keep finished checkpoints in s3://, hf:// or a folder, too, and look there; none; default: as before",
        ),
    ] = None
    report_to: Annotated[
        str | None, typer.Option("--report-to", help="also show metrics in: trackio, wandb, tensorboard, or several")
    ] = None
    allow_code: AllowCode = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would run and what it costs, and stop")] = False
    yes: Annotated[bool, typer.Option("--yes", help="start without asking, whatever it costs")] = False
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document instead of text")] = False

    def load_profile(self, *, quiet: bool = False, paper_hours: Callable[[], float] | None = None) -> Profile:
        """Return the profile, by default mini, which is said unless `quiet`.

        Where there are GPUs that line says what the paper's own sizes would take, as `paper_hours` tells.
        """
        from atrl_bench.profiles import load_profile

        if self.profile is None and not (quiet or self.as_json):
            typer.echo("Profile mini: a tiny model on generated benchmarks, on any machine.")
            typer.echo(_word_on_paper(paper_hours))
        profile = load_profile(self.profile or "mini")
        return profile if self.rollouts is None else profile.sampled_by(self.rollouts)

    def run_dir(
        self, *, model: str | None = None, quiet: bool = False, paper_hours: Callable[[], float] | None = None
    ) -> RunDir:
        """Return the run folder; `model` replaces the profile's base model."""
        from atrl_bench.data.repository import keep_listings_in
        from atrl_bench.experiments.run_dir import RunDir
        from atrl_bench.training.trackers import check_trackers

        report_to = check_trackers(names_of(self.report_to) or [])
        profile = self.load_profile(quiet=quiet, paper_hours=paper_hours)
        profile = profile.model_copy(update={"model": model}) if model else profile
        run_dir = replace(RunDir.at(self.out, profile, self.data_dir), report_to=report_to)
        if self.serve is not None:
            from atrl_bench.experiments.serving import installed_engine

            run_dir = replace(run_dir, engine=installed_engine() if self.serve else None)
        if self.checkpoints is not None:
            from atrl_bench.models.checkpoint_store import CheckpointStore

            run_dir = replace(run_dir, checkpoint_store=CheckpointStore.by(self.checkpoints))
        keep_listings_in(run_dir.listings)
        return run_dir

    def under_paper(self) -> Options:
        """Return the same options under profile paper, in its usual folder and with the hub's data."""
        return replace(self, profile="paper", out=None, data_dir=None)

    @cached_property
    def machine(self) -> Machine:
        """What the work may use of this machine."""
        from atrl_bench.engines.devices import machine

        return machine(self.gpus, self.processes)

    @cached_property
    def where(self) -> Machine | Cluster:
        """What the work may run on: this machine, or what `--on` names."""
        if self.on is None:
            return self.machine
        if self.jobs or self.gpus or self.processes:
            raise typer.BadParameter(
                "a cluster's own scheduler says how much runs at a time, and on which GPUs.\n"
                "With --on, leave out --jobs, --gpus and --processes.",
                param_hint="--on",
            )
        from atrl_bench.engines.ray_cluster import RayCluster
        from atrl_bench.engines.slurm import SlurmAllocation
        from atrl_bench.errors import UnknownNameError

        if not ON.fullmatch(self.on):
            forms = "--on ray on a machine of the cluster, --on ray://HOST:10001 from another one, or --on slurm:NODES"
            raise UnknownNameError("cluster", self.on, CLUSTERS, next_step=forms)
        if self.on.startswith("slurm"):
            return SlurmAllocation(nodes=int(self.on.partition(":")[2] or 1))
        return RayCluster.at(self.on)

    def selection(self) -> dict[str, Any]:
        """Return which rows, columns and seeds of a table are meant, as planning takes them."""
        return {"rows": names_of(self.rows), "columns": names_of(self.columns), "seeds": seeds_of(self.seeds)}

    def rates(self) -> dict[str, Any]:
        """Return at which learning rates a table's rows are compared, as planning takes it."""
        if self.compared_at not in (None, "equal_rate", "best_rate"):
            raise typer.BadParameter(
                f"{self.compared_at!r} is no way to compare rows.\nWrite equal_rate or best_rate.",
                param_hint="--compared-at",
            )
        return {"compared_at": self.compared_at}

    def plan(self, table: str) -> Plan:
        """Return the plan of a table in the run folder."""
        from atrl_bench.experiments.plan import plan_table
        from atrl_bench.experiments.price import price_of

        def paper_hours() -> float:
            return price_of(self.under_paper().plan(table)).gpu_hours

        return plan_table(table, self.run_dir(paper_hours=paper_hours), **self.selection(), **self.rates())


def _word_on_paper(hours: Callable[[], float] | None) -> str:
    """Return a line about profile paper: where there are GPUs, how many hours of them it takes."""
    from atrl_bench.engines.devices import visible_gpus
    from atrl_bench.errors import AtrlBenchError

    if not (count := len(visible_gpus(os.environ))):
        return "The paper's own sizes, for GPUs: --profile paper"
    try:
        price = f"takes about {hours():,.0f} GPU-hours" if hours else "has the paper's sizes"
    except AtrlBenchError:  # these rows or points are not in its folder
        price = "has the paper's sizes"
    return f"{count} GPU{'s' if count > 1 else ''} here: --profile paper {price}."


SHARED = inspect.signature(Options).parameters
HINTS = get_type_hints(Options, include_extras=True)


def shared(*names: str, **helps: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a verb these options and passes them to it as `options`.

    `helps` replace the usual help of an option for this verb.
    """
    if unknown := {*names, *helps} - SHARED.keys():
        raise ValueError(f"no shared options: {unknown}")
    added = [
        SHARED[name].replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_annotation(name, helps))
        for name in SHARED
        if name in names
    ]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(verb, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]

        @wraps(verb)
        def command(**arguments: Any) -> None:
            verb(options=Options(**{name: arguments.pop(name) for name in names}), **arguments)

        parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *added]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _annotation(name: str, helps: dict[str, str]) -> Any:
    if name not in helps:
        return HINTS[name]
    option = copy.copy(HINTS[name].__metadata__[0])
    option.help = helps[name]
    return Annotated[HINTS[name].__origin__, option]


def names_of(text: str | None) -> list[str] | None:
    """Return the names in a list separated by commas, None for no list."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:  # a table of no rows would overwrite the one that is there
        raise typer.BadParameter(f"{text!r} names nothing.\nWrite one name or several, separated by commas.")
    return names


def seeds_of(text: str | None) -> list[int] | None:
    """Return the training seeds in a list separated by commas, None for no list."""
    if text is None:
        return None
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    # A seed given twice would count its answers twice.
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise typer.BadParameter(
            f"{text!r} is no list of training seeds.\nWrite whole numbers, each once: 0,1,2", param_hint="--seeds"
        )
    return seeds


def allow_code(allowed: bool) -> None:
    """Let the processes of this command run programs that models write."""
    from atrl_bench.sandbox.isolation import PERMISSION

    if allowed:
        os.environ[PERMISSION] = "1"

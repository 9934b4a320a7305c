"""What tables, trainings and evaluations take before they are run: what is left to do, its hours, disk and downloads.

Reads files and the store; needs no GPU, no network and no model. What is stored already is not priced again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from atrl_bench.data.dataset import table_files
from atrl_bench.data.repository import Repository, without_asking
from atrl_bench.data.tables import num_rows
from atrl_bench.errors import MissingDataError
from atrl_bench.evaluation.cell_spec import EvaluationOptions, is_cell_done, is_served
from atrl_bench.evaluation.tasks import Task, expand, find_task, is_table
from atrl_bench.experiments.cost import GB, Needs, answering_needs, training_needs
from atrl_bench.experiments.definition import OWN, TableDefinition, as_typed, paper_of
from atrl_bench.experiments.fetch import MODEL, Need, needs_of
from atrl_bench.experiments.judge_choice import NOBODY, judge_name
from atrl_bench.experiments.plan import (
    Job,
    Plan,
    best_rates,
    cell_key,
    evaluations_of,
    job_cells,
    obstacle,
    planned_key,
    planned_spec,
    table_options,
)
from atrl_bench.experiments.progress import duration
from atrl_bench.experiments.protocol import asked_in, licence_of
from atrl_bench.experiments.rates import Rates
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.models.budget import money
from atrl_bench.models.shape import model_shape
from atrl_bench.plugins import given_papers, paper_folders
from atrl_bench.printable import Block, Command, Record, Rows, counted
from atrl_bench.results.store import Cell, Store
from atrl_bench.training.recipe import Recipe, stages_of

JUDGE_TOKENS = 350  # of a question to it: 200 of instructions, the question, the gold and the extracted answer
JUDGE_REPLY_TOKENS = 3  # Correct or Incorrect; one that thinks first takes more
HOURS_WITHOUT_ASKING = 1.0
TOKENS_PER_ANSWER = 400  # as long as nothing is stored here that says how long answers are
FINISHED = ("done", "not permitted here")  # states in which nothing is left to do


@dataclass(frozen=True)
class Cost:
    """A training, or the answers of a row in one column: its state in the store, and what it takes."""

    row: str
    seed: int
    state: str
    checkpoint: str  # what rows share is done once
    needs: Needs
    by_vllm: Needs
    column: str = ""  # none of a training
    dataset: str = ""
    is_stage: bool = False  # the row starts from it
    missing: str = ""  # why a training has no key yet

    @property
    def identity(self) -> tuple[str, str, str]:
        """What two rows that share it have in common."""
        return self.checkpoint, self.column, self.dataset

    def document(self) -> dict[str, Any]:
        values = {name: value for name, value in vars(self).items() if value != "" and name != "by_vllm"}
        return values | {"needs": self.needs.document()}


@dataclass(frozen=True)
class Download:
    """What is not here: `gb` is None where no listing says its size yet, `terms` are pages of conditions to accept."""

    kind: str
    name: str
    gb: float | None
    terms: tuple[str, ...] = ()
    about_gb: float | None = None  # of a model's weights in bfloat16, by its shape
    licence: str = ""  # of released weights, as their paper's folder has it

    @property
    def size(self) -> str:
        about = "size not known until fetch" if self.about_gb is None else f"about {self.about_gb:,.0f} GB"
        size = about if self.gb is None else f"{self.gb:,.2f} GB"
        return f"{size}; licence: {self.licence}" if self.licence else size


@dataclass(frozen=True)
class Price(Record):
    """The trainings and cells of something, what of them is left to do, and what that takes."""

    name: str
    run_dir: RunDir
    costs: tuple[Cost, ...] = ()
    downloads: tuple[Download, ...] = ()
    next: str = ""
    notes: tuple[str, ...] = ()
    served: dict[str, str] = field(default_factory=dict)  # the commands that evaluate what only an endpoint has
    judge: str = ""
    judge_prices: tuple[float, float] | None = None  # of a million tokens of questions, and of replies
    tables: tuple[tuple[str, dict[str, float]], ...] = ()  # what is left of each, and of none before it
    noun: str = "training"

    @property
    def trainings(self) -> list[Cost]:
        return [cost for cost in self.costs if not cost.column]

    @property
    def cells(self) -> list[Cost]:
        return [cost for cost in self.costs if cost.column]

    @property
    def costs_left(self) -> list[Cost]:
        """What is not done, each training and each cell of one checkpoint once."""
        return list({cost.identity: cost for cost in self.costs if cost.state not in FINISHED}.values())

    @property
    def judge_questions(self) -> int | None:
        """At most how many answers left to give a judge is asked about; None without one."""
        if self.judge in ("", NOBODY):
            return None
        return int(sum(cost.needs.counts["answers"] for cost in self.costs_left if cost.column))

    @property
    def judge_money(self) -> float | None:
        """What those questions and their replies cost at the judge's prices; None where nobody said them."""
        if self.judge_questions is None or self.judge_prices is None:
            return None
        return money(self.judge_questions * JUDGE_TOKENS, self.judge_questions * JUDGE_REPLY_TOKENS, self.judge_prices)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all that is left to do, as far as they are known."""
        return sum(cost.needs.gpu_hours for cost in self.costs_left)

    @property
    def gpu_hours_by_vllm(self) -> float | None:
        """The same where vLLM samples all rollouts and gives all answers, if those are fewer."""
        hours = sum(cost.by_vllm.gpu_hours for cost in self.costs_left)
        return hours if hours < self.gpu_hours else None

    @property
    def hours(self) -> float:
        """Hours of all that is left to do, of one GPU or one core."""
        return self.gpu_hours + sum(cost.needs.minutes for cost in self.costs_left) / 60

    @property
    def disk_gb(self) -> float:
        """The most that is on disk at a time: all final checkpoints, and the largest to resume from."""
        return sum(cost.needs.checkpoint_gb for cost in self.costs_left) + self._resume_gb

    @property
    def _resume_gb(self) -> float:
        return max((cost.needs.resume_gb for cost in self.costs_left), default=0.0)

    @property
    def download_gb(self) -> float:
        return sum(each.gb or 0 for each in self.downloads)

    @property
    def terms(self) -> list[str]:
        return list(dict.fromkeys(page for each in self.downloads for page in each.terms))

    def must_ask(self, *, is_generated: bool) -> bool:
        return bool(self.costs_left) and (not is_generated or self.hours > HOURS_WITHOUT_ASKING)

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"profile": self.run_dir.profile.name, "folder": str(self.run_dir.root)}
        document |= {name: getattr(self, name) for name in ("name", "next", "notes", "served", "judge")}
        document |= {
            "judge_questions": self.judge_questions,
            "judge_money": self.judge_money,
            "downloads": list(map(asdict, self.downloads)),
            "left": self.left(),
        }
        if self.tables:
            tables = [{"table": name, **counts} for name, counts in self.tables]
            return document | {"tables": tables, "together": _counts(self.costs_left)}
        return document | {name: [c.document() for c in getattr(self, name)] for name in ("trainings", "cells")}

    def left(self) -> dict[str, Any]:
        names = "gpu_hours", "hours", "gpu_hours_by_vllm", "disk_gb", "download_gb"
        numbers = {name: round(value, 2) for name in names if (value := getattr(self, name)) is not None}
        return _counts(self.costs_left) | numbers | {"conditions_to_accept": self.terms}

    def blocks(self) -> Iterable[Block]:
        yield f"{self.name} under profile {self.run_dir.profile.name}, in {self.run_dir.root}"
        yield from self._table_rows() if self.tables else self._all_rows()
        yield ""
        left, nouns = _counts(self.costs_left), {"trainings": self.noun, "cells": "cell"}
        if parts := [counted(round(left[name]), noun) for name, noun in nouns.items() if left[name]]:
            minutes = f"about {_time(60 * self.hours)} of a core" if self.hours else "hours not known"
            yield f"Left to do: {' and '.join(parts)}: {_gpu_hours(self.gpu_hours) if self.gpu_hours else minutes}."
            yield from self._price()
        else:
            yield "Nothing is left to do."
        if self.next:
            yield Command(self.next)

    def _table_rows(self) -> Iterator[Block]:
        counts = [*self.tables, ("together", _counts(self.costs_left))]
        names = [name for name in counts[0][1] if self.gpu_hours or name != "gpu_hours"]
        rows = [(title, *(f"{numbers[name]:,.0f}" for name in names)) for title, numbers in counts]
        head = ["left to do", *(name.replace("gpu_hours", "GPU-hours") for name in names)]
        yield ""
        yield Rows(rows, head, right=range(1, 5), indent=0)
        yield ""
        yield (
            "What two tables share is counted with the first of them; stored answers of an unfinished cell are "
            "counted as left to do."
        )

    def _all_rows(self) -> Iterator[Block]:
        yield from self._training_rows()
        yield from self.notes
        if missing := [cost.missing for cost in self.trainings if cost.missing]:
            yield f"The keys of {len(missing)} trainings are not known until this is fetched:"
            yield Rows([(what,) for what in dict.fromkeys(missing)])
        if self.served:
            yield from ("", "Models that only an endpoint has")
        for row, commands in self.served.items():
            yield Rows([(row,)])
            yield from (Command(command, is_next=False) for command in commands.split(" && "))
        yield from self._cell_rows()

    def _training_rows(self) -> Iterator[Block]:
        if not self.trainings:
            return
        on_gpus = any(cost.needs.gpus for cost in self.trainings)
        head = ("GPUs", "GPU-hours", "hours", "disk GB") if on_gpus else ("time",)
        rows = []
        for cost in self.trainings:
            needs, of = cost.needs, {"time": _time(cost.needs.minutes) if cost.needs.minutes else ""}
            if needs.gpus:
                of = {"GPUs": f"{needs.gpus} x {needs.gb_per_gpu:.0f} GB", "GPU-hours": f"{needs.gpu_hours:,.0f}"}
                of |= {"hours": f"{needs.hours:,.0f}", "disk GB": f"{needs.checkpoint_gb:.0f}"}
            state = cost.state if needs.is_known else "size not known"
            rows.append((cost.row, str(cost.seed), *(of.get(name, "") for name in head), state))
        yield ""
        yield Rows(rows, (f"{self.noun.title()}s", "seed", *head, ""), right=range(1, len(head) + 2), indent=0)
        if any(cost.needs.sampler == "vLLM" for cost in self.trainings):
            yield Rows([("rollouts: by vLLM",)])

    def _cell_rows(self) -> Iterator[Block]:
        if not self.cells:
            return
        rows: dict[str, tuple[str, ...]] = {}
        for cost in self.cells:
            needs, source = cost.needs, cost.dataset.removeprefix(f"{self.run_dir.root}/")
            time = _time(needs.minutes) if needs.minutes else f"{needs.gpu_hours:,.1f}"
            time = time if needs.is_known else "not known"
            rows.setdefault(cost.column, (cost.column, f"{needs.counts['answers']:,}", time, source))
        per = "time" if any(cost.needs.minutes for cost in self.cells) else "GPU-hours"
        yield ""
        yield Rows(list(rows.values()), ("Evaluations, of each row", "answers", per, "from"), right=(1, 2), indent=0)
        yield Rows([(f"judge: {self.judge}",)])
        if (questions := self.judge_questions) is not None:
            tokens = questions * JUDGE_TOKENS / 1e6
            asked = (
                f"at most {questions:,} questions, a request each, of some {JUDGE_TOKENS} tokens: {tokens:,.2f} million"
            )
            costs = "its prices are not known" if self.judge_money is None else f"{self.judge_money:,.2f} in money"
            yield f"  {asked}; {costs}. Asked is what the rules do not prove right, and equal answers once."
        states = Counter(cost.state.partition(",")[0] for cost in self.cells)
        yield "Cells: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))

    def _price(self) -> Iterator[Block]:
        if self.gpu_hours_by_vllm is not None:
            yield f"If vLLM sampled all rollouts and gave all answers: {_gpu_hours(self.gpu_hours_by_vllm)}."
        if self.disk_gb >= 1:
            while_training = f"{self._resume_gb:,.0f} GB only while a training runs"
            yield f"Disk: {self.disk_gb:,.0f} GB at most, of which {while_training}."
        if self.downloads:
            known = f" {self.download_gb:,.1f} GB, where the size is known:" if self.download_gb else ""
            yield f"Downloads:{known}"
            yield Rows([(f"{each.kind} {each.name}", each.size) for each in self.downloads])
        for page in self.terms:
            yield f"Conditions to accept first: {page}"
        if self.gpu_hours:
            yield f"By {self.run_dir.rates.basis}. Formulae: docs/scaling.md."


def _counts(costs: Sequence[Cost]) -> dict[str, float]:
    cells = [cost.needs.counts["answers"] for cost in costs if cost.column]
    counts = {"trainings": len(costs) - len(cells), "cells": len(cells), "answers": sum(cells)}
    return counts | {"gpu_hours": round(sum(cost.needs.gpu_hours for cost in costs), 2)}


def _time(minutes: float) -> str:
    return duration(max(1.0, 60 * minutes))


def _gpu_hours(hours: float) -> str:
    return f"{hours:,.0f} GPU-hours" if hours >= 10 else f"{hours:.1f} GPU-hours"


States = dict[tuple[str, int, str], str]  # of a cell, by row, seed and column


def price_of(plan: Plan) -> Price:
    if (paper := paper_of(plan.definition.id)[0]) != OWN or paper in given_papers():  # ours: all known, without numpy
        from atrl_bench.credit.rules import credit_rule

        for row in plan.definition.rows:
            credit_rule(row.credit.rule)
    states, best = States(), dict[str, Mapping[int, float]]()
    if plan.run_dir.store_path.is_file():
        with plan.run_dir.open_store(read_only=True) as store:
            states, best = _states(plan, store), best_rates(plan, store)
    plan = _needed(plan, best)
    run_dir, definition = plan.run_dir, plan.definition
    trainings = tuple(_without_repeated_stages(cost for job in plan.due for cost in _trainings(job, run_dir)))
    cells = tuple(cost for job in plan.due for cost in _cells(job, plan, states))
    left = {(cost.row, cost.seed) for cost in trainings + cells if cost.state not in FINISHED}
    due = [job for job in plan.due if (job.row_at_rate, job.seed) in left]
    tasks = [evaluation.task for job in due for evaluation in job.evaluations]
    needs = needs_of([job.model for job in due], [job.recipe for job in due if job.recipe], tasks, run_dir)
    notes = [f"{row.id}: not measured: {row.not_measured}" for row in definition.rows if row.not_measured]
    following = plan.command if plan.only is None else "the same command without --dry-run"
    if missing := [job.missing for job in plan.due if job.missing]:
        following = f"atrl-bench fetch {as_typed(definition.id)} {run_dir.options}" if needs else missing[0].next_step
    return Price(
        definition.id,
        run_dir,
        trainings + cells,
        _licensed(missing_downloads(needs, run_dir), definition),
        following,
        tuple(notes),
        {row.id: definition.evaluate_command(row, run_dir.options) for row in definition.rows if row.served},
        judge_name(run_dir.judge),
        run_dir.judge.prices if run_dir.judge else None,
    )


def _licensed(downloads: Iterable[Download], definition: TableDefinition) -> tuple[Download, ...]:
    """With the size of weights that no listing has yet, by their shape, and the licence that a paper's folder has."""
    papers = {definition.model_of(row): paper_folders()[row.printed_by] for row in definition.rows if row.printed_by}
    shape = model_shape(definition.shaped_like) if definition.shaped_like else None
    about = 2 * shape.num_parameters / GB if shape else None
    return tuple(
        replace(each, about_gb=about, licence=licence_of(each.name, papers[each.name]) if each.name in papers else "")
        if each.kind == MODEL
        else each
        for each in downloads
    )


def _states(plan: Plan, store: Store) -> States:
    return {
        (job.row_at_rate, job.seed, column): _state(cells, len(keys))
        for job in plan.jobs
        for column, keys in job_cells(job, plan, store).items()
        if (cells := [cell for key in keys if (cell := store.cell(key)) is not None])
    }


def _state(cells: Sequence[Cell], num_expected: int) -> str:
    unfinished = [cell.state for cell in cells if cell.state != "done"]
    if not unfinished and len(cells) == num_expected:
        return "done"
    num_answers = sum(cell.num_responses for cell in cells)
    return f"{unfinished[0] if unfinished else 'pending'}, {num_answers} answers stored"


def _needed(plan: Plan, best: Rates) -> Plan:
    """The plan without what no run will do; until a row's rates are known, the highest stands for them."""
    highest: dict[str, float] = {}
    for job in plan.jobs:
        highest[job.row.id] = max(job.rate, highest.get(job.row.id, 0.0))
    stand_ins = {row: dict.fromkeys(plan.seeds, rate) for row, rate in highest.items()}
    return replace(plan, jobs=plan.needed(stand_ins | {row: of_seed for row, of_seed in best.items() if of_seed}))


def _without_repeated_stages(costs: Iterable[Cost]) -> Iterator[Cost]:
    """The trainings without a first stage that a row before it has trained, or started from."""
    seen: set[str] = set()
    for cost in costs:
        if not (cost.is_stage and cost.checkpoint in seen):
            yield cost
        seen.add(cost.checkpoint)


def _trainings(job: Job, run_dir: RunDir) -> Iterator[Cost]:
    if job.recipe is None:
        return
    *first, own = (_training(stage, run_dir.with_model(job.model), job.seed) for stage in stages_of(job.recipe))
    yield from (replace(cost, row=f"{cost.row}, for {job.row_at_rate}", is_stage=True) for cost in first)
    yield replace(own, row=job.row_at_rate)


def _training(recipe: Recipe, run_dir: RunDir, seed: int) -> Cost:
    (spec, missing), profile = planned_spec(recipe, run_dir, seed), run_dir.profile
    key, why = planned_key(spec, missing), f"{missing.what} {missing.why}" if missing else ""
    needs, by_vllm = (training_needs(recipe, each, run_dir.rates) for each in (profile, profile.sampled_by("vllm")))
    return Cost(recipe.name, seed, run_dir.run_state(key) or "to do", key, needs, by_vllm, missing=why)


def _cells(job: Job, plan: Plan, states: States) -> Iterator[Cost]:
    shape = job.model if model_shape(job.model) else plan.definition.shaped_like or job.model
    run_dir, row = asked_in(job.protocol, plan.run_dir.with_model(shape)), job.row_at_rate
    for column in plan.definition.columns_of(job.row) if job.evaluations else ():
        evaluations = [(find_task(task), options) for task, options in evaluations_of(column)]
        is_possible = not any(obstacle(task.name) for task, _ in evaluations)
        state = states.get((row, job.seed, column.id), "to do") if is_possible else "not permitted here"
        needs, by_vllm = (_answers(evaluations, run_dir, by_vllm=engine) for engine in (False, True))
        source = "; ".join(dict.fromkeys(_source(task, run_dir) for task, _ in evaluations))
        checkpoint = job.run_key or job.model
        asked = checkpoint if job.protocol is None else f"{checkpoint}, asked as {job.row.printed_by or job.row.id}"
        yield Cost(row, job.seed, state, asked, needs, by_vllm, column.id, source)


def _answers(evaluations: Sequence[tuple[Task, EvaluationOptions]], run_dir: RunDir, *, by_vllm: bool) -> Needs:
    sizes = run_dir.profile.evaluation
    needs = [
        answering_needs(
            run_dir.profile,
            min(_num_rows(task, run_dir), options.limit or 10**12),
            options.repeats or sizes.num_repeats,
            run_dir.tokens_per_answer or TOKENS_PER_ANSWER,
            num_frames=(options.frames or sizes.num_frames) if task.shows_videos else None,
            rates=run_dir.rates,
            vllm=is_served(task.name) and (by_vllm or run_dir.with_choices(options).engine is not None),
        )
        for task, options in evaluations
    ]
    counts = {name: sum(each.counts[name] for each in needs) for name in needs[0].counts}
    phases = {name: sum(each.phases[name] for each in needs) for name in needs[0].phases}
    return replace(needs[0], counts=counts, phases=phases, minutes=sum(each.minutes for each in needs))


def _source(task: Task, run_dir: RunDir) -> str:
    if is_table(task.name):
        return task.name.partition("?")[0]
    if (data_dir := run_dir.data_dir(task.folder)) is not None:
        return str(data_dir / task.folder)
    return f"{task.hub_id}, {task.split}" if task.hub_id else f"atrl-bench fetch {task.name}"


def _num_rows(task: Task, run_dir: RunDir) -> int:
    if (data_dir := run_dir.data_dir(task.folder)) is None:
        return task.num_rows
    return sum(num_rows(path) for path in table_files(task, data_dir))


def price_of_all(plans: Sequence[Plan]) -> Price:
    run_dir, prices = plans[0].run_dir, [price_of(plan) for plan in plans]
    costs, tables = dict[tuple[str, str, str], Cost](), list[tuple[str, dict[str, float]]]()
    for price in prices:
        more = [cost for cost in price.costs_left if cost.identity not in costs]
        tables.append((price.name, _counts(more)))
        costs |= {cost.identity: cost for cost in more}
    # All were given the same seeds, which are some tables' own.
    seeds = next((options for plan in plans if (options := table_options(plan.definition, plan.seeds))), [])
    needs = dict.fromkeys(Need(each.kind, each.name) for price in prices for each in price.downloads)
    return Price(
        "All tables",
        run_dir,
        tuple(costs.values()),
        missing_downloads(needs, run_dir),
        " ".join(["atrl-bench run-table all", *seeds, run_dir.training_options]),
        tables=tuple(tables),
    )


def price_of_training(name: str, recipe: Recipe, run_dir: RunDir, seed: int) -> Price:
    price = Price(name, run_dir, tuple(_training(stage, run_dir, seed) for stage in stages_of(recipe)))
    needs = needs_of([run_dir.profile.model], [recipe], (), run_dir) if price.costs_left else ()
    return replace(price, downloads=missing_downloads(needs, run_dir))


def price_of_evaluation(model: str, tasks: Sequence[str], options: EvaluationOptions, run_dir: RunDir) -> Price:
    """What one model's evaluation outside any table takes; an endpoint's hours are its own."""
    own, cells = run_dir.with_model(model), []
    for task in expand(tasks):
        run_dir.provide(task.folder)
        needs, by_vllm = (_answers([(task, options)], own, by_vllm=engine) for engine in (False, True))
        if options.endpoint:
            needs = by_vllm = Needs(needs.counts, "an endpoint's hours are its own")
        state = "done" if _is_done(model, task, options, run_dir) else "to do"
        cells.append(Cost(model, options.run_seed, state, model, needs, by_vllm, task.name, _source(task, own)))
    left = [cost.column for cost in cells if cost.state != "done"]
    models = [model] if left and options.endpoint is None else []
    downloads = missing_downloads(needs_of(models, (), left, run_dir), run_dir)
    judge = options.judge or run_dir.judge
    return Price(
        f"{model} on {', '.join(tasks)}",
        run_dir,
        tuple(cells),
        downloads,
        judge=judge_name(judge),
        judge_prices=judge.prices if judge else None,
    )


def _is_done(model: str, task: Task, options: EvaluationOptions, run_dir: RunDir) -> bool:
    if not run_dir.store_path.is_file() or (key := cell_key(model, task.name, options, run_dir)) is None:
        return False
    with run_dir.open_store(read_only=True) as store:
        return is_cell_done(store, key, options.judge or run_dir.judge)


def missing_downloads(needs: Iterable[Need], run_dir: RunDir) -> tuple[Download, ...]:
    """Which of these are not here; a file that two of them need counts for the first. Asks no hub."""
    seen: set[tuple[Repository, str]] = set()
    with without_asking():
        downloads = [_download(need, seen) for need in needs if need.data_dir(run_dir) is None]
    return tuple(filter(None, downloads))


def _download(need: Need, seen: set[tuple[Repository, str]]) -> Download | None:
    try:
        if need.is_here:
            return None
        files, absent = need.files, need.absent()
    except MissingDataError:
        return Download(*need, None, (need.terms,) if need.terms else ())
    num_bytes = sum(size for file, size in absent.items() if file not in seen)
    seen |= absent.keys()
    return Download(*need, num_bytes / GB, tuple(listed.repository.page for listed, _ in files if listed.gated))

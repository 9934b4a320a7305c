"""What a table could show before it is run: how many seeds and answers an effect of some size takes, at what price.

A design is a number of training seeds and of answers to each problem. Its power is that of the page's own rule for
"clear" (`results/statistics/power.py`), its price that of `plan`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from pydantic import Field

from atrl_bench.errors import BudgetError, InvalidFileError
from atrl_bench.evaluation.tasks import expand
from atrl_bench.experiments.definition import ColumnDefinition, TableDefinition, as_typed, file_stem, load_table
from atrl_bench.experiments.plan import Plan
from atrl_bench.experiments.price import Cost, Price, price_of
from atrl_bench.experiments.progress import duration
from atrl_bench.experiments.spread import assumed_spreads, stored_spreads, with_seed_sd
from atrl_bench.printable import Block, Command, Record, Rows, counted
from atrl_bench.report.drawing import BLUE, SOFT, FigureContent, figure_style, new_figure, svg
from atrl_bench.report.page import lines_of
from atrl_bench.results.files import write_texts
from atrl_bench.results.statistics.power import Spread, detectable, false_alarms_of_one_seed, power
from atrl_bench.settings import Settings, read_settings

MAX_SEEDS = 64
REPEATS = (1, 2, 4, 8, 16)  # answers to each problem that are looked at, beside the profile's
LOOKED_FOR = 16  # seeds whose answers may be stored
MANY = 10_000  # seeds: what is left are the problems
NEAR = 1.15  # a design that sees at most so much more than any number of seeds would is as good


@dataclass(frozen=True)
class SeedPrice:
    """Hours of one GPU or core: of what is evaluated once, and of each seed's trainings and answers."""

    once: float
    training: float
    answering: float  # at the profile's number of answers
    repeats: int
    on_gpus: bool

    def hours(self, seeds: int, repeats: int) -> float:
        return self.once * repeats / self.repeats + seeds * self.of_seed(repeats)

    def of_seed(self, repeats: int) -> float:
        return self.training + self.answering * repeats / self.repeats

    def require_two_seeds(self, budget: float, repeats: int, command: str) -> None:
        """Raise unless the budget pays two seeds, which a comparison takes."""
        if (two := self.hours(2, repeats)) > budget:
            raise BudgetError(
                f"A comparison takes two seeds, {price_text(two, on_gpus=self.on_gpus)}: more than the budget.",
                next_step=f"a larger --budget, or fewer --rows or --columns: {command}",
            )


def price_text(hours: float, *, on_gpus: bool) -> str:
    return f"{hours:,.0f} GPU-hours" if on_gpus else duration(3600 * hours)


@dataclass(frozen=True)
class Option:
    """One design, what it costs, and what it sees of the average; `sees` in points."""

    seeds: int
    repeats: int
    hours: float
    sees: float
    power: float


@dataclass(frozen=True)
class ColumnDesign:
    """One column: what the chosen design sees there, what any number of seeds would, and how many the effect takes."""

    column: str
    problems: int
    sees: float
    sees_at_most: float
    seeds: int | None  # None: its problems are too few, or more than `MAX_SEEDS`


class DesignFile(Settings):
    """What `run-table --design` carries out."""

    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...] = Field(min_length=1)
    repeats: int = Field(gt=0)


@dataclass(frozen=True)
class Design(Record):
    """What a table can show of an effect: the cheapest design that shows it, and what one seed does not."""

    table: str
    profile: str
    comparisons: tuple[str, ...]
    effect: float
    wanted_power: float
    budget_hours: float | None
    cheapest: Option | None
    chosen: Option
    asked: Option
    options: tuple[Option, ...]
    columns: tuple[ColumnDesign, ...]
    sees_at_most: float  # with any number of seeds
    one_seed_sd: float
    one_seed_false_alarms: float
    num_tests: int
    basis: tuple[str, ...]
    on_gpus: bool
    files: tuple[str, ...]
    next: str

    def blocks(self) -> Iterable[Block]:
        words = {"points": _points, "time": self._time, "counted": counted, "max_seeds": MAX_SEEDS}
        answer, one_seed, meaning = lines_of("design.txt.j2", design=self, **words)
        yield f"{self.table} under profile {self.profile}: {'; '.join(self.comparisons)}"
        yield from ("", answer, one_seed, "")
        rows = [
            (
                str(option.seeds),
                str(option.repeats),
                self._time(option.hours),
                _points(option.sees),
                f"{option.power:.0%}",
                "this design" if option == self.chosen else "the table's own" if option == self.asked else "",
            )
            for option in self.options
        ]
        head = ("seeds", "answers", "price", "sees", f"power for {self.effect:g}", "")
        yield Rows(rows, head, right=range(5), indent=0)
        yield ""
        yield Rows(
            [
                (
                    column.column,
                    f"{column.problems:,}",
                    _points(column.sees),
                    _points(column.sees_at_most),
                    "not by seeds" if column.seeds is None else str(column.seeds),
                )
                for column in self.columns
            ],
            ("alone", "problems", "sees", "by any seeds", f"seeds for {self.effect:g}"),
            right=range(1, 5),
            indent=0,
        )
        yield ""
        yield from (meaning, *self.basis)
        yield f"Files: {', '.join(self.files)}"
        yield Command(self.next)

    def _time(self, hours: float) -> str:
        return price_text(hours, on_gpus=self.on_gpus)


def _points(value: float) -> str:
    return "nothing" if math.isinf(value) else f"{value:.1f}"


@dataclass(frozen=True)
class _Question:
    """What is asked of designs: how they see an effect, in points, among so many tests, and at what price."""

    effect: float
    wanted: float
    num_tests: int
    spread: Spread  # of the average
    cost: SeedPrice

    def sees(self, seeds: int, repeats: int, spread: Spread | None = None) -> float:
        of = spread or self.spread
        return 100 * detectable(of, seeds, repeats, comparisons=self.num_tests, wanted=self.wanted)

    def option(self, seeds: int, repeats: int) -> Option:
        has = power(self.effect / 100, self.spread, seeds, repeats, comparisons=self.num_tests)
        return Option(seeds, repeats, self.cost.hours(seeds, repeats), self.sees(seeds, repeats), has)

    def fewest(self, repeats: int, spread: Spread | None = None, effect: float | None = None) -> int | None:
        """The smallest number of seeds with this power, None where `MAX_SEEDS` have not: more are never worse."""
        share = (effect or self.effect) / 100

        def is_enough(seeds: int) -> bool:
            has = power(share, spread or self.spread, seeds, repeats, comparisons=self.num_tests)
            return has >= self.wanted

        counts = range(2, MAX_SEEDS + 1)
        place = bisect_left(counts, True, key=is_enough)
        return counts[place] if place < len(counts) else None

    def cheapest(self, counts: Sequence[int]) -> Option | None:
        """The cheapest design with the power, at one of these numbers of answers."""
        enough = [(seeds, repeats) for repeats in counts if (seeds := self.fewest(repeats)) is not None]
        return min((self.option(*one) for one in enough), key=lambda one: one.hours, default=None)

    def as_good_as_any(self, repeats: int) -> Option:
        """The fewest seeds that see little more than any number of them would."""
        near = self.fewest(repeats, effect=NEAR * self.sees(MANY, repeats))
        return self.option(near or MAX_SEEDS, repeats)

    def best_within(self, budget: float, counts: Sequence[int]) -> Option:
        """The affordable design that sees the smallest effect: of each number of answers as many seeds as fit."""
        affordable = []
        for repeats in counts:
            left = budget - self.cost.once * repeats / self.cost.repeats
            seeds = min(MAX_SEEDS, int(left / self.cost.of_seed(repeats) + 1e-9))
            if seeds > 1:
                affordable.append(self.option(seeds, repeats))
        return min(affordable, key=lambda one: one.sees)

    def column(self, label: str, spread: Spread, problems: int, chosen: Option) -> ColumnDesign:
        sees, at_most = (self.sees(seeds, chosen.repeats, spread) for seeds in (chosen.seeds, MANY))
        return ColumnDesign(label, problems, sees, at_most, self.fewest(chosen.repeats, spread))


def design(
    plan_of: Callable[[Sequence[int] | None], Plan],
    effect: float,
    *,
    wanted: float,
    budget: float | None = None,
    seed_sd: float | None = None,
    tasks: Sequence[str] = (),
) -> Design:
    """The design of a table for an effect in points; `plan_of` plans it under the seeds that it is given.

    Variances are those of the stored answers where two seeds of a comparison are done, else assumed. The number of
    problems is the benchmarks' own. `tasks` are what was asked about in place of a table.
    """
    plan = plan_of(None)
    pairs, label = compared_rows(plan), plan.definition.row_label
    price = price_of(plan_of([plan.seeds[0]]))
    problems = _problems(price, plan)
    is_begun = plan.run_dir.store_path.is_file()
    stored = stored_spreads(plan_of(sorted({*plan.seeds, *range(LOOKED_FOR)}))) if is_begun else None
    spreads = with_seed_sd(stored or assumed_spreads(plan, problems), seed_sd)
    num_tests = len(pairs) * (len(problems) + (len(problems) > 1))
    question = _Question(effect, wanted, num_tests, spreads.average, cost_of(price, plan))

    own = plan.profile.evaluation.num_repeats
    counts = sorted({own, *REPEATS}) if plan.profile.evaluation.temperature > 0 else [own]
    cheapest, asked = question.cheapest(counts), question.option(len(plan.seeds), own)
    chosen = cheapest or question.as_good_as_any(own)
    if budget is not None and chosen.hours > budget:
        question.cost.require_two_seeds(budget, counts[0], plan.command)
        chosen = question.best_within(budget, counts)
    shown = {(seeds, chosen.repeats) for seeds in (2, 3, 5, 8, 16, 32)}
    shown |= {(one.seeds, one.repeats) for one in (asked, chosen)}
    options = tuple(question.option(*one) for one in sorted(shown))
    files, following = _write(plan, chosen, options, question, tasks)
    return Design(
        table=", ".join(tasks) or plan.definition.id,
        profile=plan.profile.name,
        comparisons=tuple(f"{label(row)} against {label(other, beside=row)}" for row, other in pairs),
        effect=effect,
        wanted_power=wanted,
        budget_hours=budget,
        cheapest=cheapest,
        chosen=chosen,
        asked=asked,
        options=options,
        columns=tuple(
            question.column(plan.definition.column_label(name), spread, problems[name], chosen)
            for name, spread in spreads.columns.items()
        ),
        sees_at_most=question.sees(MANY, max(counts)),
        one_seed_sd=100 * spreads.average.of_mean(1, own),
        one_seed_false_alarms=false_alarms_of_one_seed(spreads.average, own),
        num_tests=num_tests,
        basis=spreads.basis,
        on_gpus=question.cost.on_gpus,
        files=files,
        next=following,
    )


def compared_rows(plan: Plan) -> list[tuple[str, str]]:
    if pairs := plan.definition.credit_pairs:
        return pairs
    raise InvalidFileError(
        f"{plan.definition.id} compares nothing: no two of these rows differ in their credit alone.",
        next_step=f"atrl-bench list rows {as_typed(plan.definition.id)}",
    )


def definition_of_tasks(tasks: Sequence[str]) -> TableDefinition:
    """What a design is of where no table is named: GRPO with AT-RL and without, on these tasks."""
    rows = load_table("main_7b").select(rows=["grpo", "grpo_atrl"])
    columns = tuple(ColumnDefinition(id=task.stored_name, label=task.title, task=task.name) for task in expand(tasks))
    return rows.model_copy(update={"columns": columns})


def cost_of(price: Price, plan: Plan) -> SeedPrice:
    """The price of one seed of a plan, whether it is stored or not."""
    untrained = {row.id for row in plan.definition.rows if not row.recipe}
    costs = {cost.identity: cost for cost in price.costs}.values()

    def hours(items: Iterable[Cost]) -> float:
        return sum(item.needs.gpu_hours + item.needs.minutes / 60 for item in items)

    return SeedPrice(
        once=hours(cost for cost in costs if cost.row in untrained),
        training=hours(cost for cost in costs if not cost.column),
        answering=hours(cost for cost in costs if cost.column and cost.row not in untrained),
        repeats=plan.profile.evaluation.num_repeats,
        on_gpus=any(cost.needs.gpu_hours for cost in costs),
    )


def _problems(price: Price, plan: Plan) -> dict[str, int]:
    counts = {cost.column: cost.needs.counts["answers"] for cost in price.cells}
    return {column: max(1, count // plan.profile.evaluation.num_repeats) for column, count in counts.items()}


def _write(
    plan: Plan, chosen: Option, options: Sequence[Option], question: _Question, tasks: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """The drawing and, of a table, the design's file in the run folder; and the command that carries it out."""
    columns = tuple(column.id for column in plan.definition.columns)
    stem = "_".join(columns) if tasks else file_stem(plan.definition.id)
    with figure_style():
        drawing = svg(_curve(options, question.effect, question.cost), "design")
    files = {f"{stem}.svg": drawing}
    if not tasks:
        content = DesignFile(
            table=plan.definition.id,
            rows=tuple(row.id for row in plan.definition.rows),
            columns=columns,
            seeds=tuple(range(chosen.seeds)),
            repeats=chosen.repeats,
        )
        files = {f"{stem}.json": f"{content.model_dump_json(indent=2)}\n", **files}
    paths = write_texts(plan.run_dir.root / "designs", files)
    table, design = as_typed(plan.definition.id), quote(str(paths[0]))
    command = f"atrl-bench run-table {table} --design {design} {plan.run_dir.training_options}"
    if tasks:
        command = f"atrl-bench evaluate MODEL --tasks {','.join(tasks)} --repeats {chosen.repeats}"
    return tuple(map(str, paths)), command


def _curve(options: Sequence[Option], effect: float, cost: SeedPrice) -> FigureContent:
    figure, panel = new_figure(6.4, 3.4)
    drawn = [option for option in options if math.isfinite(option.sees)]
    unit = 1 if cost.on_gpus else 60
    panel.plot([unit * one.hours for one in drawn], [one.sees for one in drawn], "o-", color=BLUE)
    for one in drawn:
        panel.annotate(
            f"{one.seeds}", (unit * one.hours, one.sees), xytext=(4, 5), textcoords="offset points", fontsize=8
        )
    panel.axhline(effect, color=SOFT, linestyle="--", linewidth=1)
    panel.set(
        title="What the design sees, by its number of seeds",
        xlabel="GPU-hours" if cost.on_gpus else "minutes of a core",
        ylabel="points",
        ylim=(0, None),
    )
    rows = [{"seeds": one.seeds, "answers": one.repeats, "hours": one.hours, "sees": one.sees} for one in drawn]
    return FigureContent("What a design sees", "The effect that a design detects, against its price.", figure, rows)


def read_design(path: Path, table: str) -> DesignFile:
    content = read_settings(path, DesignFile)
    if content.table != table:
        what = f"{path} is a design of {content.table}, not of {table}."
        then = f"atrl-bench run-table {as_typed(content.table)} --design {quote(str(path))}"
        raise InvalidFileError(what, next_step=then)
    return content

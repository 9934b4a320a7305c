"""A credit card: what a signal says to whoever is about to train the checkpoint, in a sentence, a page and a file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from atrl_bench.credit.rules import ORACLES
from atrl_bench.digests import plain, spec_key
from atrl_bench.errors import InvalidFileError
from atrl_bench.experiments.evaluate_command import known_reliance
from atrl_bench.experiments.price import price_of_training
from atrl_bench.experiments.progress import duration
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.lab.signal.page import CELLS, rule_cell
from atrl_bench.lab.signal.record import RuleSignal, Signal
from atrl_bench.lab.signal.request import UNIFORM, SignalRequest
from atrl_bench.lab.signal.stored import signal_spec
from atrl_bench.printable import Block, Record, Rows
from atrl_bench.report.front_page import write_index
from atrl_bench.report.page import lines_of
from atrl_bench.report.table_model import Grid, Table
from atrl_bench.report.table_run import write_report
from atrl_bench.results.files import write_texts
from atrl_bench.settings import first_mistake

WORTH = 1.1  # a rule that multiplies the batch by less is not worth its trouble
SHOWN: dict[str, tuple[str, float | None]] = {
    # What the page shows of each rule, and the number that means no effect; the first decides.
    "efficiency_scaled": ("efficiency, with Adam", 1.0),
    "efficiency": ("of plain gradients", 1.0),
    "over_uniform": ("one step over uniform, points", 0.0),
    "reliability": ("agrees with itself", None),
    "anchor_auc": ("AUC", None),
    "top_share": ("weight on the top 15 %", None),
}

EXPLANATION = (
    "Efficiency: how many times as many prompts uniform credit needs for the same gain. Behind a gain, what "
    "could be detected."
)


@dataclass(frozen=True)
class Advice:
    """What to do with a checkpoint; `prompts` would tell where this signal cannot, None where no number would."""

    kind: Literal["this rule", "no credit", "cannot tell"]
    sentence: str
    rule: str = ""
    prompts: int | None = None


@dataclass(frozen=True)
class Card(Record):
    """A signal with all that decides its numbers, and what follows from it."""

    spec: dict[str, Any]
    signal: Signal
    advice: Advice
    reliance: dict[str, str] = field(default_factory=dict)
    """Points that go without the picture, of what the run folder has of this model, by task."""

    def document(self) -> dict[str, Any]:
        return {**plain(self.signal), "reliance": self.reliance, "advice": plain(self.advice)}

    def blocks(self) -> Iterable[Block]:
        yield from self.signal.blocks()
        yield ""
        yield from self.reliance_lines()
        yield self.advice.sentence

    def reliance_lines(self) -> list[str]:
        return [f"Reliance on the picture, {task}: {points} points." for task, points in self.reliance.items()]


def advice_of(signal: Signal) -> Advice:
    """What the signal says, by gradients scaled as Adam scales them: those are what trainings take steps along.

    Train with the rule whose interval begins highest above one, unless a step along it is clearly a loss; without
    credit where every interval ends below `WORTH`; else it cannot tell. An interval's length, on a log scale, shrinks
    with the root of the number of prompts: so many would leave one out if the best rule's factor is the true one.
    Oracles are not asked: nobody can train with them.
    """
    rules = [one for one in signal.rules if one.rule != UNIFORM and one.rule.partition(":")[0] not in ORACLES]
    rules = [one for one in rules if not math.isnan(one.efficiency_scaled.factor)]
    if not rules:
        return Advice("cannot tell", _said("cannot tell"))
    losses = [one for one in rules if one.step is not None and one.step.over_uniform.interval()[1] < 0]
    good = [one for one in rules if one.efficiency_scaled.low > 1 and one not in losses]
    if good:
        best = max(good, key=lambda one: one.efficiency_scaled.low)
        return Advice("this rule", _said("this rule", best), best.rule)
    most = max(rules, key=lambda one: one.efficiency_scaled.upper)
    if most.efficiency_scaled.upper < WORTH:
        return Advice("no credit", _said("no credit", most))
    best = max(rules, key=lambda one: one.efficiency_scaled.factor)
    needed = _prompts_needed(best, signal.prompts)
    too_few = (needed or 2 * signal.prompts) > (signal.problems or math.inf)
    sentence = _said("cannot tell", best, needed=needed, too_few=too_few, signal=signal)
    return Advice("cannot tell", sentence, best.rule, None if too_few else needed)


def _said(kind: str, best: RuleSignal | None = None, **about: Any) -> str:
    [sentence] = lines_of("advice.txt.j2", kind=kind, best=best, least=WORTH, **about)
    return sentence


def _prompts_needed(one: RuleSignal, prompts: int) -> int | None:
    of, high = one.efficiency_scaled, one.efficiency_scaled.upper
    if of.factor <= 1 or of.low <= 0 or math.isinf(high):
        return None
    needed = prompts * ((math.log(high) - math.log(of.low)) / 2 / math.log(of.factor)) ** 2
    return 10 * math.ceil(max(needed, prompts) / 10) if needed < 1e6 else None


def write_card(request: SignalRequest, signal: Signal, run_dir: RunDir) -> tuple[Card, list[Path]]:
    """Write the card of a signal as a page and as a file that decides it; the page first."""
    spec = signal_spec(request, run_dir)
    with run_dir.open_store() as store:
        card = Card(spec, signal, advice_of(signal), known_reliance(store, spec["model_digest"]))
    stem = f"card_{spec_key(spec)[:8]}"
    pages = write_report(_table(stem, card, run_dir, request), run_dir.reports)
    files = write_texts(run_dir.root / "cards", {f"{stem}.json": json.dumps(plain(asdict(card)), indent=2) + "\n"})
    write_index(run_dir)
    return card, [pages[0], *files]


def _table(stem: str, card: Card, run_dir: RunDir, request: SignalRequest) -> Table:
    signal = card.signal
    rules = [one for one in signal.rules if one.rule != UNIFORM]
    rows = tuple(
        (one.rule, tuple(rule_cell(one, name, neutral) for name, (_, neutral) in SHOWN.items())) for one in rules
    )
    hours = price_of_training(request.recipe, request.measured_recipe, run_dir, request.seed).hours
    return Table(
        id=stem,
        title=f"What credit would do for {signal.model}",
        caption="From the gradients of one batch, without training. 95 % intervals in brackets; * excludes no effect.",
        label=f"tab:{stem}",
        profile=run_dir.profile.name,
        profile_title=run_dir.profile.title,
        says=card.advice.sentence,
        grids=(Grid("Rules", EXPLANATION, tuple(title for title, _ in SHOWN.values()), rows, "Rule"),),
        notes=(
            f"{signal.about}; loss of {request.recipe}, seed {request.seed}.",
            *(
                card.reliance_lines()
                or [f"Reliance on the picture: `atrl-bench evaluate {signal.model} --image blank` tells."]
            ),
            f"One training of {request.recipe} on this data: about {duration(3600 * hours)} of a core or GPU.",
        ),
        environment=tuple(sorted(run_dir.environment().items())),
    )


@dataclass(frozen=True)
class ComparedCards(Record):
    """Two cards side by side: what differs in what was measured, and in what it came to."""

    cards: tuple[Card, Card]

    def blocks(self) -> Iterable[Block]:
        for letter, card in zip("AB", self.cards, strict=True):
            signal = card.signal
            yield f"{letter}: {signal.model} on {signal.data}, {signal.prompts} prompts. {card.advice.sentence}"
        yield ""
        cells = [{one.rule: CELLS["efficiency_scaled"](one).text for one in card.signal.rules} for card in self.cards]
        names = [name for name in dict.fromkeys([*cells[0], *cells[1]]) if name != UNIFORM]
        rows = [(name, *(of.get(name, "–") for of in cells)) for name in names]
        yield Rows(rows, ("efficiency, with Adam", "A", "B"), right=(1, 2), indent=0)
        one, other = (card.spec for card in self.cards)
        differ = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
        yield f"Measured differently: {', '.join(differ) or 'nothing'}."


def compare_cards(paths: Sequence[Path]) -> ComparedCards:
    first, second = map(_read, paths)
    return ComparedCards((first, second))


def _read(path: Path) -> Card:
    try:
        return TypeAdapter(Card).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        then = "atrl-bench signal MODEL"
        raise InvalidFileError(f"{path} is no credit card.", why=first_mistake(error), next_step=then) from None

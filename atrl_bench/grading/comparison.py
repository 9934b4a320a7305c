r"""Whether two parsed answers are the same: a gold answer, parsed once, and what a response gives for it.

What the paper leaves open, and what we chose: its judge is "unit-agnostic" for numbers, so a unit on one side only is
ignored and so is its spelling, but two units of one dimension are converted (500 cm is 5 m, 5 cm is not). An answer
may be more exact than the gold (`16\pi` for 50.27, from two decimal places on), not less (3.14 for π); four correct
decimal places of an exact gold are accepted as exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from atrl_bench.grading.answer_parser import Bracketed, ParsedAnswer, Quantity, Value, Words, parse
from atrl_bench.grading.exact_numbers import Surd, same_ratio
from atrl_bench.grading.extraction import last_boxed
from atrl_bench.grading.options import lone_letter, named_options, option_letter
from atrl_bench.grading.units import unit_factor
from atrl_bench.models.templates import LETTERS
from atrl_bench.results.records import NUM_UNKNOWN_CHOICES, Gold

DECIMALS_THAT_COUNT = 2  # a gold of 50.27 was rounded, so an exact answer may be too; one of 0.5 was not
EXACT_DECIMALS = 4  # correct decimal places of an exact gold that pass for it
ONE = Quantity((((1, 0), Fraction(1)),))
AS_IN_A_LIST = Gold("", kind="list")  # how the values of two options are compared


class Match(NamedTuple):
    """Whether an answer equals the gold, and why."""

    equal: bool
    why: str


class PendingCheck(NamedTuple):
    """What only sympy can decide, in a worker process: is this formula equal to that one, or to one of several."""

    extracted: str
    gold: str  # a formula a line
    answer: str


@dataclass(frozen=True)
class ParsedGold:
    """A gold answer without the box around it, parsed; `is_choice` when it is the letter of an option."""

    gold: Gold
    answer: ParsedAnswer
    is_choice: bool

    @property
    def num_choices(self) -> int:
        """How many letters can be an answer; 0 where none can."""
        return len(self.gold.choices) or (NUM_UNKNOWN_CHOICES if self.is_choice else 0)

    @cached_property
    def choices(self) -> tuple[ParsedAnswer, ...]:
        return tuple(map(parse, self.gold.choices))

    @cached_property
    def value(self) -> Value | None:
        """What the gold answer says; several lines are several values."""
        return parse(self.answer.text.replace("\n", ",")).value


@lru_cache(maxsize=4096)
def parse_gold(gold: Gold) -> ParsedGold:
    """The gold answer, parsed; it is a choice, too, when it is nothing but an option letter."""
    answer = parse((last_boxed(gold.answer) or gold.answer).strip())
    num_choices = len(gold.choices) or NUM_UNKNOWN_CHOICES
    letter = None
    if gold.kind == "auto":
        lone = lone_letter(answer, num_choices)
        letter = lone if answer.text == lone or not gold.choices else None
    elif gold.kind == "choice":
        letter = option_letter(answer, num_choices)
    return ParsedGold(gold, parse(letter) if letter else answer, letter is not None or gold.kind == "choice")


def compare(gold: ParsedGold, answer: ParsedAnswer) -> Match | PendingCheck:
    return _compare_options(gold, answer) if gold.is_choice else _compare_values(gold, answer)


def _compare_options(gold: ParsedGold, answer: ParsedAnswer) -> Match | PendingCheck:
    right = gold.answer.text
    letter, matching = named_options(answer, gold.choices, gold.num_choices)
    if letter is not None:
        return Match(letter == right, f"option {letter}, gold {right}")
    right_index = LETTERS.find(right)
    if not 0 <= right_index < len(gold.choices):
        return Match(False, f"names no option; gold {right}")
    if not matching:
        matching = [name for name, choice in zip(LETTERS, gold.choices, strict=False) if _same_option(choice, answer)]
        if len(matching) > 1:
            return Match(False, f"fits the options {' and '.join(matching)}")
    if matching:
        return Match(right in matching, f"the text of option {' and '.join(matching)}, gold {right}")
    choice = gold.choices[right_index]
    is_formula = answer.value is None or _is_equation(choice, answer)
    if is_formula and answer.formula is not None and choice.formula is not None:
        return PendingCheck(answer.text, choice.formula, answer.formula)
    return Match(False, "equal to no option")


def _same_option(choice: ParsedAnswer, answer: ParsedAnswer) -> bool:
    if choice.value is None or answer.value is None or _is_equation(choice, answer):
        return False
    return _equal(choice.value, _number_for(choice.value, answer.value, answer), AS_IN_A_LIST)


def _is_equation(gold: ParsedAnswer, answer: ParsedAnswer) -> bool:
    """Whether it takes more than a value: x + y = 3 is neither x - y = 3 nor 3. Where 3 is asked for it may name it."""
    return gold.is_unsolved or (answer.is_unsolved and "=" in gold.cleaned)


def _compare_values(gold: ParsedGold, answer: ParsedAnswer) -> Match | PendingCheck:
    if answer.squeezed == gold.answer.squeezed != "":
        return Match(True, "same in another spelling")
    if gold.gold.kind == "text":
        return Match(answer.folded == gold.answer.folded, "compared as words")
    if _is_equation(gold.answer, answer) or gold.value is None or not answer.values:
        if gold.answer.formula is not None and answer.formula is not None:
            return PendingCheck(answer.text, gold.answer.formula, answer.formula)
        if gold.value is None or answer.formula is not None:
            return Match(False, "another wording")
    values = answer.values or (Words(answer.folded),)
    equal = any(_equal(gold.value, _number_for(gold.value, value, answer), gold.gold) for value in values)
    return Match(equal, f"{'equal to' if equal else 'not'} {gold.answer.text}")


def _equal_ratio(gold: Value, answer: Value) -> bool:
    """Whether two are the same ratio, 3:2 and 6:4, or one the value of the other, 3/2; 6:30 may be a time of day."""
    left, right = _terms_of_ratio(gold), _terms_of_ratio(answer)
    if isinstance(gold, Bracketed) and isinstance(answer, Bracketed) and (_may_be_time(gold) or _may_be_time(answer)):
        return left == right
    return same_ratio(left, right)


def _terms_of_ratio(value: Value) -> list[Surd]:
    items: tuple[Value, ...] = value.items if isinstance(value, Bracketed) and value.brackets == ":" else (value, ONE)
    return [dict(item.terms) for item in items if isinstance(item, Quantity) and not item.unit]


def _may_be_time(ratio: Bracketed) -> bool:
    hours_minutes = [item.rational for item in ratio.items if isinstance(item, Quantity)]
    return len(hours_minutes) == 2 and hours_minutes[0] in range(25) and hours_minutes[1] in range(10, 60)


def _number_for(gold: Value, value: Value, answer: ParsedAnswer) -> Value:
    """The one number in a wording where the gold is a number ("the height is 12 cm"), else the value itself."""
    if isinstance(gold, Quantity) and isinstance(value, Words):
        return answer.sole_number or value
    return value


def _equal(gold: Value, answer: Value, rules: Gold) -> bool:
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return _equal_quantities(gold, answer, rules)
    if isinstance(gold, Words) and isinstance(answer, Words):
        return gold.text == answer.text
    if any(isinstance(value, Bracketed) and value.brackets == ":" for value in (gold, answer)):
        return _equal_ratio(gold, answer)
    if isinstance(gold, Bracketed) and isinstance(answer, Bracketed):
        return _equal_items(gold, answer, rules)
    # {5} and 5 say the same.
    if isinstance(gold, Bracketed) and gold.brackets == "{}" and len(gold.items) == 1:
        return _equal(gold.items[0], answer, rules)
    if isinstance(answer, Bracketed) and answer.brackets == "{}" and len(answer.items) == 1:
        return _equal(gold, answer.items[0], rules)
    return False


def _equal_items(gold: Bracketed, answer: Bracketed, rules: Gold) -> bool:
    if len(gold.items) != len(answer.items):
        return False
    ordered = rules.kind == "list" or "(" in gold.brackets + answer.brackets or "[" in gold.brackets + answer.brackets
    if rules.kind != "list" and gold.brackets and answer.brackets and gold.brackets != answer.brackets:
        return False  # [1, 2) is not (1, 2)
    if gold.has_own_names and answer.has_own_names and set(gold.names) == set(answer.names):
        by_name = dict(zip(answer.names, answer.items, strict=True))
        return all(_equal(item, by_name[name], rules) for name, item in zip(gold.names, gold.items, strict=True))
    if ordered or gold.has_own_names or answer.has_own_names:  # x=1, y=2 is 1, 2 and not 2, 1
        return all(_equal(left, right, rules) for left, right in zip(gold.items, answer.items, strict=True))
    left_over = list(answer.items)
    for item in gold.items:
        partner = next((other for other in left_over if _equal(item, other, rules)), None)
        if partner is None:
            return False
        left_over.remove(partner)
    return True


def _equal_quantities(gold: Quantity, answer: Quantity, rules: Gold) -> bool:
    off = _relative_error(gold, rules)
    if gold.unit != answer.unit and gold.unit and answer.unit:
        gold_factor, answer_factor = unit_factor(gold.unit), unit_factor(answer.unit)
        if gold_factor is not None and answer_factor is not None and gold_factor[0] == answer_factor[0]:
            return _equal_numbers(_scaled(gold, gold_factor[1]), _scaled(answer, answer_factor[1]), rules, off)
    if _equal_numbers(gold, answer, rules, off):
        return True
    if gold.percent == answer.percent:
        return False
    hundredth = Fraction(1, 100)
    pair = (_scaled(gold, hundredth), answer) if gold.percent else (gold, _scaled(answer, hundredth))
    return _equal_numbers(*pair, rules, off)


def _relative_error(gold: Quantity, rules: Gold) -> Fraction:
    """What still counts as right; what rounds to the gold is off by half of its last place, in whatever unit."""
    if rules.precision == "gold" and gold.decimals is not None and gold.rational:
        return Fraction(1, 2 * 10**gold.decimals) / abs(gold.rational)
    return Fraction(rules.tolerance)


def _scaled(quantity: Quantity, factor: Fraction) -> Quantity:
    if factor == 1:
        return quantity
    return Quantity(tuple((key, value * factor) for key, value in quantity.terms))


def _equal_numbers(gold: Quantity, answer: Quantity, rules: Gold, off: Fraction) -> bool:
    if gold.terms == answer.terms:
        return True
    if isinstance(rules.precision, int):
        return round(_approximate(answer), rules.precision) == round(_approximate(gold), rules.precision)
    if off:
        target = _approximate(gold)
        return abs(_approximate(answer) - target) <= off * abs(target)
    if answer.decimals is None and gold.decimals is not None and gold.decimals >= DECIMALS_THAT_COUNT:
        return round(_approximate(answer), gold.decimals) == gold.rational
    if gold.decimals is None and answer.decimals is not None and answer.decimals >= EXACT_DECIMALS:
        return round(_approximate(gold), answer.decimals) == answer.rational
    return False


def _approximate(quantity: Quantity) -> Fraction:
    try:
        return Fraction(float(quantity)) if quantity.rational is None else quantity.rational
    except (OverflowError, ValueError):
        return Fraction(0)

r"""Whether an answer is right, in five states; the same rules give scores in evaluation and rewards in training (D7).

`grade` extracts the answer, reads it and the gold answer exactly (`values`) and compares. Most answers are decided
there, in microseconds. Only a formula beyond that grammar goes to sympy, in a worker process with a limit on time and
memory.

What the paper leaves open, and what we chose: its judge is "unit-agnostic" for numbers, so a unit on one side only is
ignored and so is its spelling, but two units of one dimension are converted (500 cm is 5 m, 5 cm is not). An answer
may be more exact than the gold (`16\pi` for 50.27, from two decimal places on), not less (3.14 for π); four correct
decimal places of an exact gold are accepted as exact.
"""

from __future__ import annotations

import multiprocessing
import re
import signal
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, NamedTuple

from atrl_bench.errors import AtrlBenchError
from atrl_bench.grading.answer_parser import (
    Group,
    Quantity,
    UnreadableError,
    Value,
    Words,
    clean,
    fold,
    read,
    split_unit,
    squeeze,
    unit_factor,
)
from atrl_bench.grading.extraction import LETTERS, Extracted, extract_answer, last_boxed, sole_number
from atrl_bench.results.records import Gold, State, Verdict

if TYPE_CHECKING:
    from pebble import ProcessPool

GRADER_VERSION = "3"  # changes with any verdict
MAX_ANSWER_CHARS = 2000  # no gold answer is longer; a longer extraction is a runaway response
PATIENCE = 20  # a worker may take this many times its computing time, on a busy machine and with imports
NUM_UNKNOWN_CHOICES = 10  # the letters A to J, when the options are only in the picture
DECIMALS_THAT_COUNT = 2  # a gold of 50.27 was rounded, so an exact answer may be too; one of 0.5 was not
MAX_DEPTH = 16  # of brackets in an answer
EXACT_DECIMALS = 4  # correct decimal places of an exact gold that pass for it


class Question(NamedTuple):
    """What only a worker process decides: is this formula equal to that one, or what a slow metric gives."""

    extracted: str
    gold: str
    answer: str
    metric: str = "equal"


def grade(response: str, gold: Gold) -> Verdict:
    """Return the verdict on a response; a formula for sympy goes to a pool that all calls of this process share."""
    decided = grade_fast(response, gold)
    return decided if isinstance(decided, Verdict) else shared_pool().grade_many([(response, gold)])[0]


def grade_fast(response: str, gold: Gold) -> Verdict | Question:
    """Return the verdict, or the question that remains for sympy. Never slow, never raises."""
    if gold.metric != "equal":
        from atrl_bench.grading.scorers import score_fast

        return score_fast(response, gold)
    if gold.references:
        return _grade_any(response, gold)
    gold = _prepared(gold)
    found = extract_answer(response, num_choices=_num_choices(gold))
    text = found.text
    if text is None:
        return Verdict("unparseable", None, "fast", "no answer in the response")
    if len(text) > MAX_ANSWER_CHARS:
        return Verdict("unparseable", text[:80], "fast", f"the answer has {len(text)} characters")
    if text == gold.answer:
        return Verdict("correct", text, "fast", "same text")
    if _depth(text) > MAX_DEPTH:
        return Verdict("unparseable", text[:80], "fast", f"brackets nested more than {MAX_DEPTH} deep")
    decided = _grade_choice(found, gold) if gold.kind == "choice" else _grade_value(found, gold)
    if isinstance(decided, Question):
        return decided
    equal, why = decided
    return Verdict("correct" if equal else "wrong", text, "fast", why)


def _grade_any(response: str, gold: Gold) -> Verdict | Question:
    """Return the verdict by the accepted answer that the response gives, or what is left to ask about all of them."""
    decided = [grade_fast(response, replace(gold, answer=answer, references=())) for answer in gold.references]
    verdicts = [item for item in decided if isinstance(item, Verdict)]
    right = next((verdict for verdict in verdicts if verdict.state == "correct"), None)
    if right is not None:
        return right
    questions = [item for item in decided if isinstance(item, Question)]
    if questions:
        return questions[0]._replace(gold="\n".join(question.gold for question in questions))
    if verdicts[0].state == "wrong":
        return verdicts[0]._replace(why=f"none of the {len(verdicts)} accepted answers")
    return verdicts[0]


def _depth(text: str) -> int:
    """Return how deep brackets are nested: the grammar behind sympy takes exponentially long over deep ones."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest


@lru_cache(maxsize=4096)
def _prepared(gold: Gold) -> Gold:
    """Return the gold answer without a box around it, and as a choice when it is nothing but an option letter."""
    answer = (last_boxed(gold.answer) or gold.answer).strip()
    kind = gold.kind
    if kind == "auto":
        letter = _lone_letter(answer, len(gold.choices) or NUM_UNKNOWN_CHOICES)
        if letter is not None and (answer == letter or not gold.choices):
            answer, kind = letter, "choice"
    elif kind == "choice":
        answer = _option_letter(answer, len(gold.choices) or NUM_UNKNOWN_CHOICES) or answer
    return replace(gold, answer=answer, kind=kind)


def _num_choices(gold: Gold) -> int:
    return len(gold.choices) or (NUM_UNKNOWN_CHOICES if gold.kind == "choice" else 0)


_BRACKET = re.compile(r"[()\[\]{}]")


# Choices ----------------------------------------------------------------------------------------------------------

_BEFORE = r"[(\[{\s]*(?:(?i:option|choice|answer)\s*:?\s*)?[(\[{]*"
_LONE = re.compile(rf"{_BEFORE}(?P<letter>[A-P])[)\]}}\s.:,]*|[(\[]?(?P<lower>[a-p])[)\].]?")
_OPTION = re.compile(
    rf"{_BEFORE}(?P<letter>[A-P])[)\]}}\s]*"
    r"(?:$|[.:,)\]]|(?:because|since|as|is(?!\s+(?:not|wrong|incorrect|false))|which|from|with|for|\(|-|=)(?![a-z]))",
)
_ANOTHER = re.compile(r"[\s.,:;/&+)\]}(\[{-]*(?:and|or)?[\s(\[{]*(?P<letter>[A-P])\s*(?:$|[.,;:/&+)\]}-]|(?:and|or)\b)")
_WITH_TEXT = (
    re.compile(rf"{_BEFORE}(?P<letter>[A-Pa-p])[)\]}}\s.:,-]+(?P<text>.+)"),
    re.compile(rf"{_BEFORE}(?P<letter>[A-Pa-p])\s*[(\[](?P<text>.+)[)\]]"),
    re.compile(r"(?P<text>.+?)[\s,:-]*[(\[]\s*(?P<letter>[A-Pa-p])\s*[)\]]"),
)


def _lone_letter(text: str, num_choices: int) -> str | None:
    """Return the letter of an answer that is nothing else: `C`, `(C)`, `c.`, `Option C`; not `C = 5`."""
    match = _LONE.fullmatch(clean(text))
    letter = (match["letter"] or match["lower"]).upper() if match else None
    return letter if letter and LETTERS.index(letter) < num_choices else None


def _option_letter(text: str, num_choices: int) -> str | None:
    """Return the letter with which an answer names an option: `C. 12`, `C because`; not `A triangle`, not `A, C`."""
    cleaned = clean(text)
    match = _OPTION.match(cleaned)
    if match is None or LETTERS.index(match["letter"]) >= num_choices:
        return _lone_letter(text, num_choices)
    letter = match["letter"]
    other = _ANOTHER.match(cleaned, match.end("letter"))
    if other and other["letter"] != letter and LETTERS.index(other["letter"]) < num_choices:
        return None
    return letter


def _spelled_out(text: str, choices: Sequence[str]) -> list[str]:
    """Return the letters of the options whose own text this is, alone or with their letter: `Cello`, `Cello (B)`."""
    cleaned = clean(text)
    spelled = [squeeze(choice) for choice in choices]
    found = [LETTERS[place] for place, choice in enumerate(spelled) if choice == squeeze(text)]
    for pattern in _WITH_TEXT if not found else ():
        match = pattern.fullmatch(cleaned)
        place = LETTERS.find(match["letter"].upper()) if match else -1
        if match and place < len(choices) and spelled[place].casefold() == squeeze(match["text"]).casefold():
            found.append(LETTERS[place])
    return found


def _grade_choice(found: Extracted, gold: Gold) -> tuple[bool, str] | Question:
    text = found.text or ""
    # An option may begin like another's letter ("C-14" as option B), so whole texts are looked for before letters.
    letter = _lone_letter(text, _num_choices(gold))
    matching = _spelled_out(text, gold.choices) if letter is None else []
    if letter is None and not matching:
        letter = _option_letter(text, _num_choices(gold))
    if letter is not None:
        return letter == gold.answer, f"option {letter}, gold {gold.answer}"
    right = LETTERS.find(gold.answer)
    if not gold.choices or not 0 <= right < len(gold.choices):
        return False, f"names no option; gold {gold.answer}"
    if not matching:
        matching = [LETTERS[place] for place, choice in enumerate(gold.choices) if _same_option(choice, text)]
        if len(matching) > 1:
            return False, f"fits the options {' and '.join(matching)}"
    if matching:
        return gold.answer in matching, f"the text of option {' and '.join(matching)}, gold {gold.answer}"
    formula = _formula(text) if _try_read(text) is None else None
    if formula is not None and (gold_formula := _formula(gold.choices[right])) is not None:
        return Question(text, gold_formula, formula)
    return False, "equal to no option"


def _same_option(choice: str, text: str) -> bool:
    try:
        option, answer = read(choice), read(text)
    except UnreadableError:
        return False
    if isinstance(option, Quantity) and isinstance(answer, Words):
        answer = _number_in(answer, text)
    return _equal(option, answer, Gold(choice, kind="list"))


# Values -----------------------------------------------------------------------------------------------------------


def _grade_value(found: Extracted, gold: Gold) -> tuple[bool, str] | Question:
    text = found.text or ""
    if squeeze(text) == squeeze(gold.answer) != "":
        return True, "same in another spelling"
    if gold.kind == "text":
        return fold(clean(text)) == fold(clean(gold.answer)), "compared as words"
    readings = [text]
    if "≈" in clean(text):
        parts = clean(text).split("≈")
        readings = [parts[0], parts[-1]]
    values = [value for value in map(_try_read, readings) if value is not None]
    expected = _try_read(gold.answer.replace("\n", ","))
    if expected is None or not values:
        gold_formula, formula = _formula(gold.answer), _formula(text)
        if gold_formula is not None and formula is not None:
            return Question(text, gold_formula, formula)
        if expected is None or formula is not None:
            return False, "another wording"
        values = [Words(fold(clean(text)))]
    if isinstance(expected, Quantity):
        values = [_number_in(value, text) if isinstance(value, Words) else value for value in values]
    equal = any(_equal(expected, value, gold) for value in values)
    return equal, f"{'equal to' if equal else 'not'} {gold.answer}"


def _try_read(text: str) -> Value | None:
    try:
        return read(text)
    except UnreadableError:
        return None


def _number_in(words: Words, text: str) -> Value:
    """Return the one number that a wording contains ("the height is 12 cm"), or the wording itself."""
    number = sole_number(text)
    return (_try_read(number) or words) if number else words


def _equal(gold: Value, answer: Value, rules: Gold) -> bool:
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return _equal_quantities(gold, answer, rules)
    if isinstance(gold, Words) and isinstance(answer, Words):
        return gold.text == answer.text
    if isinstance(gold, Group) and isinstance(answer, Group):
        return _equal_groups(gold, answer, rules)
    # {5} and 5 say the same.
    if isinstance(gold, Group) and gold.brackets == "{}" and len(gold.items) == 1:
        return _equal(gold.items[0], answer, rules)
    if isinstance(answer, Group) and answer.brackets == "{}" and len(answer.items) == 1:
        return _equal(gold, answer.items[0], rules)
    return False


def _equal_groups(gold: Group, answer: Group, rules: Gold) -> bool:
    if len(gold.items) != len(answer.items):
        return False
    ordered = rules.kind == "list" or "(" in gold.brackets + answer.brackets or "[" in gold.brackets + answer.brackets
    if rules.kind != "list" and gold.brackets and answer.brackets and gold.brackets != answer.brackets:
        return False  # [1, 2) is not (1, 2)
    if gold.has_own_names and answer.has_own_names and set(gold.names) == set(answer.names):
        given = dict(zip(answer.names, answer.items, strict=True))
        return all(_equal(item, given[name], rules) for name, item in zip(gold.names, gold.items, strict=True))
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
    if gold.unit != answer.unit and gold.unit and answer.unit:
        expected, given = unit_factor(gold.unit), unit_factor(answer.unit)
        if expected is not None and given is not None and expected[0] == given[0]:
            return _equal_numbers(_scaled(gold, expected[1]), _scaled(answer, given[1]), rules)
    if _equal_numbers(gold, answer, rules):
        return True
    if gold.percent == answer.percent:
        return False
    hundredth = Fraction(1, 100)
    if gold.percent:
        return _equal_numbers(_scaled(gold, hundredth), answer, rules)
    return _equal_numbers(gold, _scaled(answer, hundredth), rules)


def _scaled(quantity: Quantity, factor: Fraction) -> Quantity:
    if factor == 1:
        return quantity
    return Quantity(tuple((key, value * factor) for key, value in quantity.terms))


def _equal_numbers(gold: Quantity, answer: Quantity, rules: Gold) -> bool:
    if gold.terms == answer.terms:
        return True
    if rules.precision is not None:
        return round(_approximate(answer), rules.precision) == round(_approximate(gold), rules.precision)
    if rules.tolerance:
        expected = _approximate(gold)
        return abs(_approximate(answer) - expected) <= Fraction(rules.tolerance) * abs(expected)
    if answer.places is None and gold.places is not None and gold.places >= DECIMALS_THAT_COUNT:
        return round(_approximate(answer), gold.places) == gold.rational
    if gold.places is None and answer.places is not None and answer.places >= EXACT_DECIMALS:
        return round(_approximate(gold), answer.places) == answer.rational
    return False


def _approximate(quantity: Quantity) -> Fraction:
    exact = quantity.rational
    if exact is not None:
        return exact
    try:
        return Fraction(float(quantity))
    except (OverflowError, ValueError):
        return Fraction(0)


_FORMULA = re.compile(r"[\d\\^=<>≤≥∞∪∩√π+*/]|\b[A-Za-z]\b")
_LONG_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{4,}\b")
_BACK_TO_LATEX = (
    (re.compile(r"√\s?(\d+|π)"), r"\\sqrt{\1}"),
    (re.compile(r"√\s?\(([^()]*)\)"), r"\\sqrt{\1}"),
    (re.compile("√"), r"\\sqrt"),
    (re.compile("π"), r"\\pi "),
    (re.compile("∞"), r"\\infty "),
    (re.compile("｛"), r"\\{"),
    (re.compile("｝"), r"\\}"),
    (re.compile("°"), ""),
    (re.compile("≤"), r"\\le "),
    (re.compile("≥"), r"\\ge "),
    (re.compile("∪"), r"\\cup "),
    (re.compile("∩"), r"\\cap "),
    (re.compile("±"), r"\\pm "),
    (re.compile(r"\*"), r"\\cdot "),
)


@lru_cache(maxsize=4096)
def _formula(text: str) -> str | None:
    """Return the text as LaTeX for sympy, or None when it is prose."""
    cleaned = clean(text)
    if not _FORMULA.search(cleaned) or len(_LONG_WORD.findall(cleaned)) > 1 or not cleaned.isprintable():
        return None
    cleaned, _ = split_unit(cleaned)
    for pattern, latex in _BACK_TO_LATEX:
        cleaned = pattern.sub(latex, cleaned)
    return cleaned


# The pool ---------------------------------------------------------------------------------------------------------


class GradingPool:
    """Grades many answers; starts workers only when a formula needs sympy, and ends one after `seconds` of computing.

    Workers come from a small server process, not from this one: a fork would copy a process that holds a model. They
    end when this process ends, however it ends.
    """

    def __init__(self, *, num_workers: int = 1, seconds: float = 3.0, memory_bytes: int = 2 << 30) -> None:
        self.num_workers, self.seconds, self.memory_bytes = num_workers, seconds, memory_bytes
        self._workers: ProcessPool | None = None

    def __enter__(self) -> GradingPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers; the next formula starts new ones."""
        if self._workers is not None:
            self._workers.stop()
            self._workers.join()
            self._workers = None

    def grade_many(self, answers: Sequence[tuple[str, Gold]]) -> list[Verdict]:
        """Return the verdicts on (response, gold) pairs, in their order."""
        decided = [grade_fast(response, gold) for response, gold in answers]
        questions = list(dict.fromkeys(item for item in decided if isinstance(item, Question)))
        verdicts = _run_programs([question for question in questions if _is_program(question)])
        formulas = [question for question in questions if question not in verdicts]
        verdicts |= dict(zip(formulas, self._ask(formulas), strict=True)) if formulas else {}
        return [verdicts[item] if isinstance(item, Question) else item for item in decided]

    def _ask(self, questions: Sequence[Question]) -> list[Verdict]:
        from pebble import ProcessExpired

        from atrl_bench.grading.sympy_worker import work

        pool = self._pool()
        futures = [
            pool.schedule(work, args=(*question[1:], self.seconds), timeout=PATIENCE * self.seconds)
            for question in questions
        ]
        verdicts = []
        for question, future in zip(questions, futures, strict=True):
            state: State
            score: float | None = None
            details: dict[str, Any] = {}
            try:
                if question.metric == "equal":
                    state, why = _VERDICTS[future.result()]
                else:
                    state, why, score, details = future.result()
            except FutureTimeoutError:
                state, why = "timed out", f"no reply within {PATIENCE * self.seconds:g} s"
            except MemoryError:
                state, why = "timed out", f"grading needed more than {self.memory_bytes >> 20} MiB"
            except ProcessExpired as error:
                state, why = "timed out", f"grading was stopped after {self.seconds:g} s of computing"
                if error.exitcode != -signal.SIGXCPU:
                    why = f"the worker ended with code {error.exitcode}"
            except BrokenExecutor as error:
                self.close()
                raise AtrlBenchError(
                    "The processes that grade answers could not start.",
                    why="They import the main script, as every multiprocessing worker does.",
                    next_step="put what the script runs under `if __name__ == '__main__':`",
                ) from error
            except Exception as error:  # sympy raises whatever it likes; the answer is then neither right nor wrong
                state, why = "unparseable", f"grading failed: {type(error).__name__}"
            grader = "symbolic" if question.metric == "equal" else question.metric
            verdicts.append(Verdict(state, question.extracted, grader, why, score, details))
        return verdicts

    def _pool(self) -> ProcessPool:
        if self._workers is None:
            from pebble import ProcessPool

            from atrl_bench.grading.sympy_worker import PRELOADED, start_worker

            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(PRELOADED))
            self._workers = ProcessPool(
                max_workers=self.num_workers, initializer=start_worker, initargs=(self.memory_bytes,), context=context
            )
        return self._workers


def _is_program(question: Question) -> bool:
    if question.metric == "equal":
        return False
    from atrl_bench.grading.scorers import find_metric

    return find_metric(question.metric).isolated


def _run_programs(questions: Sequence[Question]) -> dict[Question, Verdict]:
    """Return the verdicts on answers that are programs; no pool of ours, the operating system isolates those."""
    from atrl_bench.grading.scorers import score_isolated

    return dict(zip(questions, score_isolated(questions), strict=True)) if questions else {}


_VERDICTS: dict[str, tuple[State, str]] = {
    "equal": ("correct", "equal as a formula"),
    "different": ("wrong", "a different formula"),
    "unreadable": ("unparseable", "no grammar reads the answer"),
}
_shared: list[GradingPool] = []


def shared_pool() -> GradingPool:
    """Return the pool that `grade` uses in this process."""
    if not _shared:
        _shared.append(GradingPool())
        # Not atexit: a process of multiprocessing ends without it, after waiting for its children, these workers.
        Finalize(None, _shared[0].close, exitpriority=0)
    return _shared[0]

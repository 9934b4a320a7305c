"""Answers made to hurt: no exception, no hang, no growth in memory, and no point by accident.

The generator makes any number of them, the same for the same seed. No text of it is a right answer to one of `GOLDS`;
some come near and hold the gold answer next to another one. `pytest -m large` asks for a hundred thousand.
"""

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from random import Random
from typing import get_args

import pytest
from memory import leaving_less_than

from atrl_bench.grading.comparison import PendingCheck
from atrl_bench.grading.grade import GradingPool, grade_fast
from atrl_bench.grading.sympy_worker import expanded_terms, read_formula
from atrl_bench.results.records import Gold, State

RIGHT = "7391.27"
GOLDS = (
    Gold(RIGHT),
    Gold(RIGHT, kind="number", tolerance=0.001),
    Gold(RIGHT, kind="number", precision=1),
    Gold(r"\frac{7391}{27\sqrt{13}}"),
    Gold("x^{7391}+27"),
    Gold("(7391, -27)"),
    Gold("[7391, 27]", kind="list"),
    Gold("heptagonal prism", kind="text"),
    Gold("C", ("opal", "jasper", "heptagonal prism", "onyx"), kind="choice"),
)
HUGE = 1 << 20

Maker = Callable[[Random], str]


def _size(rng: Random) -> int:
    """Return a length that is mostly small, now and then beyond every limit."""
    return min(int(2 ** rng.uniform(0, 13)), 5000)


def _digits(rng: Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count)) or "0"


def _nested(rng: Random) -> str:
    opening, closing = rng.choice(
        [
            *[("{", "}"), ("(", ")"), ("[", "]"), (r"\boxed{", "}"), (r"\frac{1}{", "}"), (r"\sqrt{", "}")],
            *[(r"\left(", ")"), ("((", "))"), (r"\text{", "}"), (r"\{", r"\}"), ("$", "$")],
            *[("<answer>", "</answer>"), ("|", "|")],
        ]
    )
    size = _size(rng)
    return opening * size + rng.choice(["", "5", "x"]) + closing * rng.choice([0, 1, size // 2, size, size + 1])


def _tower(rng: Random) -> str:
    power = rng.choice(["^{", "**(", "^(", "^{\\frac{1}{"])
    height = rng.randint(2, 12)
    close = {"^{": "}", "**(": ")", "^(": ")", "^{\\frac{1}{": "}}"}[power]
    return power.join(_digits(rng, rng.randint(1, 3)) for _ in range(height)) + close * (height - 1)


def _factorial(rng: Random) -> str:
    return _digits(rng, rng.randint(1, 12)) + "!" * rng.choice([1, 2, 3, 50])


def _endless(rng: Random) -> str:
    bound = rng.choice([r"\infty", "10^{10}", _digits(rng, 9)])
    return rng.choice(
        [
            rf"\sum_{{i=1}}^{{{bound}}} i^i",
            rf"\prod_{{i=1}}^{{{bound}}} i",
            rf"\int_0^{{{bound}}} x^x dx",
            rf"\lim_{{x \to {bound}}} x!",
            rf"\binom{{{_digits(rng, 8)}}}{{{_digits(rng, 7)}}}",
            "x=x",
            "0=0",
            "1=1",
        ]
    )


def _huge_number(rng: Random) -> str:
    size = _size(rng)
    return rng.choice(
        [
            _digits(rng, size),
            f"1e{_digits(rng, 8)}",
            f"-{_digits(rng, size)}.{_digits(rng, size)}",
            "0x" + "f" * size,
            f"{_digits(rng, size)}/{_digits(rng, size)}",
            f"1/{'0' * size}",
            "1," * size + "000",
            f"0.{'0' * size}1",
            *["nan", "inf", "-inf", "infinity", "1e400", "-0.0", "1_000", "٣٫١٤", "１２", "²", "½", "Ⅷ", "0b101"],
        ]
    )


def _unicode(rng: Random) -> str:
    pieces = ["\u202e", "\u200b", "\u0301" * 40, "\ufeff", "\ud800", "\U0001f600", "\u2066", "ﷺ", "\u00a0", "İ", "ß"]
    pieces += ["\x00", "\x07", "\x1b[31m", "\r", "\x7f", "\u2028", "\u0600", "\U000e0041", "5", "x", "°", "米", "π"]
    return "".join(rng.choice(pieces) for _ in range(rng.randint(1, 60)))


def _code(rng: Random) -> str:
    return rng.choice(
        [
            "__import__('os').system('touch /tmp/hurt')",
            "().__class__.__bases__[0].__subclasses__()",
            "exec('while True: pass')",
            "lambda: (yield)",
            "{0.__class__.__init__.__globals__}",
            "{{7*7}}${7*7}<%= 7*7 %>",
            "%s%s%s%n%x",
            "!!python/object/apply:os.system ['true']",
            "'; DROP TABLE grades; --",
            "<script>alert(1)</script><img src=x onerror=alert(1)>",
            "<!DOCTYPE x [<!ENTITY a 'b'><!ENTITY c '&a;&a;'>]>&c;",
            r"\input{/etc/passwd}\write18{true}",
            r"\def\x{\x\x}\x",
            r"\newcommand{\a}{\a}\a",
            r"\begin{matrix}" + "&" * _size(rng) + r"\end{matrix}",
            "factorial(factorial(99))",
            "Symbol('x')**Symbol('x')",
            "S('9**9**9**9')",
        ]
    )


def _repeated(rng: Random) -> str:
    return rng.choice(
        [" ", "a", "\n", "-", "\\", "1,", "1 ", "(", "the answer is ", r"\boxed{", "answer:", "**", "A) "]
    ) * (_size(rng))


def _trailing(rng: Random) -> str:
    """A number in a wording, then a long row of what may stand beside it, ended by what may not."""
    unit = rng.choice([".", "-", " ", "\n", ". ", " .", "*", ":", "°", "a.", " a", "',"])
    return rf"\boxed{{about {_digits(rng, 2)} {unit * _size(rng)}{rng.choice(['?', '(?)', '!', '_'])}}}"


def _hedge(rng: Random) -> str:
    """The gold answer, taken back or beside another one."""
    right = rng.choice([RIGHT, "heptagonal prism", "C", "(7391, -27)"])
    other = rng.choice(["12", "opal", "A", "(1, 2)"])
    return rng.choice(
        [
            f"{right} or {other}",
            f"not {right}",
            f"{other}, {right}",
            f"either {right} or {other}",
            f"{right}{right}",
            f"{right} \\text{{ or }} {other}",
            f"{right}; {other}",
            f"-{right}!",
            f"{right} is wrong, {other}",
        ]
    )


def _soup(rng: Random) -> str:
    pieces = list("0123456789+-*/^_{}()[]|<>=,.;:!?%$#@&~'\"` \n\t")
    pieces += [r"\frac", r"\sqrt", r"\pi", r"\boxed{", r"\text{", r"\begin{cases}", r"\end{cases}", r"\left", r"\right"]
    pieces += ["\\", "sin", "log", "cup", "or", "and", "cm", "°", "%", "e", "i", "x", "A", "I", "∞", "√", "≤", "∪", "→"]
    return "".join(rng.choice(pieces) for _ in range(rng.randint(1, 80)))


def _megabyte(rng: Random) -> str:
    return rng.choice(
        ["{", "}", r"\boxed{", "a ", "9", "1,", "answer is ", "<answer>", "$", "\n", "\\frac{1}{", "^9"]
    ) * (HUGE // 4)


MAKERS: tuple[Maker, ...] = (
    *(_nested, _huge_number, _unicode, _code, _repeated, _trailing, _hedge),
    *(_soup,) * 4,
)
RARE: tuple[tuple[Maker, float], ...] = ((_tower, 0.01), (_factorial, 0.01), (_endless, 0.005), (_megabyte, 0.002))


def _dressed(answer: str, rng: Random) -> str:
    return rng.choice(
        [
            answer,
            f"\\boxed{{{answer}}}",
            f"<answer>{answer}</answer>",
            f"The answer is {answer}",
            f"$${answer}$$",
            f"\\boxed{{{answer}",
            f"\\boxed{{1}} \\boxed{{{answer}}}",
            f"\\boxed{{\\text{{{answer}}}}}",
            f"**{answer}**",
        ]
    )


def hostile_answers(count: int, seed: int) -> Iterator[tuple[str, Gold]]:
    """Yield `count` responses, each with a gold answer that it is not."""
    rng = Random(seed)
    for _ in range(count):
        draw, maker = rng.random(), rng.choice(MAKERS)
        for rare, share in RARE:
            if draw < share:
                maker = rare
                break
            draw -= share
        answer = maker(rng)
        # Outside a box the last number counts, so a hedge would be right about it.
        yield f"\\boxed{{{answer}}}" if maker is _hedge else _dressed(answer, rng), rng.choice(GOLDS)


# What is asked of the grader --------------------------------------------------------------------------------------

BATCH = 500


@pytest.fixture(scope="module")
def pool():
    with GradingPool(num_workers=2, seconds=1.0) as pool:
        yield pool


def resident_mebibytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def assert_harmless(pool: GradingPool, count: int, seed: int) -> None:
    states: Counter[str] = Counter()
    answers = list(hostile_answers(count, seed))
    for start in range(0, count, BATCH):
        batch = answers[start : start + BATCH]
        verdicts = pool.grade_many(batch)
        states.update(verdict.state for verdict in verdicts)
        accidents = [
            (response[:200], gold.answer, verdict)
            for (response, gold), verdict in zip(batch, verdicts, strict=True)
            if verdict.state == "correct"
        ]
        assert accidents == []
    assert set(states) <= set(get_args(State))
    assert sum(states.values()) == count
    assert states["wrong"] > states["timed out"] > 0, states  # the sample is not all of one kind


def test_the_fast_path_answers_at_once_whatever_comes():
    for response, gold in hostile_answers(20_000, seed=7):
        start = time.process_time()
        decided = grade_fast(response, gold)
        at_once = time.process_time() - start < 0.5
        assert isinstance(decided, PendingCheck) or decided.state != "correct", (response[:200], gold, decided)
        # Once in a while Python collects the garbage of all tests before: what is slow itself is so again.
        assert at_once or _seconds(response, gold) < 0.5, response[:200]


def _seconds(text: str, gold: Gold) -> float:
    start = time.process_time()
    grade_fast(text, gold)
    return time.process_time() - start


@pytest.mark.parametrize("frame", [r"\boxed{%s}", "%s", "The answer is 5%s!", "<answer>%s</answer>"])
def test_64000_characters_take_about_four_times_as_long_as_16000(frame):
    patterns = ["{", r"\boxed{", "(", "1,", "5 or ", "B, ", "x^", r"\frac{1}{", "$", " ", ". ", "\n", "A: ", "½"]
    patterns += ["answer is ", "<answer>", "so 5 is 6. ", "(A) opal ", "1 + 1 = ", "Question: ", "<think>", "答案"]
    patterns += ["-", "−", " per m", "n/a ", "opal ", "x+1=", "$5 ", "3 a b c d ", "1.\n"]
    for pattern in patterns:
        for gold in GOLDS:
            short, long = (frame % (pattern * (size // len(pattern))) for size in (16_000, 64_000))
            seconds = min(_seconds(long, gold) for _ in range(2))
            assert seconds < max(8 * min(_seconds(short, gold) for _ in range(2)), 0.05), (pattern, gold)


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        *[("x+1", 2), ("(x+1)^{50}", 51), ("(a+b+c)^{2}", 6), ("(x+1)(y+1)(z+1)", 8), ("(x^{7391}+27)", 2)],
        *[("2^{100}", 1), ("x^{9^{9}}", 1), (r"\sqrt{(x+1)^{3}}", 4)],
        *[("(((1+x)^{50})^{50})^{50}", inf), ("9^{9^{9}}", inf), ("9^{9^{9^{9}}}", inf), ("(x+1)^{99999}", inf)],
        *[("99999!", inf), ("99!", 1), ("(a+b+c+d)^{40}", 12341)],
    ],
)
def test_a_formula_is_sized_before_it_is_expanded(formula, terms):
    assert expanded_terms(read_formula(formula)) == terms


def test_what_is_too_large_to_expand_ends_at_once_and_not_as_timed_out(pool):
    pool.grade_many([(r"\boxed{x^2+2}", Gold("x^2+1"))])  # the worker is up
    for formula in ("(((1+x)^{50})^{50})^{50}", "(1+x)^{50}(1+y)^{50}(1+z)^{50}", "9^{9^{9}}x", "(a+b+c+d)^{40}"):
        [verdict] = pool.grade_many([(rf"\boxed{{{formula}}}", Gold("x^2+1"))])
        assert (verdict.state, verdict.why) == ("unparseable", "too large to expand")


def test_sixty_answers_of_a_megabyte_leave_less_than_one_behind():
    rng = Random(5)
    with leaving_less_than(HUGE):
        for _ in range(60):
            assert getattr(grade_fast(_dressed(_megabyte(rng), rng), rng.choice(GOLDS)), "state", "open") != "correct"


def test_thousands_of_hostile_answers_end_in_a_state_and_none_in_correct(pool):
    assert_harmless(pool, 4000, seed=1)


@pytest.mark.large
def test_a_hundred_thousand_hostile_answers_end_in_a_state_and_none_in_correct(pool):
    before = resident_mebibytes()
    for seed in range(25):
        assert_harmless(pool, 4000, seed=100 + seed)
    assert resident_mebibytes() - before < 100

"""Each case is a trap that a published grader fell into, or an ordinary answer; the symbolic ones share one pool."""

import subprocess
import sys
import time

import needs
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_bench.grading.grade import GradingPool, grade, grade_fast
from atrl_bench.results.records import Gold, Verdict

RIGHT = [
    # The rule grader of lmms-eval's MathVision task gets these wrong.
    (r"\boxed{4\pi}", r"$4 \pi$"),
    (r"\boxed{69^\circ}", "69{degrees}"),
    ("The final answer is 60 minutes.", "60"),
    (r"\boxed{\frac{360}7}", r"\frac{360}{7}"),
    (r"\boxed{5}", r"5 \text{ cm}"),
    (r"\boxed{25\pi}", r"25\pi cm^2"),
    (r"The answer is **12**.", "12"),
    # lmms-eval's rule grader of the reasoning tasks gets these wrong.
    (r"\boxed{[2014,2016]}", "[2014, 2016]"),
    ("Yes", "yes"),
    ("4 sqrt(6)", r"4\sqrt{6}"),
    # Numbers and how they are written.
    (r"\boxed{\frac12}", "0.5"),
    (r"\boxed{\dfrac{1}{2}}", "1/2"),
    (r"\boxed{1,000}", "1000"),
    (r"\boxed{1{,}000}", "1000"),
    (r"\boxed{1\,234\,567}", "1234567"),
    (r"\boxed{50\%}", "0.5"),
    (r"\boxed{50\%}", "50"),
    (r"\boxed{50}", "50%"),
    (r"\boxed{-3}", "−3"),
    (r"\boxed{.5}", "1/2"),
    (r"\boxed{2\frac{1}{2}}", "2.5"),
    (r"\boxed{2 1/2}", "5/2"),
    (r"\boxed{3½}", "3.5"),
    (r"\boxed{2^{10}}", "1024"),
    (r"\boxed{10^{-2}}", "0.01"),
    (r"\boxed{3 \times 10^{8}}", "300000000"),
    (r"\boxed{x=12}", "12"),
    (r"\boxed{\angle ABC = 50^\circ}", "50"),
    (r"\boxed{x = 3 \times 4 = 12}", "12"),
    (r"\boxed{y = 5}", "x = 5"),
    (r"\boxed{12 apples}", "12"),
    (r"\boxed{\text{approximately } 12}", "12"),
    (r"\boxed{twelve}", "12"),
    (r"\boxed{\text{Twenty-one}}", "21"),
    (r"\boxed{1 000 000}", "1000000"),
    (r"\boxed{２５}", "25"),
    (r"\boxed{2.5e-4}", "0.00025"),
    # Ratios, also of three and not in lowest terms; a time of day is only itself.
    (r"\boxed{6:8}", "3:4"),
    (r"\boxed{3/4}", "3:4"),
    (r"\boxed{\sqrt2 : 2 : 2\sqrt{2}}", r"1:\sqrt{2}:2"),
    # Roots and π, exactly.
    (r"\boxed{5√{3}}", "5√{3}"),
    (r"\boxed{5\sqrt3}", "5√{3}米"),
    (r"\boxed{\frac{2\sqrt{5}}{5}}", r"\frac{2√{5}}{5}"),
    (r"\boxed{\frac{2}{\sqrt{5}}}", r"\frac{2√{5}}{5}"),
    (r"\boxed{\sqrt{12}}", r"2√{3}"),
    (r"\boxed{\frac{1}{\sqrt{3}-1}}", r"\frac{√{3}+1}{2}"),
    (r"\boxed{\sqrt{\frac{1}{3}}}", r"\frac{\sqrt{3}}{3}"),
    (r"\boxed{\frac{\pi}{6}}", r"\frac{1}{6}π"),
    (r"\boxed{2pi}", "2π"),
    (r"\boxed{16\pi}", "50.27"),
    (r"\boxed{8.6603}", "5√{3}"),
    # Units, on either side.
    ("<answer>140</answer>", "140°"),
    (r"\boxed{118°}", "118掳"),
    (r"\boxed{3.6}", "3.6秒"),
    (r"\boxed{16\pi \text{ m}^2}", "16π平方米"),
    (r"\boxed{(\sqrt{3}+1)}", "(√{3}+1)小时"),
    (r"\boxed{5 \text{ square centimeters}}", "5cm^2^"),
    (r"\boxed{500 cm}", "5m"),
    (r"\boxed{5\ \mathrm{m/s}}", "5"),
    (r"\boxed{\$5}", "5"),
    (r"\boxed{1.50 dollars}", "$1.5"),
    # Several values.
    (r"\boxed{(3,-4)}", "(3, -4)"),
    (r"\boxed{P(3,-4)}", "(3, -4)"),
    (r"\boxed{\{\}}", r"\varnothing"),
    (r"\boxed{-infinity}", r"-\infty"),
    (r"\boxed{\left(\frac{1}{2}, 3\right)}", "(0.5,3)"),
    (r"\boxed{\{3, 1, 2\}}", r"\{1,2,3\}"),
    (r"\boxed{x = 1 \text{ or } x = 2}", "2, 1"),
    (r"\boxed{(0, \infty)}", r"(0,\infty)"),
    (r"\boxed{[1, 2)}", "[1,2)"),
    (r"\boxed{\{5\}}", "5"),
    # Names: matched by name, else in order.
    (r"\boxed{y = 2, x = 1}", "x=1,y=2"),
    (r"\boxed{(1, 2)}", "x=1,y=2"),
    (r"\boxed{x=1 \text{ or } x=2}", "x=2 or x=1"),
    # More units: a foot is twelve inches, 36 km an hour are 10 m a second; of other dimensions only numbers count.
    (r"\boxed{12 \text{ inches}}", "1 foot"),
    (r"\boxed{36 km/h}", "10 m/s"),
    (r"\boxed{5000 J}", "5 kJ"),
    (r"\boxed{24 hours}", "1 day"),
    (r"\boxed{5 cm}", "5 degrees"),
    (r"\boxed{1 hour and 30 minutes}", "90 min"),
    (r"\boxed{66 in}", "5 ft 6 in"),
    (r"\boxed{about 5}", "5"),
    # A gold answer that begins with a letter is no option for that.
    (r"\boxed{10}", "F = 10"),
    (r"\boxed{50.27}", "C=50.27"),
    # Words.
    (r"\boxed{\text{yes}}", "Yes."),
    (r"\boxed{3:00 AM}", "3:00 am"),
    (r"\boxed{**isosceles triangle**}", "an isosceles triangle"),
]
WRONG = [
    (r"\boxed{F=3}", "F = 10"),
    (r"\boxed{A = 99}", "A = 12"),
    (r"\boxed{E. faecalis}", "E. coli"),
    (r"\boxed{B, D}", "B, C"),
    (r"\boxed{x=2,y=1}", "x=1,y=2"),
    (r"\boxed{2, 1}", "x=1,y=2"),
    (r"\boxed{5 feet}", "5 inches"),
    (r"\boxed{5 feet}", "5 ft 6 in"),
    (r"\boxed{1 h 31 min}", "90 min"),
    (r"\boxed{3 days}", "3 hours"),
    (r"\boxed{60 km/h}", "60 m/s"),
    (r"\boxed{5 cents}", "5 dollars"),
    (r"\boxed{at least 5}", "5"),
    (r"\boxed{over 5}", "5"),
    (r"\boxed{2.004}", "2"),  # two decimals are not enough
    (r"\boxed{0.004}", "0.001"),
    (r"\boxed{12.9}", "12"),
    ("B", "Bob"),  # a letter is not the name that begins with it
    (r"\boxed{A}", "3:00 AM"),
    (r"\boxed{3:00 PM}", "3:00 AM"),
    (r"\boxed{10}", "10√{2}"),
    (r"\boxed{12/3}", "1 2/3"),
    (r"\boxed{n}", "n!"),
    (r"\boxed{1:2:\sqrt{2}}", r"1:\sqrt{2}:2"),
    (r"\boxed{1, 2}", "1:2"),
    (r"\boxed{(1+√2+√3+√5+√6+√7):(2+√11+√13)}", "(√2+√3+√7):(√5+√31+√37)"),  # a product of too many roots
    (r"\boxed{2:10}", "6:30"),
    (r"\boxed{12}", "1 2"),
    (r"\boxed{5\sqrt{2}}", "5cm"),
    (r"\boxed{3.14}", r"\pi"),
    (r"\boxed{5 cm}", "5 m"),
    (r"\boxed{(3,4)}", "(4,3)"),
    (r"\boxed{(1,2)}", "[1,2]"),
    (r"\boxed{1,2,3}", "1,2"),
    (r"\boxed{(1,234)}", "1234"),
    (r"\boxed{12 or 13}", "12"),
    (r"\boxed{5 million}", "5"),
    (r"\boxed{not 12}", "13"),
    (r"\boxed{50}", "0.5"),
    (r"\boxed{1/3}", "0.3"),  # a gold with one decimal was not rounded
    (r"\boxed{1/0}", "0"),
    (r"\boxed{no}", "yes"),
    (r"\boxed{cannot be determined}", "12"),
    (r"\boxed{I}", "1"),
]


@pytest.mark.parametrize(("response", "gold"), RIGHT)
def test_an_answer_in_another_form_is_correct_without_sympy(response, gold):
    verdict = grade_fast(response, Gold(gold))
    assert isinstance(verdict, Verdict), verdict
    assert (verdict.state, verdict.grader) == ("correct", "fast"), verdict


@pytest.mark.parametrize(
    ("number", "smaller", "larger"),
    [
        *[("10", "mm", "cm"), ("10", "cm", "dm"), ("10", "dm", "m"), ("1000", "m", "km"), ("1852", "m", "nmi")],
        *[("2.54", "cm", "in"), ("12", "in", "ft"), ("3", "ft", "yd"), ("1760", "yd", "mi")],
        *[("1000", "mg", "g"), ("1000", "g", "kg"), ("453.59237", "g", "lb")],
        *[("1000", "ms", "s"), ("60", "s", "min"), ("60", "min", "h"), ("24", "h", "day"), ("7", "day", "week")],
        *[("12", "month", "year"), ("1000", "mL", "L"), ("100", "cent", "dollar")],
        *[("1000", "J", "kJ"), ("1000", "W", "kW"), ("1000", "Pa", "kPa")],
    ],
)
def test_so_many_of_a_smaller_unit_are_one_of_a_larger(number, smaller, larger):
    def state(answer):
        verdict = grade_fast(rf"\boxed{{{answer} {smaller}}}", Gold(f"1 {larger}"))
        return verdict.state if isinstance(verdict, Verdict) else "left to sympy"

    assert (state(number), state(float(number) * 1.01)) == ("correct", "wrong")


@pytest.mark.parametrize(("response", "gold"), WRONG)
def test_a_near_miss_is_wrong(response, gold):
    verdict = grade_fast(response, Gold(gold))
    assert isinstance(verdict, Verdict), verdict
    assert verdict.state == "wrong", verdict


CHOICES = ("12", "$8+2 \\sqrt{2}$", "a triangle", "300, 400", "$f(x)=-g(x)+2$")


INSTRUMENTS = ("Violin", "Cello", "Flute", "Drum")
ISOTOPES = ("C-12", "C-14", "N-14")


@pytest.mark.parametrize(
    ("choices", "response", "letter"),
    [
        (CHOICES, r"\boxed{C. 12}", "C"),
        (CHOICES, "**C**", "C"),
        (CHOICES, r"\boxed{\text{C}}", "C"),
        (CHOICES, r"\boxed{(c)}", "C"),
        (CHOICES, r"\boxed{\textbf{(C)}}", "C"),
        (CHOICES, "The answer is C", "C"),
        (CHOICES, "Answer: D. Because A fails", "D"),
        (CHOICES, "Answer: B\n\nBecause option A is wrong.", "B"),
        (CHOICES, "The answer is B. All other options fail.", "B"),  # not the A of "All"
        (CHOICES, "A triangle has three sides. So the answer is C", "C"),  # not the article
        (CHOICES, "<answer>b</answer>", "B"),
        (CHOICES, "<answer>(A)</answer>", "A"),
        (CHOICES, "D: 300, 400", "D"),
        (CHOICES, "I think option B is right.", "B"),
        (CHOICES, "So the correct option is (D).", "D"),
        (CHOICES, "Angle A is 30.\n(B)", "B"),
        (CHOICES, r"\boxed{12}", "A"),
        (CHOICES, r"\boxed{12.0 \text{ cm}}", "A"),
        (CHOICES, r"\boxed{8+\sqrt{8}}", "B"),
        (CHOICES, r"\boxed{\text{Triangle}}", "C"),
        (CHOICES, r"\boxed{300,400}", "D"),
        (CHOICES, r"\boxed{f(x) = -g(x) + 2}", "E"),
        (INSTRUMENTS, r"\boxed{Option B}", "B"),
        (INSTRUMENTS, r"\boxed{Answer: B}", "B"),
        (INSTRUMENTS, r"\boxed{Choice B}", "B"),
        (INSTRUMENTS, r"\boxed{Option B. Cello}", "B"),
        (INSTRUMENTS, r"\boxed{B Cello}", "B"),
        (INSTRUMENTS, r"\boxed{b) cello}", "B"),
        (INSTRUMENTS, r"\boxed{Cello (B)}", "B"),
        (INSTRUMENTS, r"\boxed{B (cello)}", "B"),
        (INSTRUMENTS, r"\boxed{A cello}", "B"),  # the article
        (INSTRUMENTS, r"\boxed{A, because B is wrong}", "A"),
        (INSTRUMENTS, r"\boxed{A. I think so}", "A"),
        # Several are none.
        (INSTRUMENTS, r"\boxed{A, C}", None),
        (INSTRUMENTS, r"\boxed{(A),(B)}", None),
        (INSTRUMENTS, r"\boxed{A-D}", None),
        (INSTRUMENTS, r"\boxed{A,B,C,D}", None),
        # A whole text counts before the letter it begins with.
        (ISOTOPES, r"\boxed{C-14}", "B"),
        (ISOTOPES, r"\boxed{B. C-14}", "B"),
        (ISOTOPES, r"\boxed{C}", "C"),
        (("S. aureus", "E. coli", "B. subtilis"), r"\boxed{B. subtilis}", "C"),
        (("A, B", "A, C", "B, C"), r"\boxed{A, C}", "B"),
        (("A(1,2)", "B(3,4)", "A(2,1)"), r"\boxed{A(2,1)}", "C"),
    ],
)
def test_an_option_is_named_by_its_letter_or_by_its_text(choices, response, letter):
    for gold in "ABCDE"[: len(choices)]:
        verdict = grade_fast(response, Gold(gold, choices, kind="choice"))
        state = verdict.state if isinstance(verdict, Verdict) else "left to sympy"
        assert (state == "correct") == (gold == letter), (gold, verdict)


@pytest.mark.parametrize(
    "response",
    [
        "I think that this cannot be seen.",  # the pronoun is not option I
        "A triangle has three sides.",  # the article is not option A
        "In triangle ABC, angle C is bisected by CD",  # vertices are not options
        r"\boxed{H}",  # there are five options
        r"\boxed{400, 300}",
        r"\boxed{}",
        "",
    ],
)
def test_what_names_no_option_is_never_correct(response):
    choices = (*CHOICES[:2], "square", *CHOICES[3:])
    for gold in "ABCDE":
        verdict = grade(response, Gold(gold, choices, kind="choice"))
        assert verdict.state in ("wrong", "unparseable"), (gold, verdict)


def test_option_texts_that_are_letters_give_way_to_the_letter():
    choices = ("F", "D", "B", "I", "No correct answer")  # a row of WeMath
    assert grade(r"\boxed{B}", Gold("B", choices, "choice")).state == "correct"
    assert grade(r"\boxed{B}", Gold("C", choices, "choice")).state == "wrong"
    assert grade(r"\boxed{I}", Gold("D", choices, "choice")).state == "correct"  # there is no option I
    assert grade(r"\boxed{F}", Gold("A", choices, "choice")).state == "correct"  # nor F, the first letter past the last


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        # Letters are options when the options are only in the picture.
        (Gold("C"), [r"\boxed{(C)}"], ["The answer is D."]),
        # A decimal is rounded to the places that the benchmark names, if any.
        (Gold("1.2", precision=1), [r"\boxed{1.24}"], [r"\boxed{1.26}"]),
        (Gold("1.2"), [], [r"\boxed{1.24}"]),
        (Gold("100", tolerance=0.05), [r"\boxed{104}"], [r"\boxed{105.2}"]),  # 5 % of it, but not of the gold
        # A list is compared in order, whatever its brackets.
        (Gold("[2014, 2016]", kind="list"), [r"\boxed{(2014,2016)}", r"\boxed{2014, 2016}"], [r"\boxed{[2016, 2014]}"]),
        (Gold("2014, 2016", kind="list"), [], [r"\boxed{2016, 2014}"]),
    ],
)
def test_an_answer_is_compared_as_its_benchmark_says(gold, right, wrong):
    assert {grade(response, gold).state for response in right} <= {"correct"}
    assert {grade(response, gold).state for response in wrong} <= {"wrong"}


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("51.0", ["51.01", "50.95", "51.05", r"51 + \frac{1}{30}"], ["51.06", "50.94", "52"]),
        ("2", ["2.4", r"\frac{5}{2}", "1.5"], ["2.51", "3"]),
        ("-0.05", ["-0.054"], ["0.054", "-0.06"]),
        ("31 %", ["0.3125", "31.25 %", "31.25"], ["0.3175", "31.75"]),
        ("5.0 m", ["503 cm", "5.03 m"], ["506 cm", "5.03 cm"]),
        ("1,200", ["1200.4"], ["1201"]),
        ("(1.5, 2)", ["(1.54, 2)"], ["(1.56, 2)", "(2, 1.54)"]),
        ("3/4", ["0.75"], ["0.7", "0.8"]),  # has no last place
        ("red", ["Red"], ["green"]),
    ],
)
def test_where_a_task_says_so_what_rounds_to_the_gold_is_right(gold, right, wrong):
    def states(answers, gold):
        return {grade(rf"\boxed{{{answer}}}", gold).state for answer in answers}

    assert states(right, Gold(gold, precision="gold")) == {"correct"}
    assert states(wrong, Gold(gold, precision="gold")) == {"wrong"}
    assert states(wrong, Gold(gold)) == {"wrong"}


def test_a_response_without_an_answer_is_unparseable_not_wrong():
    assert grade("", Gold("5")).state == "unparseable"
    assert grade("I see a circle and some lines in it, and no way to go on from here", Gold("5")).state == "unparseable"
    assert grade(r"\boxed{" + "7" * 5000 + "}", Gold("5")).state == "unparseable"


def test_a_gold_answer_survives_a_round_trip_through_json():
    gold = Gold("B", ["1", "2"], kind="choice", precision=None)
    assert gold == Gold("B", ("1", "2"), "choice")
    assert hash(gold) == hash(Gold("B", ("1", "2"), "choice"))


# Formulas, limits, hostile input --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool():
    with GradingPool(seconds=1.0) as pool:
        yield pool


def test_formulas_are_compared_by_sympy_in_a_worker(pool):
    answers = [
        (r"\boxed{x^2+2x+1}", Gold("(x+1)^2")),
        (r"\boxed{y = 2x + 1}", Gold("y=1+2x")),
        (r"\boxed{(-\infty,2)\cup(3,\infty)}", Gold(r"(3, \infty) \cup (-\infty, 2)")),
        (r"\boxed{AB = CD}", Gold("CD=AB")),
        (r"\boxed{3x^2 + 4y^2 = 12}", Gold("x^2/4+y^2/3=1")),
        (r"\boxed{x-y=1, x+y=3}", Gold("x+y=3, x-y=1")),
        (r"\boxed{y-3=-x}", Gold("A", choices=("x+y=3", "x-y=3"))),
        (r"\boxed{\sqrt{2+\sqrt{3}}}", Gold(r"\frac{\sqrt6+\sqrt2}{2}")),
        (r"\boxed{\sqrt[3]{8}}", Gold("2")),
        (r"\boxed{v_0t + \frac12at^2}", Gold(r"\frac{1}{2}at^{2}+v_0t")),
        (r"\boxed{\frac{\sqrt x}2}", Gold(r"\frac12 x^{1/2}")),
        (r"\boxed{x^2+2x}", Gold("(x+1)^2")),
        (r"\boxed{x+x+1}", Gold("2x")),
        (r"\boxed{x^2/3+y^2/4=1}", Gold("x^2/4+y^2/3=1")),  # both are 1
        (r"\boxed{2x=5}", Gold("x=5")),
        (r"\boxed{2\pi R}", Gold(r"2\pi r")),
        (r"\boxed{x-3y=1, x+2y=3}", Gold("x+y=3, x-y=1")),
        (r"\boxed{0}", Gold("2x-y+1=0")),
        (r"\boxed{2x-y=3}", Gold("A", choices=("x+y=3", "x-y=5"))),
    ]
    verdicts = pool.grade_many(answers)
    assert [verdict.state for verdict in verdicts] == ["correct"] * 11 + ["wrong"] * 8
    assert {verdict.grader for verdict in verdicts} == {"symbolic"}


def test_any_of_several_accepted_answers_counts(pool):
    gold = Gold("24/7", references=("24/7", "3.429", "a^2+2a", "a(a+3)"))
    responses = [
        r"\boxed{\frac{24}{7}}",
        r"\boxed{3.429}",
        r"\boxed{3a+a^2}",
        r"\boxed{a^2+a}",
        r"\boxed{3.5}",
        "No idea at all.",
    ]
    verdicts = pool.grade_many([(response, gold) for response in responses])
    assert [verdict.state for verdict in verdicts] == ["correct"] * 3 + ["wrong"] * 2 + ["unparseable"]


def test_sympy_is_stopped_when_it_computes_too_long_and_the_next_answer_is_graded(pool):
    answers = [(r"\boxed{\binom{99999999}{8888888}}", Gold("5")), (r"\boxed{x+1}", Gold("1+x"))]
    hanging, after = pool.grade_many(answers)
    assert hanging.state == "timed out", hanging
    assert after.state == "correct", after


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_every_fraction_equals_itself_in_every_form(above, below):
    for form in (
        rf"\frac{{{above}}}{{{below}}}",
        f"{above}/{below}",
        f"{2 * above}/{2 * below}",
        rf"\dfrac {above * 3} {{{below * 3}}}",
    ):
        if "dfrac" in form and (above * 3 < 0 or above * 3 > 9):
            continue  # without braces only one digit is the numerator
        assert grade_fast(f"\\boxed{{{form}}}", Gold(f"{above}/{below}")).state == "correct", form
    assert grade_fast(f"\\boxed{{{above + 1}/{below}}}", Gold(f"{above}/{below}")).state == "wrong"


@needs.linux
def test_workers_end_when_their_process_is_killed():
    code = (
        "from atrl_bench.grading.grade import Gold, shared_pool\n"
        "if __name__ == '__main__':\n"
        "    pool = shared_pool()\n"
        "    print(pool.grade_many([(r'\\boxed{x+1}', Gold('1+x'))])[0].state, flush=True)\n"
        "    pool.seconds = 1000\n"
        "    pool.grade_many([(r'\\boxed{\\binom{99999999}{8888888}}', Gold('5'))])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "correct"
        time.sleep(0.5)
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.kill()
    assert psutil.wait_procs(family, timeout=20)[1] == []


GRADES_IN_A_CHILD = r"""
import multiprocessing
from atrl_bench.grading.grade import grade
from atrl_bench.results.records import Gold

def work():
    assert grade(r"\boxed{(x+1)^2}", Gold("x^2+2x+1")).grader == "symbolic"

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    raise SystemExit(2 if alive else child.exitcode)
"""


def test_a_worker_process_that_graded_a_formula_ends_by_itself(tmp_path):
    """The workers of the shared pool are its children, and it would wait for them for ever."""
    script = tmp_path / "grades_in_a_child.py"
    script.write_text(GRADES_IN_A_CHILD)
    assert subprocess.run([sys.executable, script], check=False, timeout=120).returncode == 0

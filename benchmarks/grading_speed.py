"""Print how many answers a core grades per second, ours against math-verify called directly, and who errs how often.

Both get the same (response, gold) pairs in the same process, in turns, medians over the rounds. The answers are mostly
the numbers, roots, units and letters of the benchmarks; the verdicts were written by hand.

    python benchmarks/grading_speed.py [--rounds 5] [--responses FILE.jsonl]

`--responses` takes lines with `response` and `answer` (such as the published GeoQA logs) for the speed instead.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from atrl_bench.grading import answer_parser, grade
from atrl_bench.grading.grade import GradingPool
from atrl_bench.results.records import Gold

LABELLED = [
    # response, gold, right
    (r"\boxed{4\pi}", r"$4 \pi$", True),
    (r"\boxed{2.004}", "2", False),
    (r"\boxed{0.004}", "0.001", False),
    (r"\boxed{69^\circ}", "69{degrees}", True),
    (r"\boxed{C. 12}", "C", True),
    ("**C**", "C", True),
    ("The final answer is 60 minutes.", "60", True),
    (r"\boxed{\frac{360}7}", r"$\frac{360}{7}$", True),
    (r"\boxed{5}", r"$5 \text{ cm}$", True),
    (r"\boxed{25\pi}", r"$25\pi cm^2$", True),
    (r"\boxed{\frac12}", r"$\frac{1}{2}$", True),
    (r"\boxed{(3,-4)}", "$(3,-4)$", True),
    (r"\boxed{(4,3)}", "$(3,4)$", False),
    (r"\boxed{1,000}", "1000", True),
    (r"\boxed{50\%}", "0.5", True),
    (r"\boxed{x=12}", "12", True),
    (r"First \boxed{4}, then \boxed{5}.", "5", True),
    (r"First \boxed{4}, then \boxed{5}.", "4", False),
    ("<answer>140</answer>", "140°", True),
    ("<think>so 4 * 3</think><answer>10</answer>", "10√{2}", False),
    ("<think>so</think><answer>2√{3}</answer>", "2√{3}", True),
    ("<think>so</think><answer>5√2</answer>", "5cm", False),
    ("<think>so</think><answer>sqrt(3)/2</answer>", r"\frac{√{3}}{2}", True),
    (r"\boxed{\frac{2}{\sqrt{5}}}", r"$\frac{2\sqrt{5}}{5}$", True),
    (r"\boxed{3.6}", "3.6秒", True),
    (r"\boxed{118}", "118掳", True),
    (r"\boxed{16\pi}", "16π平方米", True),
    (r"\boxed{\text{yes}}", "Yes", True),
    (r"\boxed{3:00 PM}", "3:00 AM", False),
    (r"\boxed{[2014,2016]}", "[2014, 2016]", True),
    (r"\boxed{2\frac{1}{2}}", "2.5", True),
    (r"\boxed{7}", "8", False),
    (r"\boxed{\frac{3}{4}}", r"$\frac{4}{3}$", False),
    (r"\boxed{B}", "D", False),
    (r"\boxed{x^2+2x+1}", "$(x+1)^2$", True),
    (r"\boxed{(-\infty,2)}", r"$(-\infty, 2]$", False),
]

Grader = Callable[[Sequence[tuple[str, str]]], list[bool]]


def math_verify(answers: Sequence[tuple[str, str]]) -> list[bool]:
    """Return math-verify's verdicts as its README calls it."""
    from math_verify import parse, verify

    return [verify(parse(gold), parse(response)) for response, gold in answers]


def seconds_of(grader: Grader, answers: Sequence[tuple[str, str]]) -> float:
    start = time.perf_counter()
    grader(answers)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--responses", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)

    with GradingPool() as pool:

        def ours(answers: Sequence[tuple[str, str]]) -> list[bool]:
            for cached in (answer_parser.read, grade._prepared, grade._formula):  # no answer from the round before
                cached.cache_clear()
            verdicts = pool.grade_many([(response, Gold(gold)) for response, gold in answers])
            return [verdict.state == "correct" for verdict in verdicts]

        graders: dict[str, Grader] = {"ours": ours, "math-verify": math_verify}
        labelled = [(response, gold) for response, gold, _ in LABELLED]
        truth = [right for _, _, right in LABELLED]
        wrong = {
            name: sum(a != b for a, b in zip(grader(labelled), truth, strict=True)) for name, grader in graders.items()
        }  # and the workers, grammars and caches are warm

        timed = labelled
        if options.responses:
            rows = map(json.loads, options.responses.read_text("utf-8").splitlines())
            timed = [(row["response"], row["answer"]) for row in rows]
        seconds: dict[str, list[float]] = {name: [] for name in graders}
        for _ in range(options.rounds):
            for name, grader in graders.items():
                seconds[name].append(seconds_of(grader, timed))

    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name in graders:
        print(f"{name:12} {len(timed) / medians[name]:10,.0f} answers/s   {wrong[name]} of {len(truth)} verdicts wrong")
    print(f"ratio        {medians['math-verify'] / medians['ours']:10.1f}")


if __name__ == "__main__":
    main()

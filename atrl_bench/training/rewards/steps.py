"""StepGRPO's two rewards for the chain itself (R1-VL, arXiv 2503.12937), beside the one for its answer.

A chain has sections: a description of the image, the rationales, steps numbered from one, the final answer. The
official code (jingyi0000/R1-VL, 4a21cfe) adds two numbers to the reward of a response and then does what GRPO does:
there is no advantage per step in it.

- Key steps (StepRAR): the share of the problem's key steps that the text of its steps mentions, times 0.1. A key step
  is a group of alternatives; one is enough, found as a substring whatever the case.
- Validity (StepRVR): 1 where every section is there, the steps are numbered 1, 2, ... n in this order, and the answer
  comes after the last of them; else 0.

Where this differs from the official code: a section ends where the next one begins, on the same line or on another; and
the accuracy reward runs from -1 to +1 here, so it is halved in the sum, which leaves the advantages what they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from atrl_bench.errors import MissingDataError

KeyStep = tuple[str, ...]  # what it may be called


class SectionMarks(NamedTuple):
    """What opens each section of a chain; `{}` stands for the number of a step."""

    description: str = "### Image Description:"
    rationales: str = "### Rationales:"
    step: str = "### Step {}:"
    answer: str = "### The final answer is:"

    def steps(self) -> re.Pattern[str]:
        before, _, after = self.step.partition("{}")
        return re.compile(rf"{re.escape(before)}(\d{{1,4}}){re.escape(after)}")


OFFICIAL = SectionMarks()


def numbered_steps(chain: str, marks: SectionMarks = OFFICIAL) -> list[tuple[int, str]]:
    """Number and text of each step, in the order in which they stand."""
    starts = list(marks.steps().finditer(chain))
    ends = [match.start() for match in starts[1:]] + [len(chain)]
    texts = [chain[match.end() : end] for match, end in zip(starts, ends, strict=False)]
    return [(int(match[1]), text.partition(marks.answer)[0].strip()) for match, text in zip(starts, texts, strict=True)]


def key_step_share(chain: str, key_steps: Sequence[KeyStep], marks: SectionMarks = OFFICIAL) -> float:
    """The share of the key steps that the steps of the chain mention; 0 where a problem has none."""
    steps = " ".join(text for _, text in numbered_steps(chain, marks)).lower()
    groups = [[name.lower() for name in group if name.strip()] for group in key_steps]
    return sum(any(name in steps for name in group) for group in groups) / len(groups) if groups else 0.0


def is_valid(chain: str, marks: SectionMarks = OFFICIAL) -> bool:
    steps, answer = list(marks.steps().finditer(chain)), chain.find(marks.answer)
    return (
        marks.description in chain
        and marks.rationales in chain
        and [int(match[1]) for match in steps] == list(range(1, len(steps) + 1))
        and len(steps) > 0
        and answer >= steps[-1].end()
    )


def final_answer(chain: str, marks: SectionMarks = OFFICIAL) -> str:
    """What the chain's last section says on its first line; the whole text where it has no such section."""
    _, mark, rest = chain.rpartition(marks.answer)
    return rest.strip().partition("\n")[0].strip().rstrip(".") if mark else chain


def read_key_steps(value: Any) -> tuple[KeyStep, ...]:
    """The key steps of a table's cell: `{"Steps": [["x = 3", "x is 3"], "7"]}` or the list alone."""
    groups = value.get("Steps") if isinstance(value, dict) else value
    if not isinstance(groups, Sequence) or isinstance(groups, str):
        return ()
    named = [(group,) if isinstance(group, str) else tuple(group or ()) for group in groups]
    kept = [tuple(name for name in group if isinstance(name, str) and name.strip()) for group in named]
    return tuple(group for group in kept if group)


def read_marks(value: Any) -> SectionMarks:
    """The section marks that a row names itself, as the mini world's do; the official ones where it does not."""
    return SectionMarks(**value) if value else OFFICIAL


def key_step_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what each line of the file says; one that a kill has cut short is none."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def read_key_step_file(path: Path) -> dict[str, tuple[KeyStep, ...]]:
    """The key steps of each problem in the file."""
    return {str(row["problem_id"]): read_key_steps(row["key_steps"]) for row in key_step_lines(path)}


def key_step_match(
    completions: Sequence[list[dict[str, str]]],
    key_steps: Sequence[Sequence[KeyStep]],
    section_marks: Sequence[SectionMarks],
    **_: Any,
) -> list[float]:
    """The reward of each completion for its key steps: a share from 0 to 1, which the recipe weighs."""
    rows = zip(completions, key_steps, section_marks, strict=True)
    return [key_step_share(completion[0]["content"], steps, marks) for completion, steps, marks in rows]


def chain_validity(
    completions: Sequence[list[dict[str, str]]], section_marks: Sequence[SectionMarks], **_: Any
) -> list[float]:
    """The reward of each completion for its form: 0 or 1, which the recipe weighs."""
    rows = zip(completions, section_marks, strict=True)
    return [float(is_valid(completion[0]["content"], marks)) for completion, marks in rows]


def check_key_steps(name: str, key_steps: Sequence[Sequence[KeyStep]]) -> None:
    """Raise where no problem of the training set has key steps: the reward would be the same for every response."""
    if not any(key_steps):
        raise MissingDataError(
            f"Training set {name} has no key steps.",
            why="The recipe rewards responses that take them.",
            next_step=f"atrl-bench key-steps {name} --data-dir DATA --base-url URL --model NAME",
        )

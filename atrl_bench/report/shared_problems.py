"""Problems that stand in two columns of a table: in their average they are one group.

A problem is known again by its words: question, choices and answer. A text that stands in several groups of one column
names none of them (a set that asks the same of many pictures), and one of a few words names nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from atrl_bench.report.scores import Scores
from atrl_bench.results.records import Problem

MIN_WORDS = 8
Group = tuple[str, str]  # column, group
Words = tuple[str, ...]


def shared_groups(columns: Mapping[str, Scores]) -> dict[Group, str]:
    """Return one name for all groups that have a problem in common across columns; nothing for any other group."""
    groups_of: dict[Words, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for column, scores in columns.items():
        for part in scores.parts:
            for problem in part.problems:
                if words := words_of(problem):
                    groups_of[words][column].add(problem.group)
    names: dict[Group, str] = {}
    for words in sorted(groups_of):
        single = [(column, *groups) for column, groups in groups_of[words].items() if len(groups) == 1]
        if len(single) > 1:
            _join(names, [(column, group) for column, group in single])
    return names


def words_of(problem: Problem) -> Words | None:
    """Return what a problem is known by in another benchmark; None where that is too little."""
    question = tuple(problem.question.lower().split())
    if len(question) < MIN_WORDS:
        return None
    return (*question, *problem.gold.choices, problem.gold.answer.strip().lower())


def named(residuals: Mapping[str, float], column: str, names: Mapping[Group, str]) -> dict[str, float]:
    """Return a column's residuals by the names that their groups have across columns."""
    sums: dict[str, float] = defaultdict(float)
    for group, value in residuals.items():
        if (column, group) in names:
            sums[names[column, group]] += value
    return dict(sums)


def _join(names: dict[Group, str], groups: Sequence[Group]) -> None:
    """Give these groups one name, and with them all that had a name of theirs."""
    before: Iterable[str] = {names[group] for group in groups if group in names}
    name = min([*before, ": ".join(groups[0])])
    for group in [*groups, *(group for group, known in names.items() if known in before)]:
        names[group] = name

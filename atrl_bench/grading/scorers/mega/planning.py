"""Symbolic planning: whether a plan leads from a PDDL problem's start to its goal, checked by walking through it.

Covers what the rows use: typed parameters (the types are not checked, as officially), conjunctions of facts, negated
facts, equality, and costs, which are skipped. Quantifiers and conditional effects cannot be scored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atrl_bench.grading.scorers.mega.metric import CannotScoreError

MAX_STEPS = 2000
MAX_DEPTH = 60
Expression = list[Any]  # of names and expressions
Fact = tuple[str, ...]
COSTS = ("increase", "decrease", "assign")


@dataclass(frozen=True)
class Action:
    """One action of a domain: parameters by name, and condition and effect as expressions."""

    parameters: tuple[str, ...]
    condition: Expression
    effect: Expression


def plan_reaches_goal(answer: Any, context: Mapping[str, Any]) -> float:
    """1 when every step of the plan is allowed where it stands and the goal holds at the end."""
    actions = _actions(_read(context["domain_pddl"]))
    task = _read(context["task_pddl"])
    state = {tuple(fact) for fact in _section(task, ":init") if fact[0] != "="}
    goal = next(iter(_section(task, ":goal")), ["and"])
    for step in _steps(answer):
        action = actions.get(step[0])
        if action is None or len(step) != len(action.parameters) + 1:
            return 0.0
        names = dict(zip(action.parameters, step[1:], strict=True))
        if not _holds(action.condition, names, state):
            return 0.0
        removed, added = _changes(action.effect, names)
        state = (state - removed) | added
    return float(_holds(goal, {}, state))


def _steps(answer: Any) -> list[Fact]:
    lines = [answer] if isinstance(answer, str) else answer
    if not isinstance(lines, Sequence):
        return []
    steps = [step for line in lines if isinstance(line, str) for step in re.findall(r"\(([^()]*)\)", line)]
    return [tuple(step.lower().split()) or ("",) for step in steps[:MAX_STEPS]]


def _read(text: str) -> Expression:
    """PDDL text as nested lists of lower-case names."""
    stack: list[Expression] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text).lower()):
        if token == "(":
            if len(stack) > MAX_DEPTH:
                raise CannotScoreError("the planning problem is nested too deep")
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise CannotScoreError("the planning problem has unbalanced brackets")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0] if stack[0] and isinstance(stack[0][0], list) else stack[0]


def _section(definition: Expression, name: str) -> list[Expression]:
    return next((part[1:] for part in definition if isinstance(part, list) and part[:1] == [name]), [])


def _actions(domain: Expression) -> dict[str, Action]:
    actions = {}
    for part in domain:
        if isinstance(part, list) and part[:1] == [":action"]:
            fields = dict(zip(part[2::2], part[3::2], strict=False))
            parameters = tuple(name for name in fields.get(":parameters", []) if str(name).startswith("?"))
            condition, effect = fields.get(":precondition", ["and"]), fields.get(":effect", ["and"])
            actions[part[1]] = Action(parameters, condition, effect)
    return actions


def _ground(fact: Expression, names: Mapping[str, str]) -> Fact:
    if not fact or not all(isinstance(part, str) for part in fact) or fact[0] in ("forall", "exists", "or", "when"):
        raise CannotScoreError(f"planning with {str(fact[0])[:20] if fact else 'nothing'!r} is not covered")
    return tuple(names.get(part, part) for part in fact)


def _holds(condition: Expression, names: Mapping[str, str], state: set[Fact]) -> bool:
    if not condition or condition[0] == "and":
        return all(_holds(part, names, state) for part in condition[1:])
    if condition[0] == "not":
        return not _holds(condition[1], names, state)
    fact = _ground(condition, names)
    return fact[1] == fact[2] if fact[0] == "=" and len(fact) == 3 else fact in state


def _changes(effect: Expression, names: Mapping[str, str]) -> tuple[set[Fact], set[Fact]]:
    """The facts an effect takes away and those it adds; what it does both to is there afterwards."""
    removed: set[Fact] = set()
    added: set[Fact] = set()
    for part in effect[1:] if not effect or effect[0] == "and" else [effect]:
        if part[0] == "not":
            removed.add(_ground(part[1], names))
        elif part[0] not in COSTS:
            added.add(_ground(part, names))
    return removed, added

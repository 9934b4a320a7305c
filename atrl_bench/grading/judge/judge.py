"""The judge: a language model behind an OpenAI-compatible endpoint that says Correct or Incorrect (D8).

The paper's judge is Qwen2.5-72B-Instruct at temperature 0.1, binary, unit-agnostic for numbers. It decides about the
answers that the rule grader cannot prove right; a sample of the proven ones it is asked about too, so that the
agreement of the two can be measured (`agreement`), and some answers whose verdict is known come first (`calibration`).

The first verdict counts and is kept, in the store if there is one, under the judge's identity and everything it was
shown: no cell, process or repeat asks the same again. A reply without a verdict is asked for again and then reported as
`judge failed`, never as wrong, and never kept. An endpoint that does not answer raises `EndpointError`, and the answers
stay ungraded until it does; what it said until then is not lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from atrl_bench.digests import spec_key
from atrl_bench.grading.judge.prompt import JUDGE_PROMPT_VERSION, Candidate, judge_messages, question_digest, verdict_in
from atrl_bench.models.chat_client import EndpointConfig, Reply, ask_all
from atrl_bench.results.records import Gold, State, Verdict
from atrl_bench.results.store import Judgement, Store

Scope = Literal["all", "open"]


@dataclass(frozen=True)
class JudgeConfig(EndpointConfig):
    """Which judge decides about what, and how patiently it is asked."""

    api_key_variable: str = "JUDGE_API_KEY"  # the key of the model's server is not for the judge's
    num_attempts: int = 5
    seconds: float = 120.0
    temperature: float = 0.1
    max_tokens: int = 512  # room for a judge that thinks before it answers
    scope: Scope = "all"  # `open` leaves an option letter to the rules, which read it as well as anybody
    strict: bool = True  # a judge that fails on its calibration set decides nothing
    criteria: str | None = None  # the user's own words on what is equal; None: ours
    prices: tuple[float, float] | None = None  # of a million tokens of questions, and of replies

    @property
    def identity(self) -> dict[str, Any]:
        """What can change a verdict, and therefore belongs into a cell's key; the address does not."""
        return {
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "prompt_version": JUDGE_PROMPT_VERSION,
            "scope": self.scope,
            "strict": self.strict,
            **({} if self.criteria is None else {"criteria": self.criteria}),
        }


class Decision(NamedTuple):
    """What the judge says to one question, and how often it was asked for that now: 0 where it was known."""

    judgement: Judgement
    calls: int


class Judge:
    """Asks a judge about many answers at once, and never twice about the same."""

    def __init__(
        self,
        config: JudgeConfig,
        store: Store | None = None,
        *,
        key: str | None = None,
        read: Callable[[str], str | None] = verdict_in,
        wanted: str = "verdict",
    ) -> None:
        self.config, self.store, self.key = config, store, key or spec_key(config.identity)
        self._read, self._wanted = read, wanted
        self._judgements: dict[str, Judgement] = {}  # by question, those that are kept

    def grade_many(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """The verdicts in order; raises `EndpointError` when the endpoint does not answer at all.

        `details["calls"]` is how many requests a verdict took: 0 when it was known, more than 1 after a retry.
        """
        decisions = self.decide([judge_messages(candidate, self.config.criteria) for candidate in candidates])
        return [
            Verdict(cast(State, said.state), candidate.extracted, "judge", said.why, details={"calls": calls})
            for candidate, (said, calls) in zip(candidates, decisions, strict=True)
        ]

    def decide(self, messages: Sequence[list[dict[str, str]]], *, keep: bool = True) -> list[Decision]:
        """What the judge says to each question; with `keep`, every verdict is stored the moment it is there."""
        questions = [question_digest(message) for message in messages]
        self._recall(questions)
        missing = {q: m for q, m in zip(questions, messages, strict=True) if q not in self._judgements}
        new = self._ask(missing, keep)
        decisions = []
        for question in questions:
            decision = new.get(question) or Decision(self._judgements[question], 0)
            # Another process may have stored its verdict first; then that one counts here too.
            decisions.append(decision._replace(judgement=self._judgements.get(question, decision.judgement)))
            if question in new:  # the same question later in the list costs nothing
                new[question] = decision._replace(calls=0)
        return decisions

    def keep(self, judgements: Sequence[Judgement]) -> None:
        """Remember verdicts, and store them; a missing one is asked for again by whoever needs it."""
        verdicts = [judgement for judgement in judgements if judgement.state != "judge failed"]
        if self.store is None:
            self._judgements |= {judgement.question: judgement for judgement in verdicts}
        else:
            self.store.add_judgements(self.key, verdicts)
            self._recall([judgement.question for judgement in verdicts])

    def _recall(self, questions: Sequence[str]) -> None:
        if self.store is not None:
            missing = [question for question in questions if question not in self._judgements]
            self._judgements |= self.store.judgements(self.key, missing)

    def _ask(self, messages: Mapping[str, list[dict[str, str]]], keep: bool) -> dict[str, Decision]:
        decisions: dict[str, Decision] = {}

        def decide(question: str, reply: Reply[str]) -> None:
            state = reply.reading or "judge failed"
            judge = self.config.model
            judge += f", answering as {reply.model}," if reply.model not in ("", judge) else ""
            why = reply.why or f"{judge} says {state}"
            decisions[question] = Decision(Judgement(question, state, why, time.time()), reply.num_requests)
            if keep:
                self.keep([decisions[question].judgement])

        ask_all(
            self.config,
            list(messages),
            messages.__getitem__,
            self._read,
            wanted=self._wanted,
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
            may_refuse=True,
            on_reply=decide,
        )
        return decisions


_OPTION = re.compile(r"[\W_]*(?:(?:option|choice|answer)[\W_]*)?[A-P](?:[\W_]*|[.:)].*)", re.I | re.S)


def is_in_scope(verdict: Verdict, gold: Gold, scope: Scope = "all") -> bool:
    """Whether a judge has a say in an answer with this verdict of the rules.

    It needs an extracted answer to compare, and a metric that asks no more than right or wrong.
    """
    if gold.metric != "equal" or verdict.extracted is None:
        return False
    if verdict.state == "unparseable" and verdict.grader == "fast":  # a runaway response: what is stored is its start
        return False
    has_options = gold.kind == "choice" or bool(gold.choices)
    return scope == "all" or not (has_options and _OPTION.fullmatch(verdict.extracted))

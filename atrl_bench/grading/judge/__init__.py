"""The judge: a language model behind an OpenAI-compatible endpoint that says Correct or Incorrect (D8).

The paper's judge is Qwen2.5-72B-Instruct at temperature 0.1, binary, unit-agnostic for numbers. It decides about the
answers that the rule grader cannot prove right; a sample of the proven ones it is asked about too, so that the
agreement of the two can be measured (`agreement`), and some answers whose verdict is known come first (`canaries`).

The first verdict counts and is kept, in the store if there is one, under the judge's identity and everything it was
shown: no cell, process or repeat asks the same again. A reply without a verdict is asked for again and then reported as
`judge failed`, never as wrong, and never kept. An endpoint that does not answer raises `EndpointError`, and the answers
stay ungraded until it does; what it said until then is not lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from atrl_bench.digests import spec_key
from atrl_bench.grading.judge.prompt import (
    JUDGE_PROMPT_VERSION,
    Candidate,
    judge_messages,
    parse_verdict,
    question_digest,
)
from atrl_bench.models.chat_client import ChatClient, EndpointConfig, UselessReplyError
from atrl_bench.results.records import Gold, State, Verdict
from atrl_bench.results.store import Judgement, Store

__all__ = ["Candidate", "Decision", "Judge", "JudgeConfig", "is_in_scope"]

Scope = Literal["all", "open"]


@dataclass(frozen=True)
class JudgeConfig:
    """Which judge decides about what, and how patiently it is asked."""

    base_url: str  # up to and without /chat/completions
    model: str
    temperature: float = 0.1
    max_tokens: int = 512  # room for a judge that thinks before it answers
    num_attempts: int = 5
    seconds: float = 120.0  # for one whole reply, however slowly it drips
    first_wait: float = 0.5  # doubled after every failure
    num_parallel: int = 8
    api_key_variable: str = "JUDGE_API_KEY"  # where its key is; the key of the model's server is not for the judge's
    scope: Scope = "all"  # `open` leaves an option letter to the rules, which read it as well as anybody
    strict: bool = True  # a judge that fails its canaries decides nothing

    @property
    def endpoint(self) -> EndpointConfig:
        """Where the judge is served."""
        return EndpointConfig(
            self.base_url,
            self.model,
            api_key_variable=self.api_key_variable,
            num_parallel=self.num_parallel,
            num_attempts=self.num_attempts,
            seconds=self.seconds,
            first_wait=self.first_wait,
        )

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
        }


class Decision(NamedTuple):
    """What the judge says to one question, and how often it was asked for that now: 0 where it was known."""

    judgement: Judgement
    calls: int


class Judge:
    """Asks a judge about many answers at once, and never twice about the same."""

    def __init__(
        self, config: JudgeConfig, store: Store | None = None, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.config = config
        self.store = store
        self.key = spec_key(config.identity)
        self._sleep = sleep
        self._known: dict[str, Judgement] = {}

    def grade_many(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Return the verdicts in order; raises `EndpointError` when the endpoint does not answer at all.

        `details["calls"]` is how many requests a verdict took: 0 when it was known, more than 1 after a retry.
        """
        return [
            Verdict(
                cast(State, decision.judgement.state),
                candidate.extracted,
                "judge",
                decision.judgement.why,
                details={"calls": decision.calls},
            )
            for candidate, decision in zip(candidates, self.decide(candidates), strict=True)
        ]

    def decide(self, candidates: Sequence[Candidate], *, keep: bool = True) -> list[Decision]:
        """Return what the judge says to each candidate; with `keep`, every verdict is stored the moment it is there."""
        messages = [judge_messages(candidate) for candidate in candidates]
        questions = [question_digest(message) for message in messages]
        self._recall(questions)
        missing = {q: m for q, m in zip(questions, messages, strict=True) if q not in self._known}
        asked: dict[str, Decision] = {}
        if missing:
            with (
                ChatClient(self.config.endpoint, sleep=self._sleep) as client,
                ThreadPoolExecutor(self.config.num_parallel) as threads,
            ):
                decisions = threads.map(lambda question: self._ask(client, question, missing[question], keep), missing)
                asked = dict(zip(missing, decisions, strict=True))
        decided = []
        for question in questions:
            decision = asked.get(question) or Decision(self._known[question], 0)
            # Another process may have stored its verdict first; then that one counts here too.
            decided.append(decision._replace(judgement=self._known.get(question, decision.judgement)))
            if question in asked:  # the same question later in the list costs nothing
                asked[question] = decision._replace(calls=0)
        return decided

    def keep(self, judgements: Sequence[Judgement]) -> None:
        """Remember verdicts, and store them; a missing one is asked for again by whoever needs it."""
        given = [judgement for judgement in judgements if judgement.state != "judge failed"]
        if self.store is None:
            self._known |= {judgement.question: judgement for judgement in given}
        else:
            self.store.add_judgements(self.key, given)
            self._recall([judgement.question for judgement in given])

    def _recall(self, questions: Sequence[str]) -> None:
        if self.store is not None:
            self._known |= self.store.judgements(self.key, [q for q in questions if q not in self._known])

    def _ask(self, client: ChatClient, question: str, messages: list[dict[str, str]], keep: bool) -> Decision:
        config, calls = self.config, 0

        def verdict() -> bool:
            nonlocal calls
            calls += 1
            [reply, *_] = client.complete(messages, temperature=config.temperature, max_tokens=config.max_tokens)
            said = None if reply.finish_reason == "length" else parse_verdict(reply.text)
            if said is None:
                raise UselessReplyError(f"no verdict in {reply.text[-60:]!r}")
            return said

        try:
            state: State = "correct" if client.retried(verdict) else "wrong"
            why = f"{config.model} says {state}"
        except UselessReplyError as error:
            state, why = "judge failed", str(error)
        judgement = Judgement(question, state, why, time.time())
        if keep:
            self.keep([judgement])
        return Decision(judgement, calls)


_OPTION = re.compile(r"[\W_]*(?:(?:option|choice|answer)[\W_]*)?[A-P](?:[\W_]*|[.:)].*)", re.I | re.S)


def is_in_scope(verdict: Verdict, gold: Gold, scope: Scope = "all") -> bool:
    """Return whether a judge has a say in an answer with this verdict of the rules.

    It needs an extracted answer to compare, and a metric that asks no more than right or wrong.
    """
    if gold.metric != "equal" or verdict.extracted is None:
        return False
    if verdict.state == "unparseable" and verdict.grader == "fast":  # a runaway response: what is stored is its start
        return False
    has_options = gold.kind == "choice" or bool(gold.choices)
    return scope == "all" or not (has_options and _OPTION.fullmatch(verdict.extracted))

"""What may be spent on an endpoint: so many tokens, or so much money at the prices of a million of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from atrl_bench.errors import BudgetSpentError

MILLION = 1_000_000
_counting = threading.Lock()


def money(num_prompt_tokens: int, num_answer_tokens: int, prices: tuple[float, float]) -> float:
    return (num_prompt_tokens * prices[0] + num_answer_tokens * prices[1]) / MILLION


@dataclass
class Budget:
    """Counts what the requests of one command took; those that are under way when it is spent are still answered."""

    limit: float
    prices: tuple[float, float] | None = None  # of a million tokens of prompts, and of answers; None: tokens count
    num_prompt_tokens: int = 0
    num_answer_tokens: int = 0
    parts: list[Budget] = field(default_factory=list, repr=False, compare=False)  # under one limit, this one too

    def __post_init__(self) -> None:
        self.parts.append(self)

    def beside(self, prices: tuple[float, float] | None) -> Budget:
        """What another server of the same command takes, at its own prices, out of the same limit."""
        return Budget(self.limit, prices, parts=self.parts)

    @property
    def spent(self) -> float:
        return sum(
            part.num_prompt_tokens + part.num_answer_tokens
            if part.prices is None
            else money(part.num_prompt_tokens, part.num_answer_tokens, part.prices)
            for part in self.parts
        )

    @property
    def text(self) -> str:
        prompts, answers = (
            sum(getattr(part, f"num_{kind}_tokens") for part in self.parts) for kind in ("prompt", "answer")
        )
        tokens = f"{prompts:,} tokens of prompts and {answers:,} of answers"
        if self.prices is None:
            return f"{tokens}, of {self.limit:,.0f}"
        return f"{self.spent:,.4g} of {self.limit:,.4g}: {tokens}"

    def require_left(self) -> None:
        if self.spent >= self.limit:
            raise BudgetSpentError(
                "What --max-cost allows is spent.",
                why=f"This command took {self.text}. Every answer that came is stored.",
                next_step="the same command again: it asks for what is missing, and may spend as much again",
            )

    def count(self, num_prompt_tokens: int, num_answer_tokens: int) -> None:
        with _counting:
            self.num_prompt_tokens += num_prompt_tokens
            self.num_answer_tokens += num_answer_tokens

"""What may be spent on an endpoint: so many tokens, or so much money at the prices of a million of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass

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

    @property
    def spent(self) -> float:
        if self.prices is None:
            return self.num_prompt_tokens + self.num_answer_tokens
        return money(self.num_prompt_tokens, self.num_answer_tokens, self.prices)

    @property
    def text(self) -> str:
        tokens = f"{self.num_prompt_tokens:,} tokens of prompts and {self.num_answer_tokens:,} of answers"
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

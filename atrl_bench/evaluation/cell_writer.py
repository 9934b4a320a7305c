"""What is written down about a cell while it is filled: answers, verdicts, rows that were left out, progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.prompts_for import UnreadableRow
from atrl_bench.grading.judge.agreement import combined, opinion_keys
from atrl_bench.grading.judge.charts import with_opinions
from atrl_bench.grading.judge.judge import Judge, is_in_scope
from atrl_bench.grading.judge.prompt import Candidate
from atrl_bench.grading.thought import split_thought
from atrl_bench.results.records import Problem, Response, Verdict
from atrl_bench.results.store import Store

MAX_BAD_FRACTION = 0.01  # more rows that cannot be asked than this, and the number is not the benchmark's any more


def require_few(bad: Sequence[UnreadableRow], num_bad: int, num_rows: int) -> None:
    """Raise where so many rows of a task cannot be asked that its number would not be the benchmark's."""
    if num_bad > MAX_BAD_FRACTION * num_rows:
        raise InvalidFileError(
            f"{num_bad} of {num_rows} rows cannot be read, shown or asked.",
            why=f"The last one is {bad[-1].problem_id}: {bad[-1].reason}.",
            next_step="mend the row or the data, or raise what the server allows; then run the same command",
        )


@dataclass
class CellWriter:
    """Writes one cell; of several processes with a `share` in it, the first writes down the progress."""

    store: Store
    key: str
    problems: Sequence[Problem]
    num_repeats: int
    judge: Judge | None
    share: tuple[int, int] = (0, 1)
    num_done: int = 0
    malformed: Sequence[UnreadableRow] = ()  # rows that are no problems
    skipped: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.golds = {problem.problem_id: problem.gold for problem in self.problems}
        self.questions = {p.problem_id: str(p.meta.get("judge_question", p.question)) for p in self.problems}
        self.opinions = opinion_keys(self.golds, self.num_repeats) if self.judge else frozenset()
        self.skip(*self.malformed)

    @property
    def total(self) -> int:
        return (self.num_rows - len(self.skipped)) * self.num_repeats

    @property
    def num_rows(self) -> int:
        return len(self.problems) + len(self.malformed)

    def grade_stored(self) -> None:
        samples = self.store.samples(self.key)
        self._grade([s.response for s in samples if s.verdict is None or s.verdict.state == "judge failed"])
        self._report()

    def save(self, responses: list[Response]) -> None:
        responses = list(map(with_thought, responses))
        if self.store.add_responses(self.key, responses) < len(responses):
            # Another command was first: its answers are there, and verdicts are of them.
            answered = {(response.problem_id, response.repeat) for response in responses}
            problems = [p for p in self.problems if p.problem_id in {name for name, _ in answered}]
            stored = [sample.response for sample in self.store.samples_of(self.key, problems)]
            responses = [response for response in stored if (response.problem_id, response.repeat) in answered]
        self._grade(responses)
        self._report()

    def skip(self, *rows: UnreadableRow) -> None:
        for row in rows:
            self.store.add_skipped(self.key, row.problem_id, row.reason)
            self.skipped.add(row.problem_id)
        require_few(rows, len(self.skipped), self.num_rows)

    def _grade(self, responses: Sequence[Response]) -> None:
        from atrl_bench.grading.grade import shared_pool  # a table is planned, printed and explained without the grader

        verdicts = shared_pool().grade_many([(r.text, self.golds[r.problem_id]) for r in responses])
        if self.judge is not None:
            verdicts = self._judged(self.judge, responses, verdicts)
        answers = [(response.problem_id, response.repeat) for response in responses]
        self.store.add_verdicts(self.key, dict(zip(answers, verdicts, strict=True)))

    def _judged(self, judge: Judge, responses: Sequence[Response], verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts, the judge's for all but those proven right; on a few of these it is heard too."""
        golds = [self.golds[response.problem_id] for response in responses]
        answers = [(response.text, gold) for response, gold in zip(responses, golds, strict=True)]
        decided = list(with_opinions(answers, verdicts, judge.config))
        candidates = {
            index: Candidate(self.questions[response.problem_id], gold, verdict.extracted or "")
            for index, (response, gold, verdict) in enumerate(zip(responses, golds, decided, strict=True))
            if is_in_scope(verdict, gold, judge.config.scope)
            and (verdict.state != "correct" or (response.problem_id, response.repeat) in self.opinions)
        }
        opinions = judge.grade_many(list(candidates.values()))
        for index, opinion in zip(candidates, opinions, strict=True):
            decided[index] = combined(decided[index], opinion)
        return decided

    def _report(self) -> None:
        if self.share[0] > 0:
            return  # the first of several processes reports for all
        cell = self.store.cell(self.key)  # where other processes and commands answer, too
        self.num_done = cell.num_responses if cell else 0
        self.store.heartbeat("cell", self.key, self.num_done, self.total)


def with_thought(response: Response) -> Response:
    """The response with its tokens of thought counted; one that ends inside its thought was cut off there."""
    thought, rest = split_thought(response.text)
    by_letters = round(response.num_tokens * len(thought) / max(1, len(response.text)))
    num_thought = min(response.num_thought or by_letters, response.num_tokens)
    return replace(response, num_thought=num_thought, truncated=response.truncated or rest is None)

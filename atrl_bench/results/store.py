"""The result store: one SQLite file with a row per (cell, problem, repeat), safe to kill and to share.

A *cell* is one model on one task under one setting; its key is the hash of everything that can change the number, so a
changed setting is a new cell and old answers never mix with new ones. A *run* is one training, keyed the same way.
Every method that writes is one transaction: what it returned from is on disk, what it did not return from is not there.
Several processes may write at once, and readers never wait for them.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from atrl_bench.digests import canonical_json, key_of, spec_key
from atrl_bench.errors import StoreError
from atrl_bench.results.connection import checksum_of, connect, explained, flush, transaction
from atrl_bench.results.packing import dictionary_of
from atrl_bench.results.records import SCORED, Gold, Problem, Response, Sample, Verdict
from atrl_bench.results.schema import CHECKED, SCANNED, WRITES

if TYPE_CHECKING:
    from atrl_bench.results.score_array import ScoreArray

TRAINING = "training"  # the kind of a run's spec; other kinds are measurements
_VERDICT = "state, extracted, grader, why, score, details"
NUM_BENCHMARKS = 8  # whose problems are kept in memory
PROBLEMS_AT_ONCE = 128  # whose answers are, where a whole cell's need not be


@dataclass(frozen=True)
class Cell:
    """One cell's record: `state` is "pending", "done" or "failed", `expected` the samples it should have."""

    key: str
    spec: dict[str, Any]
    state: str
    reason: str
    expected: int | None
    num_problems: int
    num_responses: int
    num_truncated: int
    num_tokens: int  # of all answers
    num_thought: int
    num_graded: int
    version: int  # another one whenever anything of its problems, answers or verdicts has changed
    created: float
    updated: float


@dataclass(frozen=True)
class Run:
    """One training's record. `state` is "pending", "done" or "failed"; `checkpoint` is relative to the run folder."""

    key: str
    spec: dict[str, Any]
    state: str
    reason: str
    checkpoint: str
    digest: str
    seconds: float | None
    summary: dict[str, Any]
    created: float
    updated: float


@dataclass(frozen=True)
class Judgement:
    """What a judge said about one question, named by the digest of all it saw; it holds for every cell that asks it."""

    question: str
    state: str
    why: str
    created: float


@dataclass(frozen=True)
class Progress:
    """How far a cell or run was at `updated`; `started` and `start_done` are the first beat of its present process."""

    kind: str
    key: str
    done: int
    total: int
    started: float
    start_done: int
    updated: float
    place: str = ""  # the machine it runs on, "" for that of the store

    @property
    def seconds_left(self) -> float | None:
        """The time left at the speed since the first beat of this process, or None before anything moved."""
        moved = self.done - self.start_done
        return None if moved <= 0 else (self.updated - self.started) / moved * (self.total - self.done)


class Store:
    """An open store. Use it as a context manager; it may be shared between threads, not across a fork."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()
        self._parsed_problems = lru_cache(maxsize=NUM_BENCHMARKS)(self._problems)

    @classmethod
    def open(cls, path: Path | str, *, read_only: bool = False) -> Self:
        """The store at `path`, created if need be. `read_only` works while other processes write."""
        return cls(Path(path), connect(Path(path), read_only=read_only))

    def close(self) -> None:
        """Close the file; the last one out folds the write-ahead log back into it."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Cells

    def add_cell(self, spec: Mapping[str, Any]) -> str:
        return self._add("add_cell", spec)

    def cell(self, key: str) -> Cell | None:
        return next(self._cells("WHERE key = ?", key), None)

    def cells(self, **filters: Any) -> list[Cell]:
        """The cells whose spec has all these values (`state` means the cell's own), oldest first."""
        return [
            cell
            for cell in self._cells("ORDER BY created, key")
            if all((cell.state if name == "state" else cell.spec.get(name)) == value for name, value in filters.items())
        ]

    def finish_cell(self, key: str, *, expected: int) -> None:
        """Mark the cell as done, with the number of samples (problems times repeats) it should hold."""
        self._update_cell(key, "done", expected=expected)

    def fail_cell(self, key: str, reason: str) -> None:
        """Mark the cell as failed; its stored answers stay, and the next run may finish it."""
        self._update_cell(key, "failed", reason)

    def add_problems(self, key: str, problems: Sequence[Problem]) -> None:
        """Add the cell's problems in this order; those it has already keep their place, and are mended if damaged."""
        cell = self.cell(key)
        offset = cell.num_problems if cell else 0
        rows = []
        for position, problem in enumerate(problems, start=offset):
            columns = _stored(problem.group, problem.question, *_gold_columns(problem))
            name = _storable(problem.problem_id)
            rows.append((key, name, position, *columns, checksum_of(key, name, *columns)))
        self._write("add_problem", rows)

    def problems(self, key: str) -> list[Problem]:
        """The cell's problems in the order they were added; cells of one benchmark share them in memory."""
        rows = self._read(f"SELECT {_PROBLEM} FROM problems WHERE cell = ? ORDER BY position", key)
        return list(self._parsed_problems(tuple(rows)))

    def problem_ids(self, key: str) -> list[str]:
        return [row[0] for row in self._read("SELECT problem_id FROM problems WHERE cell = ? ORDER BY position", key)]

    def add_skipped(self, key: str, problem_id: str, reason: str) -> None:
        """Record a row of the dataset that cannot be asked: it is counted and named until it is answered after all."""
        self._write("add_skipped", [(key, problem_id, reason)])

    def skipped(self, key: str) -> dict[str, str]:
        answered = "SELECT problem_id FROM responses WHERE cell = ?1"
        query = f"SELECT problem_id, reason FROM skipped WHERE cell = ?1 AND problem_id NOT IN ({answered}) ORDER BY 1"
        return dict(self._read(query, key))

    def add_responses(self, key: str, responses: Sequence[Response]) -> int:
        """Store a batch in one transaction and return how many were new; an answer that is there is never replaced."""
        answers = [
            (
                *map(_storable, (r.problem_id, r.repeat, r.prompt_hash, r.text)),
                r.num_tokens,
                float(r.seconds),
                int(r.truncated),
                r.num_thought,
            )
            for r in responses
        ]
        if not self._read("SELECT 1 FROM dictionaries WHERE cell = ?", key):  # nobody has answered yet
            self._write("add_dictionary", [(key, dictionary_of(answer[3] for answer in answers))], is_flushed=False)
        self.add_names(key, {r.answered_as for r in responses} - {""})
        rows = [(key, *answer, checksum_of(*answer)) for answer in answers]
        return self._write("add_response", rows)

    def responses(self, key: str) -> dict[tuple[str, int], Response]:
        """The cell's answers by (problem, repeat); raises `StoreError` if one was changed on the disk."""
        return self._whole(key, self._read_responses(key))

    def add_names(self, key: str, names: Iterable[str]) -> None:
        """Record what a server called the model behind the cell's answers."""
        if rows := [(key, name) for name in names]:
            self._write("add_name", rows, is_flushed=False)

    def answered_as(self, key: str) -> list[str]:
        """Every name that a server gave the model behind the cell's answers: more than one where an alias moved."""
        return [row[0] for row in self._read("SELECT model FROM answered_as WHERE cell = ? ORDER BY model", key)]

    def _whole(self, key: str, rows: Iterable[_StoredResponse]) -> dict[tuple[str, int], Response]:
        responses = {}
        for answer, response, is_whole in rows:
            if not is_whole:
                raise StoreError(
                    f"{len(self.damaged(key))} of the answers of cell {key} in {self.path} are not what was stored.",
                    why=f"The checksum of problem {answer[0]!r}, repeat {answer[1]}, does not fit: its bytes changed.",
                    next_step=f"atrl-bench verify --repair --out {quote(str(self.path.parent))} drops them, "
                    "to be asked for again",
                )
            responses[answer] = response
        return responses

    def damaged(self, key: str) -> list[tuple[str, int]]:
        """The (problem, repeat) of the cell's answers that are not what was stored."""
        return [answer for answer, _, is_whole in self._read_responses(key) if not is_whole]

    def changed(self, table: str, owner: str) -> list[tuple[Any, ...]]:
        """What names those of a cell's problems or verdicts, or of a judge's judgements, that are not as stored."""
        columns = ", ".join(f'"{name}"' for name in CHECKED[table])
        rows = self._read(f"SELECT {columns}, checksum FROM {table} WHERE {CHECKED[table][0]} = ?", owner)
        num_names = 2 if table == "grades" else 1
        return [row[1 : 1 + num_names] for row in rows if row[-1] != checksum_of(*row[:-1])]

    def judges(self) -> list[str]:
        return [row[0] for row in self._read("SELECT DISTINCT judge FROM judgements ORDER BY judge")]

    def misnamed(self) -> list[str]:
        """The cells and runs whose description is not the one that their key names."""
        rows = self._read("SELECT key, spec FROM cells UNION ALL SELECT key, spec FROM runs ORDER BY key")
        return [str(key) for key, spec in rows if key_of(spec) != key]

    def drop_verdicts(self, key: str, answers: Sequence[tuple[Any, ...]]) -> None:
        """Remove these verdicts of a cell, which is then pending again."""
        self._write("drop_verdict", [(key, *answer) for answer in answers])
        self._update_cell(key, "pending")

    def drop_judgements(self, judge: str, questions: Sequence[tuple[Any, ...]]) -> None:
        self._write("drop_judgement", [(judge, *question) for question in questions])

    def reopen_cell(self, key: str) -> None:
        """Mark a cell as pending: whoever fills it looks at all of it again."""
        self._update_cell(key, "pending")

    def damaged_pages(self) -> list[str]:
        """What SQLite finds wrong with the file itself; nothing for a whole one."""
        return [str(row[0]) for row in self._read("PRAGMA integrity_check(10)") if row[0] != "ok"]

    def miscounted(self) -> list[str]:
        """The cells of which the store has kept other counts than it has rows."""
        counted = "SELECT cell, problems, responses, truncated, tokens, thought, graded FROM counts"
        rows = self._read(f"SELECT key, {SCANNED} FROM cells EXCEPT {counted} ORDER BY key")
        return [str(row[0]) for row in rows]

    def recount(self, key: str) -> None:
        self._write("recount", [(key,)])

    def drop_responses(self, key: str, answers: Sequence[tuple[str, int]]) -> None:
        """Remove these answers of a cell and their verdicts; the cell is then pending again."""
        rows = [(key, *answer) for answer in answers]
        self._write("drop_verdict", rows)
        self._write("drop_response", rows)
        self._update_cell(key, "pending")

    def _read_responses(self, key: str, problem_ids: Sequence[str] | None = None) -> list[_StoredResponse]:
        columns = "problem_id, repeat, prompt_hash, text, num_tokens, seconds, truncated, num_thought"
        query = f"SELECT {columns}, checksum FROM responses WHERE cell = ?"
        return [
            ((row[0], row[1]), Response(*[*row[:6], bool(row[6]), row[7]]), row[8] == checksum_of(*row[:8]))
            for row in self._read_of(query, key, problem_ids)
        ]

    def _read_of(self, query: str, key: str, problem_ids: Sequence[str] | None) -> list[tuple[Any, ...]]:
        """The rows of a cell, or those of some of its problems, by problem and repeat."""
        if problem_ids is None:
            return self._read(f"{query} ORDER BY problem_id, repeat", key)
        some = f"AND problem_id IN ({', '.join('?' * len(problem_ids))}) ORDER BY problem_id, repeat"
        return self._read(f"{query} {some}", key, *problem_ids)

    def add_verdicts(self, key: str, verdicts: Mapping[tuple[str, int], Verdict]) -> None:
        """Store the verdicts on (problem, repeat) in one transaction; a later verdict replaces an earlier one."""
        rows = [
            _stored(key, *answer, *v[:4], None if v.score is None else float(v.score), canonical_json(v.details))
            for answer, v in verdicts.items()
        ]
        self._write("add_verdict", [(*row, checksum_of(*row)) for row in rows])

    def samples(self, key: str) -> list[Sample]:
        """The cell's answers with problem and verdict, in the order of the problems, then of the repeats."""
        return list(self.stream(key))

    def stream(self, key: str) -> Iterator[Sample]:
        """Yield what `samples` returns, a few problems' answers in memory at a time."""
        problems = self.problems(key)
        for start in range(0, len(problems), PROBLEMS_AT_ONCE):
            yield from self.samples_of(key, problems[start : start + PROBLEMS_AT_ONCE])

    def answered(self, key: str) -> set[str]:
        return {row[0] for row in self._read("SELECT DISTINCT problem_id FROM responses WHERE cell = ?", key)}

    def samples_of(self, key: str, problems: Sequence[Problem]) -> list[Sample]:
        """The cell's answers to these of its problems, in this order, then of the repeats."""
        # Verdicts before responses: each read sees all that the one before it refers to, so another process may write
        # in between. (SQLite's join would sort whole answers to bring them into this order.)
        names = [problem.problem_id for problem in problems]
        query = f"SELECT problem_id, repeat, {_VERDICT} FROM grades WHERE cell = ?"
        verdicts = {
            (row[0], row[1]): Verdict(*row[2:7], details=self._parsed(row[7]))  # type: ignore[misc]
            for row in self._read_of(query, key, names)
        }
        of_problem: dict[str, list[Response]] = defaultdict(list)
        for response in self._whole(key, self._read_responses(key, names)).values():
            of_problem[response.problem_id].append(response)
        return [
            Sample(problem, response, verdicts.get((problem.problem_id, response.repeat)))
            for problem in problems
            for response in of_problem[problem.problem_id]
        ]

    def scores(self, key: str) -> ScoreArray:
        """What the cell's answers are worth, from its verdicts: no answer is read."""
        from atrl_bench.results.score_array import STATES, ScoreArray, empty

        points = " ".join(f"WHEN '{state}' THEN coalesce(score, {value})" for state, value in SCORED.items())
        query = f"SELECT problem_id, repeat, state, CASE state {points} END FROM grades WHERE cell = ?"
        verdicts, cell = self._read(query, key), self.cell(key)
        are_all = cell is not None and cell.num_responses == len(verdicts)
        answers = verdicts if are_all else self._read("SELECT problem_id, repeat FROM responses WHERE cell = ?", key)
        problems = self.problems(key)
        position = {problem.problem_id: p for p, problem in enumerate(problems)}
        scores_PR, states_PR = empty(len(problems), 1 + max((row[1] for row in answers), default=-1))
        codes = {state: code for code, state in enumerate(STATES)}
        states_PR[_at(position, answers)] = codes["ungraded"]
        at = _at(position, verdicts)
        states_PR[at] = [codes[row[2]] for row in verdicts]
        scores_PR[at] = [math.nan if row[3] is None else row[3] for row in verdicts]
        return ScoreArray(tuple(problems), scores_PR, states_PR)

    def without_verdict(self, key: str) -> list[tuple[str, str]]:
        """Grader and reason of each answer of the cell that nobody could decide about."""
        rows = self._read("SELECT grader, why FROM grades WHERE cell = ? AND state = 'judge failed'", key)
        return [(str(grader), str(why)) for grader, why in rows]

    def lacks_judgement(self, key: str) -> bool:
        """Whether a judge failed on any answer of the cell."""
        return any(grader == "judge" for grader, _ in self.without_verdict(key))

    def mean_tokens(self) -> float | None:
        """The mean length of stored answers, ten thousand at most, None where there are none."""
        query = "SELECT avg(num_tokens) FROM (SELECT num_tokens FROM responses LIMIT 10000)"
        mean: float | None = self._read(query)[0][0]
        return mean

    # What judges said

    def add_judgements(self, judge: str, judgements: Sequence[Judgement]) -> None:
        """Store what the judge with this key said; the first verdict on a question stays, whoever stored it."""
        rows = [_stored(judge, j.question, j.state, j.why, float(j.created)) for j in judgements]
        self._write("add_judgement", [(*row, checksum_of(*row)) for row in rows])

    def judgements(self, judge: str, questions: Iterable[str]) -> dict[str, Judgement]:
        """By question what the judge with this key is known to have said to these questions."""
        rows = self._read(
            "SELECT question, state, why, created FROM judgements WHERE judge = ? AND question IN"
            " (SELECT value FROM json_each(?)) ORDER BY question",
            judge,
            json.dumps(list(questions)),
        )
        return {row[0]: Judgement(*row) for row in rows}

    # Training runs

    def add_run(self, spec: Mapping[str, Any]) -> str:
        return self._add("add_run", spec)

    def run(self, key: str) -> Run | None:
        return next(self._runs("WHERE key = ?", key), None)

    def runs(self) -> list[Run]:
        return [run for run in self._runs("ORDER BY created, key") if run.spec.get("kind", TRAINING) == TRAINING]

    def measurements(self) -> list[Run]:
        """What is neither trained nor answered, and kept as a run of another kind, oldest first."""
        return [run for run in self._runs("ORDER BY created, key") if run.spec.get("kind", TRAINING) != TRAINING]

    def finish_run(
        self, key: str, *, seconds: float, summary: Mapping[str, Any], checkpoint: str = "", digest: str = ""
    ) -> None:
        """Mark the run as done with its checkpoint (relative to the run folder), and its last figures or its record."""
        self._update_run(key, "done", "", (checkpoint, digest, seconds, canonical_json(summary)))

    def fail_run(self, key: str, reason: str) -> None:
        self._update_run(key, "failed", reason)

    # Pages

    def page(self, name: str) -> tuple[str, str] | None:
        """The key of what a page was last made from and what is known of its files; None for no such page."""
        rows = self._read("SELECT key, files FROM pages WHERE name = ?", name)
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def pages(self) -> list[tuple[str, str]]:
        """The names of all pages, and what is known of the files of each."""
        return [(str(name), str(files)) for name, files in self._read("SELECT name, files FROM pages ORDER BY name")]

    def keep_page(self, name: str, key: str, files: str) -> None:
        """Remember what a page was made from, and what is known of its files."""
        self._write("keep_page", [(name, key, files)])

    def forget_pages(self, folder: str, kept: Collection[str]) -> None:
        """Forget the pages of this folder whose files were removed."""
        names = [name for name, _ in self.pages() if name.startswith(folder) and name not in kept]
        if names:  # a flush costs
            self._write("forget_page", [(name,) for name in names])

    # Progress

    def heartbeat(self, kind: str, key: str, done: int, total: int, place: str = "") -> None:
        """Record how far the cell, run or measurement ("cell", "run", "measurement") is, for `status` and its ETA.

        Going backwards, or a silence of more than ten minutes, starts a new measurement of the speed: another process
        took over, and the time in between was not spent working.
        """
        self._write("heartbeat", [(kind, key, done, total, time.time(), place)], is_flushed=False)

    def progress(self) -> list[Progress]:
        """The latest heartbeat of every cell and run, the most recent first."""
        return [Progress(*row) for row in self._read("SELECT * FROM progress ORDER BY updated DESC, kind, key")]

    # One place each for reading and for writing

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock, explained(self.path, "read"):
            return self._connection.execute(query, values).fetchall()

    def _write(self, name: str, rows: Iterable[Sequence[Any]], *, is_flushed: bool = True) -> int:
        """Have a statement of `schema.WRITES` carried out for each of the rows; return how many it has changed."""
        return self._commit(name, [tuple(map(_storable, row)) for row in rows], is_flushed)

    def _commit(self, name: str, rows: list[tuple[Any, ...]], is_flushed: bool) -> int:
        with explained(self.path, "write to"):
            try:
                with self._lock, transaction(self._connection):
                    num_changed = max(0, self._connection.executemany(WRITES[name], rows).rowcount)
                if is_flushed:  # while the next one writes already: several flushes are one
                    flush(self.path)
                return num_changed
            except sqlite3.IntegrityError as error:
                raise StoreError(
                    f"A record does not belong to anything in the result store {self.path}.",
                    why=f"Cells come before problems, problems before responses, responses before grades: {error}.",
                ) from error

    def _add(self, name: str, spec: Mapping[str, Any]) -> str:
        key, now = spec_key(spec), time.time()
        self._write(name, [(key, canonical_json(spec), now, now)])
        return key

    def _update_cell(self, key: str, state: str, reason: str = "", expected: int | None = None) -> None:
        if not self._write("update_cell", [(state, reason, expected, time.time(), key)]):
            raise StoreError(f"The result store {self.path} has no cell {key}.")

    def _update_run(self, key: str, state: str, reason: str, finished: Sequence[Any] = (None,) * 4) -> None:
        """`finished`: checkpoint, digest, seconds and summary; None leaves each as it is."""
        if not self._write("update_run", [(state, reason, *finished, time.time(), key)]):
            raise StoreError(f"The result store {self.path} has no run {key}.")

    def _cells(self, rest: str, *values: Any) -> Iterator[Cell]:
        counted = "problems, responses, truncated, tokens, thought, graded, version"
        columns = f"key, spec, state, reason, expected, {counted}, created, updated"
        for key, spec, *fields in self._read(f"SELECT {columns} FROM cells JOIN counts ON cell = key {rest}", *values):
            yield Cell(key, self._parsed(spec), *fields)

    def _runs(self, rest: str, *values: Any) -> Iterator[Run]:
        columns = "key, spec, state, reason, checkpoint, digest, seconds, summary, created, updated"
        for key, spec, *fields, summary, created, updated in self._read(f"SELECT {columns} FROM runs {rest}", *values):
            record: list[Any] = [key, self._parsed(spec), *fields, self._parsed(summary), created, updated]
            yield Run(*record)

    def _problems(self, rows: tuple[tuple[Any, ...], ...]) -> tuple[Problem, ...]:
        return tuple(map(self._problem, rows))

    def _problem(self, row: Sequence[Any]) -> Problem:
        problem_id, group, question, answer, choices, meta = row
        meta = self._parsed(meta)
        gold = Gold(answer, self._json(choices, list), **meta.pop("gold", {}))
        return Problem(problem_id, group, question, gold, meta)

    def _parsed(self, text: str) -> dict[str, Any]:
        return dict(self._json(text, dict))

    def _json(self, text: str, kind: type) -> Any:
        try:
            value = json.loads(text)
            if not isinstance(value, kind):
                raise TypeError
            return value
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"A record of the result store {self.path} is damaged.",
                why=f"It should be JSON and begins with {str(text)[:40]!r}: the file was changed on disk.",
                next_step="restore the file from a copy, or move it away and run again",
            ) from error


_PROBLEM = 'problem_id, "group", question, gold, choices, meta'


def _gold_columns(problem: Problem) -> tuple[str, str, str]:
    """What three columns hold: the gold answer, its options, and the rest of it among the problem's details."""
    details = dict(vars(problem.gold))
    answer, choices = details.pop("answer"), details.pop("choices")
    return answer, canonical_json(choices), canonical_json({**problem.meta, "gold": details})


_StoredResponse = tuple[tuple[str, int], Response, bool]  # where it belongs, and whether it is what was stored


def _at(position: Mapping[str, int], rows: Sequence[Sequence[Any]]) -> tuple[list[int], list[int]]:
    return [position[row[0]] for row in rows], [row[1] for row in rows]


def _stored(*values: Any) -> tuple[Any, ...]:
    """The values as they are read back: a checksum is of these."""
    return tuple(None if isinstance(value, float) and math.isnan(value) else _storable(value) for value in values)


def _storable(value: Any) -> Any:
    # A lone surrogate, which some decoders produce, is no UTF-8: it is kept visibly as its escape.
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value

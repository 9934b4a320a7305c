"""Preference pairs from graded answers of the base model: of one problem, a right answer and a wrong one.

Answers are sampled as the rollouts of every other method are, and stored as they come: a killed run goes on after its
last stored part, and trains on the pairs that it would have had.

Shapes: P prompts, G answers each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

import torch

from atrl_bench.engines.processes import launched
from atrl_bench.errors import MissingDataError
from atrl_bench.grading.grade import GradingPool
from atrl_bench.models.local import end_tokens
from atrl_bench.results.files import replaced
from atrl_bench.training.data import TrainingData
from atrl_bench.training.group_sampling import completions_of, sample_groups
from atrl_bench.training.order import generator
from atrl_bench.training.passes import computing_in
from atrl_bench.training.recipe import PairSampling, PreferenceRecipe
from atrl_bench.training.rewards.combined import AccuracyReward
from atrl_bench.training.rollout import messages_of, read_prompts
from atrl_bench.training.sharding import whole
from atrl_bench.training.trainer import TrainerInputs

PAIRS_FILE = "pairs.parquet"
COUNT = "without: "  # how the metadata of a table name the problems that gave no pair


@dataclass(frozen=True)
class GradedAnswer:
    """A graded answer to the problem in this row of the training data."""

    row: int
    text: str
    correct: bool
    is_cut: bool = False  # at the length limit: it has no end


@dataclass(frozen=True)
class PreferencePair:
    """A better and a worse answer to the problem in this row of the training data."""

    row: int
    chosen: str
    rejected: str
    chosen_is_cut: bool = False
    rejected_is_cut: bool = False


def pairs_of(
    answers: Sequence[GradedAnswer], max_per_problem: int, run_seed: int
) -> tuple[list[PreferencePair], dict[str, int]]:
    """The pairs, problem by problem, and how many problems gave none for which reason.

    Equal answers count once. Of all pairs of a right and a wrong one `max_per_problem` are drawn, by the seed and the
    problem alone.
    """
    pairs, without = [], Counter[str]()
    for row, group in groupby(sorted(answers, key=lambda answer: answer.row), key=lambda answer: answer.row):
        of_problem = list(group)
        right = {answer.text: answer.is_cut for answer in of_problem if answer.correct}
        wrong = {answer.text: answer.is_cut for answer in of_problem if not answer.correct}
        if not right or not wrong:
            without["all answers right" if right else "all answers wrong"] += 1
            continue
        possible = list(product(right, wrong))
        order = generator("pairs", run_seed, row).permutation(len(possible))
        drawn = [possible[index] for index in order[:max_per_problem]]
        pairs += [PreferencePair(row, better, worse, right[better], wrong[worse]) for better, worse in drawn]
    return pairs, dict(without)


def sampled_pairs(
    settings: PairSampling, inputs: TrainerInputs[PreferenceRecipe], rows: Sequence[int]
) -> tuple[list[PreferencePair], dict[str, int]]:
    """The pairs of the problems in `rows` and the counts of `pairs_of`, sampled now or read from the run folder.

    Pairs are in `pairs.parquet`. Until that is there, answers are in `resume/answers`, a file for each
    `prompts_per_rollout` problems. Only the main process has these files.
    """
    processes, size = launched(), inputs.recipe.sizes(inputs.profile).prompts_per_rollout
    path = inputs.resume_folder.parent / PAIRS_FILE
    if not processes.agree(path.is_file()):
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        answers: list[GradedAnswer] = []
        with GradingPool() as pool:
            for number, part in enumerate(parts):
                answers += _answered(part, inputs, pool, inputs.resume_folder / "answers" / f"{number}.parquet")
        if processes.is_main:
            pairs, without = pairs_of(answers, settings.max_pairs_per_problem, inputs.seed)
            _write(pairs, path, without)
    stored_pairs, counts = processes.agree(_read(path) if processes.is_main else ([], {}))
    if not stored_pairs:
        raise MissingDataError(
            f"{len(rows)} problems gave no pair of a right and a wrong answer.",
            why=", ".join(f"{count} with {reason}" for reason, count in counts.items()),
            next_step="take a base model that solves some of its problems, or more answers a problem (group_size)",
        )
    return [PreferencePair(**row) for row in stored_pairs], counts


def _answered(
    rows: Sequence[int], inputs: TrainerInputs[PreferenceRecipe], pool: GradingPool, path: Path
) -> list[GradedAnswer]:
    """The graded answers to these problems, of which each process gives its share unless they are stored."""
    processes = launched()
    if processes.agree(path.is_file()):
        return processes.agree([GradedAnswer(**row) for row in _read(path)[0]] if processes.is_main else [])
    own = _sampled(rows[processes.index :: processes.count], inputs, pool)
    processes.meet("sampling for the pairs")
    answers = processes.gather(own)
    if processes.is_main:
        _write(answers, path, {})
    return answers


def given_pairs(data: TrainingData) -> list[PreferencePair]:
    return [PreferencePair(row, str(one.chosen), str(one.rejected)) for row, one in enumerate(data.problems)]


def _sampled(rows: Sequence[int], inputs: TrainerInputs[PreferenceRecipe], pool: GradingPool) -> list[GradedAnswer]:
    processor, sizes = inputs.processor, inputs.recipe.sizes(inputs.profile)
    examples = [inputs.data.example(row, inputs.seed) for row in rows]
    messages = [messages_of(example) for example in examples]
    keys = [f"pairs:{row}" for row in rows]
    computing = computing_in(getattr(torch, sizes.dtype), inputs.model.device)
    with whole(inputs.model) as model, computing:  # all processes together, also one without problems
        if not rows:
            return []
        eos_ids = end_tokens(model, processor.tokenizer)
        token_ids = sample_groups(
            model,
            read_prompts(processor, messages, keys, model.dtype),
            sizes,
            group_size=sizes.group_size,
            run_seed=inputs.seed,
            pad_id=processor.tokenizer.pad_token_id,
            eos_ids=eos_ids,
        ).token_ids
    completions = completions_of(processor, token_ids)
    rows_of = [row for row in rows for _ in range(sizes.group_size)]
    golds = [example["graded_as"] for example in examples for _ in range(sizes.group_size)]
    is_cut = [ids[-1] not in eos_ids for ids in token_ids]
    answered = zip(rows_of, completions, AccuracyReward(pool)(completions, golds), is_cut, strict=True)
    return [GradedAnswer(row, answer["content"], reward > 0, cut) for row, [answer], reward, cut in answered]


def _write(items: Sequence[Any], path: Path, counts: dict[str, int]) -> None:
    """Write a table whose metadata has the counts."""
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist([asdict(item) for item in items])
    metadata = {COUNT + reason: str(count) for reason, count in counts.items()}
    with replaced(path) as file:
        pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), file)


def _read(path: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    metadata = {name.decode(): value for name, value in (table.schema.metadata or {}).items()}
    counts = {name: int(value) for name, value in metadata.items() if name.startswith(COUNT)}
    return table.to_pylist(), {name.removeprefix(COUNT): count for name, count in counts.items()}

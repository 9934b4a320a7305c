"""Key steps for a training set that has none: a served model reads each solution and says what it cannot do without.

R1-VL had GPT-4o extract them from the chains of its supervised set. Where a set has a chain (a process, or a solution
in sections) that is what the model reads; where it has only an answer, as ViRL-39K, the model sees the images too and
has to solve the problem itself first. Every line names the model: the reward is as good as it is.

The result is a JSON line for each problem in `<set>.key_steps.jsonl` beside the set's table, where every training run
on it finds them. A line is written the moment it exists: the same command goes on where a killed one stopped.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atrl_bench.data.dataset import root_of
from atrl_bench.data.sets import find_set
from atrl_bench.errors import InvalidFileError, MissingDataError
from atrl_bench.models.chat_client import EndpointConfig, Reply, ask_all
from atrl_bench.models.served import data_url
from atrl_bench.results.files import write_atomically
from atrl_bench.training.data import TrainingProblem, load_training_data
from atrl_bench.training.rewards.steps import KeyStep, key_step_lines, read_key_step_file, read_key_steps

MAX_REPLY_CHARACTERS = 20_000
MAX_KEY_STEPS = 20
MAX_NAME_CHARACTERS = 200
MAX_TOKENS = 2_048
TEMPERATURE = 0.0  # R1-VL's is 0.9; the same problem should have the same key steps

INSTRUCTION = """You prepare training data. Below is a problem and {source}.

List the key steps that every correct solution has to state: intermediate values, equations and named facts, in order.
- A key step is short: a number with what it stands for, an equation, or a phrase of at most three words.
- Give each in every form a solution may write it in, for example "6/3 = 2", "6 / 3 = 2", "6 divided by 3 is 2".
- No key step twice, and not the final answer alone.

{task}End with one JSON object and nothing after it:
{{"Steps": [["first form", "second form"], ["only form"]]}}

TrainingProblem:
{question}

{solution}"""


@dataclass(frozen=True)
class KeyStepsResult:
    """What an extraction has written, in all."""

    path: Path
    num_problems: int  # with key steps
    num_refused: int  # that the model gave no usable reply for; the same command asks for them again


def extract_key_steps(
    name: str,
    data_dir: Path,
    endpoint: EndpointConfig,
    *,
    max_problems: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> KeyStepsResult:
    """The file with the key steps of training set `name`, asked of `endpoint` for every problem not yet in it.

    A problem that already has key steps in its own table needs none. `max_problems` asks for the first so many only.
    """
    data, described = load_training_data(name, data_dir), find_set(name)
    path = root_of(described, data_dir) / described.key_step_file
    extracted = read_key_step_file(path)
    if not extracted and all(problem.key_steps for problem in data.problems):
        raise MissingDataError(
            f"Nothing to extract: every problem of {name} has key steps in its table.",
            next_step="atrl-bench train step_grpo",
        )
    _drop_broken_lines(path)
    _require_same_model(path, endpoint.model)
    wanted = data.problems[:max_problems]
    missing = [problem for problem in wanted if not problem.key_steps]
    done, lock = len(wanted) - len(missing), threading.Lock()
    num_refused = 0

    with path.open("a", encoding="utf-8") as file:

        def write(problem: TrainingProblem, reply: Reply[tuple[KeyStep, ...]]) -> None:
            nonlocal done, num_refused
            with lock:
                if reply.reading:
                    line = {"problem_id": problem.problem_id, "key_steps": reply.reading, "model": endpoint.model}
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                done, num_refused = done + 1, num_refused + (not reply.reading)
                if on_progress is not None:
                    on_progress(done, len(wanted))

        ask_all(
            endpoint,
            missing,
            request,
            lambda text: read_reply(text) or None,
            wanted="key steps",
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
            read_cut_off=True,
            on_reply=write,
        )
    return KeyStepsResult(path, len(read_key_step_file(path)), num_refused)


def request(problem: TrainingProblem) -> list[dict[str, Any]]:
    """The chat messages that ask for one problem's key steps: with its chain, or with its images and answer."""
    if problem.process:
        source, task, solution = "a correct solution of it", "", f"Solution:\n{problem.process}"
    else:
        source, task = "its correct answer", "First solve the problem in a few lines. "
        solution = f"Correct answer:\n{problem.answer}"
    text = INSTRUCTION.format(source=source, task=task, question=problem.question, solution=solution)
    pictures = [] if problem.process else problem.decoded()
    images = [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in pictures]
    return [{"role": "user", "content": [*images, {"type": "text", "text": text}]}]


def read_reply(text: str) -> tuple[KeyStep, ...]:
    """The key steps of the last JSON object in a reply; none where it has no such object, or too much of it."""
    text = text[-MAX_REPLY_CHARACTERS:]
    starts = [match.start() for match in re.finditer(r'\{\s*"Steps"', text)]
    try:
        reply, _ = json.JSONDecoder().raw_decode(text[starts[-1] :]) if starts else (None, 0)
    except (json.JSONDecodeError, RecursionError):
        return ()
    steps = read_key_steps(reply)
    if len(steps) > MAX_KEY_STEPS or any(len(name) > MAX_NAME_CHARACTERS for step in steps for name in step):
        return ()
    return steps


def _require_same_model(path: Path, model: str) -> None:
    if others := sorted({str(line.get("model", model)) for line in key_step_lines(path)} - {model}):
        raise InvalidFileError(
            f"{path} has key steps that {', '.join(others)} named, not {model}.",
            why="A reward by the key steps of two models is neither's.",
            next_step=f"give --model {others[0]} to go on, or move the file away to have {model} asked for all",
        )


def _drop_broken_lines(path: Path) -> None:
    """Write the file again without a line that a kill has cut short: the next one would be glued to it."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text and not text.endswith("\n"):
        write_atomically(path, text[: text.rfind("\n") + 1].encode())

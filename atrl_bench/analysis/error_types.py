"""What kind of error a wrong answer is: by the generator's ground truth, or by a judge.

On the mini world it is known what an image shows, so a response that lists what it read can be checked: read wrong is
an error of perception, read right and still wrong one of reasoning. Elsewhere a judge is asked, which sees the
question, the gold answer and the response, but not the image: its word on perception is a guess from the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atrl_bench.digests import spec_key
from atrl_bench.grading.judge.judge import Judge, JudgeConfig
from atrl_bench.grading.judge.prompt import THINKING, neutralised
from atrl_bench.results.records import Sample
from atrl_bench.results.store import Store
from atrl_bench.settings import read_mapping

if TYPE_CHECKING:
    from atrl_bench.mini.problems import DigitProblem

WORDS = read_mapping(Path(__file__).with_suffix(".yaml"))
TYPES: dict[str, str] = WORDS["types"]  # what they mean, for the judge and for the reader
PROMPT_VERSION = "1"
MAX_CHARS = 6000

_SHOWN = re.compile(r"The image shows ([^.]*)\.")


def is_error(sample: Sample) -> bool:
    """Whether an answer is counted as an error: it was judged, and it is not a full point."""
    return sample.score is not None and sample.score < 1.0


def type_by_truth(sample: Sample, problem: DigitProblem) -> str:
    """The kind of error of a response about a generated problem, from what its image really shows."""
    assert sample.verdict is not None
    if sample.verdict.state in ("unparseable", "timed out") or sample.verdict.extracted is None:
        return "extraction"
    transcript = _SHOWN.search(sample.response.text)
    if transcript is None:
        return "unexplained"
    # Digits may be run together or stand after letters; numbers of several digits are not in these images.
    return "reasoning" if re.findall(r"\d", transcript[1]) == problem.transcription.split() else "perception"


# By a judge -------------------------------------------------------------------------------------------------------


def types_by_judge(samples: Sequence[Sample], config: JudgeConfig, store: Store) -> list[str | None]:
    """The kind of error of each sample as the judge names it; None where it names none.

    What it said once is kept in the store, like its verdicts, and never asked again.
    """
    key = spec_key({"asked": "error type", "prompt_version": PROMPT_VERSION, "judge": config.identity})
    judge = Judge(config, store, key=key, read=parse_type, wanted="kind of error")
    types = [decision.judgement.state for decision in judge.decide([error_messages(sample) for sample in samples])]
    return [None if kind == "judge failed" else kind for kind in types]


def error_messages(sample: Sample) -> list[dict[str, str]]:
    """The chat messages that ask about one wrong answer; no response can contain the mark around itself."""
    text = neutralised(sample.response.text[-MAX_CHARS:])
    question = f"Question:\n{sample.problem.question}\n\nReference answer: {sample.problem.gold.answer}\n\n"
    mark = hashlib.sha256(f"{question}\0{text}".encode("utf-8", "replace")).hexdigest()[:16]
    types = "\n".join(f"- {name}: {meaning}." for name, meaning in TYPES.items())
    system = WORDS["instructions"].format(types=types, words=", ".join(TYPES)).replace("MARK", mark)
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"{question}Response:\n{mark}\n{text}\n{mark}"},
    ]


_TYPE_LINE = re.compile(rf"^[\W_]*(?:(?:answer|error|type|kind)[\W_]{{1,6}})?({'|'.join(TYPES)})[\W_]*$", re.I | re.M)


def parse_type(reply: str) -> str | None:
    """The kind of error that the last line names which names one and says nothing else."""
    named = _TYPE_LINE.findall(THINKING.sub("", reply))
    return named[-1].lower() if named else None

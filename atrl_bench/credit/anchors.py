"""Is the credit on the right tokens? What a response's tokens are for, where data says so, and the AUC of a score."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import BoolTensor, Tensor

from atrl_bench.credit.truth import TokenTruth


def anchor_auc(score_T: Tensor, is_anchor_T: Tensor) -> float:
    """Returns the probability that a random anchor token scores above a random other one (ties count half).

    0.5 is chance. NaN if the response has no anchors or nothing but anchors, since then there is nothing to rank.
    """
    score, is_anchor = np.asarray(score_T, dtype=np.float64), np.asarray(is_anchor_T, dtype=bool)
    if not 0 < np.count_nonzero(is_anchor) < len(is_anchor):
        return math.nan
    anchor_A, other_O = score[is_anchor], np.sort(score[~is_anchor])
    below_A, not_above_A = (np.searchsorted(other_O, anchor_A, side) for side in ("left", "right"))
    return float((below_A + not_above_A).mean() / (2 * len(other_O)))


def tokens_of_part(truth: TokenTruth, part: str, token_texts: Sequence[str]) -> BoolTensor:
    """Returns which tokens belong to a part: by the first group of its pattern, else those that list what was read."""
    if part not in truth.patterns:
        return transcribed_tokens(list(token_texts), truth.transcription if part == "perception" else "")
    matches = re.finditer(truth.patterns[part], "".join(token_texts))
    return _tokens_at(token_texts, [position for match in matches for position in range(*match.span(1))])


def tokens_of_parts(truth: TokenTruth | None, token_texts: Sequence[str]) -> dict[str, Tensor]:
    """Returns the tokens of each part that is known."""
    return {} if truth is None else {part: tokens_of_part(truth, part, token_texts) for part in truth.parts}


def transcribed_tokens(token_texts: list[str], transcription: str) -> BoolTensor:
    """Returns which response tokens transcribe the image, given what it shows in reading order ("3 7 2").

    These are the first numbers of the response that list the transcription: all of it, in order, one after the other
    with only words and signs between them, or run together ("372"). Numbers that cannot have been read from the image
    are passed over: the one after an "=", and all from the first "\\boxed" on. A response without such a listing
    has no such token; one that misreads a digit has none either.
    """
    response = "".join(token_texts).partition("\\boxed")[0]
    numbers = [match for match in re.finditer(r"(=\s*[-+]?)?(\d+)", response) if match[1] is None]
    for wanted in (transcription.split(), ["".join(transcription.split())]):
        for start in range(len(numbers) - len(wanted) + 1):
            listing = numbers[start : start + len(wanted)]
            if wanted and [number[2] for number in listing] == wanted:
                return _tokens_at(token_texts, [position for number in listing for position in range(*number.span(2))])
    return _tokens_at(token_texts, [])


def _tokens_at(token_texts: Sequence[str], positions: Sequence[int]) -> BoolTensor:
    """Returns which tokens have a character at one of these positions of the whole response."""
    is_there_T = torch.zeros(len(token_texts), dtype=torch.bool)
    owner = [t for t, text in enumerate(token_texts) for _ in text]
    is_there_T[[owner[position] for position in positions]] = True
    return is_there_T  # type: ignore[return-value]

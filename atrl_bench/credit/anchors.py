"""Is the credit on the right tokens? Ground truth from a response that lists what it read, and the AUC of a score."""

from __future__ import annotations

import math
import re

import torch
from torch import BoolTensor, Tensor


def anchor_auc(score_T: Tensor, is_anchor_T: Tensor) -> float:
    """Returns the probability that a random anchor token scores above a random other one (ties count half).

    0.5 is chance. NaN if the response has no anchors or nothing but anchors, since then there is nothing to rank.
    """
    anchor_A, other_O = score_T[is_anchor_T.bool()].double(), score_T[~is_anchor_T.bool()].double()
    if not len(anchor_A) or not len(other_O):
        return math.nan
    ordered_O = other_O.sort().values
    below_A = torch.searchsorted(ordered_O, anchor_A, right=False)
    not_above_A = torch.searchsorted(ordered_O, anchor_A, right=True)
    return float((below_A + not_above_A).double().mean() / (2 * len(other_O)))


def transcribed_tokens(token_texts: list[str], transcription: str) -> BoolTensor:
    """Returns which response tokens transcribe the image, given the digits it shows in reading order ("3 7 2").

    These are the first digits of the response that list the whole transcription in order. Digits that cannot have
    been read from the image do not count: the number after an "=", and everything from the first "\\boxed" on.
    If the digits occur one after the other somewhere (only words and signs between them) that listing is taken,
    otherwise the earliest digits in the right order. A response that does not list them all has no such token.
    """
    is_transcribed_T = torch.zeros(len(token_texts), dtype=torch.bool)
    owner = [t for t, text in enumerate(token_texts) for _ in text]
    response = "".join(token_texts).partition("\\boxed")[0]
    computed = {i for match in re.finditer(r"=\s*[-+]?\d+(?:\.\d+)?", response) for i in range(*match.span())}
    digits = [i for i, character in enumerate(response) if character.isdigit() and i not in computed]
    wanted = [character for character in transcription if character.isdigit()]
    found = [response[i] for i in digits]
    for start in range(len(found) - len(wanted) + 1):
        if wanted and found[start : start + len(wanted)] == wanted:
            positions = digits[start : start + len(wanted)]
            break
    else:
        positions = _first_in_order(response, digits, wanted)
    is_transcribed_T[[owner[i] for i in positions]] = True
    return is_transcribed_T  # type: ignore[return-value]


def _first_in_order(response: str, digits: list[int], wanted: list[str]) -> list[int]:
    positions: list[int] = []
    for i in digits:
        if len(positions) < len(wanted) and response[i] == wanted[len(positions)]:
            positions.append(i)
    return positions if len(positions) == len(wanted) else []

"""Running text compared by its word groups: BLEU for languages with blanks, GLEU for Chinese."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

LONGEST = 4  # words in a group
_TOKEN = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")


def bleu(answer: Any, gold: Any) -> float:
    """Return sacreBLEU / 100, in the official direction: the gold is scored against the answer as its reference.

    The same text gets 1 here; sacreBLEU itself gives 0 to any text of less than four tokens.
    """
    if isinstance(answer, str) and isinstance(gold, str):
        answer, gold = [answer], [gold]
    if not _all_texts(answer) or not _all_texts(gold) or len(answer) != len(gold):
        return 0.0
    if list(answer) == list(gold):
        return 1.0
    import sacrebleu

    return float(sacrebleu.corpus_bleu(list(gold), [list(answer)]).score) / 100


def _all_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, str) for item in value)


def gleu(answer: Any, gold: Any) -> float:
    """Return GLEU: the common groups of one to four tokens, over the groups of the side that has more of them.

    A token is a Chinese character or a Latin word. The official script cuts Chinese into words with jieba's dictionary,
    so its scores of partly right translations differ; those of right and of unrelated ones do not.
    """
    if not isinstance(answer, str) or not isinstance(gold, str):
        return 0.0
    predicted, right = _groups(_TOKEN.findall(answer)), _groups(_TOKEN.findall(gold))
    most = max(predicted.total(), right.total())
    return (predicted & right).total() / most if most else float(answer == gold)


def _groups(tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(tokens[start : start + length])
        for length in range(1, LONGEST + 1)
        for start in range(len(tokens) - length + 1)
    )

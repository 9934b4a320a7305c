"""The text that supervised training imitates, from a row's reasoning and answer."""

from __future__ import annotations

import re

_THINK_TAGS = re.compile(r"</?think>")


def response_of(process: str, answer: str, form: str) -> str:
    r"""Return the text to imitate: the reasoning and the answer in one of the forms of `SupervisedRecipe.response`.

    `boxed`: "3+4=7. The answer is \boxed{7}."; `tags`: "<think>3+4=7.</think>\n<answer>7</answer>"; `process`: the
    reasoning as it stands, for sets whose text already ends in the answer.
    """
    if form == "process":
        return process.strip()
    reasoning = _THINK_TAGS.sub("", process).strip()
    if form == "tags":
        return f"<think>{reasoning}</think>\n<answer>{answer}</answer>"
    return f"{reasoning} The answer is \\boxed{{{answer}}}.".lstrip()

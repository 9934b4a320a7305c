r"""What a model that thinks before it answers has said behind its thought, in the forms of today's models.

`<think>…</think>`, `<thinking>`, `◁think▷…◁/think▷` (Kimi-VL), `<|begin_of_thought|>…<|end_of_thought|>` (Sky-T1);
a prompt may have opened the thought, so that a response only closes it. GLM-4.1V marks the answer itself:
`<|begin_of_box|>…<|end_of_box|>` is read as `\boxed{…}`.
"""

from __future__ import annotations

import re

_BEGINS = re.compile(r"<think(?:ing)?>|◁think▷|<\|begin_of_thought\|>", re.I)
_ENDS = re.compile(r"</think(?:ing)?>|◁/think▷|<\|end_of_thought\|>", re.I)
_ANSWER = re.compile(r"<answer>", re.I)
_BOX = re.compile(r"<\|begin_of_box\|>(.*?)<\|end_of_box\|>", re.S)


def behind_thought(response: str) -> str | None:
    """The response without its thought; None if it ends inside one, cut off before any answer."""
    _, rest = split_thought(response)
    return None if rest is None else _BOX.sub(r"\\boxed{\1}", rest)


def split_thought(response: str) -> tuple[str, str | None]:
    """A response's thought, with its tags, and what is behind it; None if it ends inside one.

    An answer in tags ends a thought that was not closed.
    """
    if "<" not in response and "◁" not in response:
        return "", response
    rest = _ENDS.split(response)[-1]
    if begin := _BEGINS.search(rest):
        answer = _ANSWER.search(rest, begin.end())
        if answer is None:
            return response, None
        rest = rest[answer.start() :]
    return response[: len(response) - len(rest)], rest

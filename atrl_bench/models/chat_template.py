"""The chat template of a model, which is a program: tried before it is used, where it can be stopped.

Jinja's sandbox keeps it from everything but time and memory. A template is tried once on each machine, in a process
with limits on both, with a conversation of each kind of turn; one that goes beyond them is not used.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from functools import cache
from pathlib import Path
from typing import Any

from atrl_bench.digests import memory_file, recall, remember
from atrl_bench.errors import InvalidFileError
from atrl_bench.models.bases import base_folder
from atrl_bench.sandbox.pool import Failure, WorkerPool

SECONDS = 5.0  # of computing, for a conversation of a few lines
MEMORY_BYTES = 8 << 30  # of addresses: importing transformers takes most of them
TRIED = "templates.json"
_TEXT = {"type": "text", "text": "What is shown? " * 8}
CONVERSATIONS = [
    [{"role": "user", "content": [{"type": "image"}, _TEXT]}],
    [
        {"role": "system", "content": [_TEXT]},
        {"role": "user", "content": [{"type": "image"}, {"type": "video"}, _TEXT]},
        {"role": "assistant", "content": [_TEXT]},
        {"role": "user", "content": [_TEXT]},
    ],
]


def require_tame(processor: Any, folder: Path) -> None:
    """Raise where rendering the template of a model takes more time or memory than a conversation is worth."""
    template = getattr(processor, "chat_template", None) or getattr(processor.tokenizer, "chat_template", None)
    texts = template.values() if isinstance(template, dict) else [template] if template else []
    for text in texts:
        _try_once(str(text), folder)


def begun_thought(processor: Any) -> str:
    """What the prompts of a model write of its response, from the thought on: `<think>` where they open one."""
    asked, begun = (
        processor.apply_chat_template(CONVERSATIONS[0], tokenize=False, add_generation_prompt=begins)
        for begins in (False, True)
    )
    _, mark, rest = begun.removeprefix(asked).partition("<think>")
    return mark + rest


@cache
def _try_once(template: str, folder: Path) -> None:
    name, tried = hashlib.sha256(template.encode()).hexdigest(), recall(memory_file(TRIED))
    shipped = base_folder("mini") / "chat_template.jinja"
    is_ours = shipped.is_file() and shipped.read_text(encoding="utf-8") == template
    if name in tried or is_ours or multiprocessing.current_process().daemon:
        return
    with WorkerPool(work="its chat template", seconds=SECONDS, memory_bytes=MEMORY_BYTES) as pool:
        pool.call_each([(_import, ())])
        for result in pool.call_each([(_render, (template, conversation)) for conversation in CONVERSATIONS]):
            if isinstance(result, Failure) and result.state == "timed out":
                raise InvalidFileError(
                    f"The chat template of {folder} is not used.",
                    why=f"A conversation of a few lines: {result.why}.",
                    next_step="take another model, or mend its chat_template.jinja",
                )
    remember(memory_file(TRIED), {**tried, name: True})


def _import() -> None:
    """Let transformers be imported before the clock of a template starts."""
    import transformers.utils.chat_template_utils  # noqa: F401


def _render(template: str, conversation: list[dict[str, Any]]) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    render_jinja_template([conversation], chat_template=template, add_generation_prompt=True)

"""MEGA-Bench, the core set of 440 tasks that are scored by rules, and its single-image subset.

Chen et al., "MEGA-Bench: Scaling Multimodal Evaluation to over 500 Real-World Tasks", ICLR 2025. 6,531 rows (4,108 with
one image), about 15 of each task; every task brings its own answer format, one or more answer fields, and a metric for
each field. `metric_info`, `answer` and the media columns are Python literals in strings; nothing evaluates them.

An example, abridged: task `research_website_parsing_homepage`, description "Read a paper homepage and answer the
question in short phrase or number.", query "<image> What's the performance of MAmmoTH2-8B-plus on GPQA?", metric_info
`{'field_score_function': {'answer': 'multi_ref_phrase'}, 'aggregation': {'function': 'mean', 'field_weights':
{'answer': 1}}, 'response_parse_function': 'answer_string'}`.

Media: the repository's `data.zip` (9 GB), which `atrl-bench fetch mega_bench_core` unpacks. By hand unpack it in
`<data_dir>/mega_bench`, beside `core/test-*.parquet`, so that the paths in `query_media` and its like lead to files
there. Images and videos (43 of the 505 tasks have some) stand where the texts say `<image>` and `<video>`; a row with
a file missing is skipped and counted.

The number is the macro mean, over tasks of the mean over a task's rows, as the official script computes it; its author
calls it micro (issue 10 of the official repository), so `micro`, the mean over rows, is there too. Some rows get no
verdict ("judge failed", counted, outside both means): programs without `--allow-code`, texts that need a pronouncing
dictionary, distances between named places, and metrics that need another model. `atrl_bench.grading.scorers.mega`
lists them, and where its rules are not the official script's. The response may give its answer in a box (the paper's
protocol), after `Answer:` or as JSON (the task's own).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, repeat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from atrl_bench.evaluation.hooks import Gold, Row, column, hooks, open_image, prepare, video_file
from atrl_bench.grading.scorers.mega.literals import read_literal
from atrl_bench.grading.scorers.mega.scoring import pack_rules, written_response
from atrl_bench.results.statistics import mean_by, plain_mean

if TYPE_CHECKING:
    from PIL.Image import Image

TEXTS = ("task_description", "example_text", "query_text")
MEDIA = ("global_media", "example_media", "query_media")
COLUMNS = ("id", "task_name", *TEXTS, *MEDIA, "answer", "metric_info", "eval_context")
KEPT = ("task_name", "application")
STATISTICS = {
    "macro": mean_by(lambda problem: problem.meta["task_name"]),
    "micro": lambda problems: plain_mean,
}
HEADLINE = "macro"
BREAKDOWN = "application"
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm")
process_docs = prepare


def problem_id(row: Row) -> str:
    return f"{row['task_name']}/{row['id']}"


group = column("task_name")  # the task, whose rows are alike


def question(row: Row) -> str:
    """Description, example and query; `<image>` and `<video>` stand where the media belong."""
    return "\n".join(row[name].strip() for name in TEXTS if row[name] and row[name].strip())


def gold(row: Row) -> Gold:
    rules = pack_rules(row["metric_info"], row["answer"], row["eval_context"])
    return Gold(row["answer"], kind="text", metric="mega", rules=rules)


def gold_response(row: Row) -> str:
    """The row's answer as a model would have to write it."""
    return written_response(gold(row))


def media(row: Row) -> list[str]:
    """The paths of the row's images and videos below the benchmark's folder, in the order of its texts."""
    names = chain.from_iterable(read_literal(row[name]) if row[name] else () for name in MEDIA)
    return [str(PurePosixPath(name)) for name in names]


def images(row: Row) -> list[Image | str]:
    return [part["url"] for part in _media_parts(row)]


def doc_to_messages(row: Row, lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The question with each picture and video where the text has its mark; what has no mark comes first."""
    parts = re.split(r"<(?:image|video)>", doc_to_text(row, lmms_eval_specific_kwargs))
    media_parts = _media_parts(row)
    unmarked = media_parts[: max(0, len(media_parts) - len(parts) + 1)]
    content = list(unmarked)
    marked = chain(media_parts[len(unmarked) :], repeat(None))
    for text, part in zip(parts, marked, strict=False):
        content += [{"type": "text", "text": text}] if text.strip() else []
        content += [part] if part is not None else []
    return [{"role": "user", "content": content}]


def _media_parts(row: Row) -> list[dict[str, Any]]:
    files = [video_file(row, name) for name in media(row)]
    return [
        {"type": "video", "url": file}
        if file.lower().endswith(VIDEO_SUFFIXES)
        else {"type": "image", "url": open_image(Path(file))}
        for file in files
    ]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)

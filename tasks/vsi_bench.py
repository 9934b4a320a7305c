"""VSI-Bench: what a model remembers of a room it was walked through.

Yang et al., "Thinking in Space: How Multimodal Large Language Models See, Remember, and Recall Spaces", CVPR 2025.
5,130 questions about 288 indoor videos, of ten types: six with lettered options, four answered by a number.

A row: dataset `arkitscenes`, scene_name `41069025`, question_type `object_counting`, question "How many table(s) are in
this room?", options null. Gold: `4`. Another: question_type `object_rel_distance`, "[...] which of these objects is the
closest to the door?", options `["A. table", "B. stool", "C. tv", "D. sofa"]`. Gold: `B`.

`atrl-bench fetch vsi_bench` brings rows and videos. By hand: `arkitscenes.zip`, `scannet.zip` and `scannetpp.zip` of
the hub's dataset, unpacked beside the Parquet file (`hf download --repo-type dataset nyu-visionx/VSI-Bench
--local-dir DATA/vsi_bench`, then `unzip` in that folder), so that each is
`DATA/vsi_bench/<dataset>/<scene_name>.mp4`; then `--data-dir DATA`.

The benchmark's number is the mean of eight category means, where the three levels of `object_rel_direction` are
averaged into one category first; a category without a row (as under `--limit`) is left out. Numbers earn parts of a
point (`grading.scorers.numbers.mra`, with the published arithmetic). Video-R1's evaluation differs twice: it asks for
an error strictly below each threshold, and prints accuracy and MRA apart. A letter counts however it is written, where
the official rule wants it to be the first word. The gold has some wrong counts; they are kept.
"""

from __future__ import annotations

import re

from atrl_bench.evaluation.hooks import Gold, Row, choice_gold, hooks, label, prepare, video_file
from atrl_bench.models.templates import with_choices
from atrl_bench.results.statistics import mean_by

COLUMNS = ("id", "dataset", "scene_name", "question_type", "question", "ground_truth", "options")
KEPT = ("question_type", "dataset")
BREAKDOWN = "question_type"
DIRECTION = "object_rel_direction"
LEVELS = {f"{DIRECTION}_{level}": DIRECTION for level in ("easy", "medium", "hard")}
STATISTICS = {"categories": mean_by(lambda problem: problem.meta["question_type"], merge=LEVELS)}
HEADLINE = "categories"
process_docs = prepare
problem_id = label("id")


def group(row: Row) -> str:
    """The scene: about eighteen questions share one video."""
    return f"{row['dataset']}/{row['scene_name']}"


def media(row: Row) -> list[str]:
    """Where the scene's video is in the benchmark's folder."""
    return [f"{group(row)}.mp4"]


def options(row: Row) -> list[str]:
    """The options without their letters; none for a question that a number answers."""
    return [re.sub(r"^[A-P]\.\s*", "", option) for option in row["options"] or ()]


def question(row: Row) -> str:
    return with_choices(row["question"], options(row)) if row["options"] else row["question"]


def gold(row: Row) -> Gold:
    if row["options"]:
        return choice_gold(row["ground_truth"], options(row))
    return Gold(row["ground_truth"], kind="number", metric="mra")


def images(row: Row) -> list[str]:
    return [video_file(row, name) for name in media(row)]


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(
    problem_id, group, question, gold, images, medium="video"
)

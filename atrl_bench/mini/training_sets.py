"""Training sets that stand for ViRL-39K, Geometry-3K and GeoQA-8K, in their columns, over training scans only.

ViRL-39K is the copy with embedded images (the original has an archive). Each set has one more column than the real one,
`transcription`: the digits as read from the image, in reading order. It is the ground truth for anchor tokens, and no
trainer may learn from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, each, embedded, strings
from atrl_bench.mini.benchmarks.main_7b import GEOMETRY_KINDS
from atrl_bench.mini.corpus import draw_posed, pose
from atrl_bench.mini.problems import KINDS, draw_problem
from atrl_bench.mini.training_chains import R1_VL
from atrl_bench.mini.training_videos import VIDEO_R1, VIDEO_R1_COT

if TYPE_CHECKING:
    import numpy as np


def _virl39k(index: int, rng: np.random.Generator) -> Row:
    """A problem of any kind, the answer in a box as in the real set.

    A letter is the gold only where letters are all there is: the rows have no column for options, so a grader could not
    accept the text of the right one.
    """
    posed = draw_posed("train", rng, lettered=False)
    return {
        "id": str(index),
        "problem": f"<image>{posed.question}",
        "answer": f"\\boxed{{{posed.answer}}}",
        "category": "(GradeSchool) Geometric" if posed.problem.kind.unit else "(GradeSchool) Non-Geo Math",
        "qid": f"mini-{index}",
        "images": [embedded(posed.problem, f"{index}.png", with_glyph=posed.with_glyph)],
        "transcription": posed.problem.transcription,
    }


def _geometry3k(index: int, rng: np.random.Generator) -> Row:
    problem = draw_problem(KINDS[GEOMETRY_KINDS[index % len(GEOMETRY_KINDS)]], "train", rng)
    return {
        "images": [embedded(problem, f"{index}.png")],
        "problem": f"<image>{problem.question}",
        "answer": problem.answer,
        "transcription": problem.transcription,
    }


GEOQA_KINDS = (*GEOMETRY_KINDS, "sum", "product")


def _geoqa_8k(index: int, rng: np.random.Generator) -> Row:
    posed = pose(draw_problem(KINDS[GEOQA_KINDS[index % len(GEOQA_KINDS)]], "train", rng), "open", rng)
    unit = posed.problem.kind.unit
    return {
        "image": embedded(posed.problem, f"{index}.png"),
        "problem": posed.question,
        "solution": f"<answer> {posed.answer}{unit} </answer>",
        "transcription": posed.problem.transcription,
    }


VIRL39K_COLUMNS = {
    **strings("id", "problem", "answer", "category", "qid"),
    "images": ["image"],
    "transcription": "string",
}
GEOMETRY3K_COLUMNS = {"images": ["image"], **strings("problem", "answer", "transcription")}
GEOQA_COLUMNS = {"image": "image", **strings("problem", "solution", "transcription")}
TRAINING_SETS: dict[str, SyntheticDataset] = {
    "virl39k": SyntheticDataset("virl39k", "train", VIRL39K_COLUMNS, each(_virl39k)),
    "geometry3k": SyntheticDataset("geometry3k", "train", GEOMETRY3K_COLUMNS, each(_geometry3k)),
    "geoqa_8k": SyntheticDataset("geoqa_8k", "train", GEOQA_COLUMNS, each(_geoqa_8k)),
    "r1_vl": R1_VL,
    "video_r1": VIDEO_R1,
    "video_r1_cot": VIDEO_R1_COT,
}

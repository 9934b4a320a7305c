"""Training sets that stand for ViRL-39K, Geometry-3K and GeoQA-8K, in their columns, over training scans only.

ViRL-39K is the copy with embedded images (the original has an archive). Each set has one more column than the real one,
`transcription`: the digits as read from the image, in reading order. It is the ground truth for anchor tokens, and no
trainer may learn from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atrl_bench.mini.benchmarks.dataset import Row, SyntheticDataset, embedded
from atrl_bench.mini.benchmarks.main_7b import GEOMETRY_KINDS
from atrl_bench.mini.corpus import draw_posed, pose
from atrl_bench.mini.problems import KINDS, draw_problem
from atrl_bench.mini.training_chains import R1_VL
from atrl_bench.mini.training_videos import VIDEO_R1, VIDEO_R1_COT

if TYPE_CHECKING:
    import numpy as np
    from datasets import Features


def _virl39k(count: int, rng: np.random.Generator) -> list[Row]:
    """Return problems of every kind, the answer in a box as in the real set.

    A letter is the gold only where letters are all there is: the rows have no column for options, so a grader could not
    accept the text of the right one.
    """
    rows = []
    for index in range(count):
        posed = draw_posed("train", rng, lettered=False)
        rows.append(
            {
                "id": str(index),
                "problem": f"<image>{posed.question}",
                "answer": f"\\boxed{{{posed.answer}}}",
                "category": "(GradeSchool) Geometric" if posed.problem.kind.unit else "(GradeSchool) Non-Geo Math",
                "qid": f"mini-{index}",
                "images": [embedded(posed.problem, f"{index}.png", with_glyph=posed.with_glyph)],
                "transcription": posed.problem.transcription,
            }
        )
    return rows


def _geometry3k(count: int, rng: np.random.Generator) -> list[Row]:
    rows = []
    for index in range(count):
        problem = draw_problem(KINDS[GEOMETRY_KINDS[index % len(GEOMETRY_KINDS)]], "train", rng)
        rows.append(
            {
                "images": [embedded(problem, f"{index}.png")],
                "problem": f"<image>{problem.question}",
                "answer": problem.answer,
                "transcription": problem.transcription,
            }
        )
    return rows


GEOQA_KINDS = (*GEOMETRY_KINDS, "sum", "product")


def _geoqa_8k(count: int, rng: np.random.Generator) -> list[Row]:
    rows = []
    for index in range(count):
        posed = pose(draw_problem(KINDS[GEOQA_KINDS[index % len(GEOQA_KINDS)]], "train", rng), "open", rng)
        unit = posed.problem.kind.unit
        rows.append(
            {
                "image": embedded(posed.problem, f"{index}.png"),
                "problem": posed.question,
                "solution": f"<answer> {posed.answer}{unit} </answer>",
                "transcription": posed.problem.transcription,
            }
        )
    return rows


def _virl39k_features() -> Features:
    from datasets import Features, Image, List, Value

    texts = dict.fromkeys(("id", "problem", "answer", "category", "qid"), Value("string"))
    return Features({**texts, "images": List(Image()), "transcription": Value("string")})


def _geometry3k_features() -> Features:
    from datasets import Features, Image, List, Value

    texts = dict.fromkeys(("problem", "answer", "transcription"), Value("string"))
    return Features({"images": List(Image()), **texts})


def _geoqa_8k_features() -> Features:
    from datasets import Features, Image, Value

    return Features({"image": Image(), **dict.fromkeys(("problem", "solution", "transcription"), Value("string"))})


TRAINING_SETS: dict[str, SyntheticDataset] = {
    "virl39k": SyntheticDataset("virl39k", "train", _virl39k_features, _virl39k),
    "geometry3k": SyntheticDataset("geometry3k", "train", _geometry3k_features, _geometry3k),
    "geoqa_8k": SyntheticDataset("geoqa_8k", "train", _geoqa_8k_features, _geoqa_8k),
    "r1_vl": R1_VL,
    "video_r1": VIDEO_R1,
    "video_r1_cot": VIDEO_R1_COT,
}

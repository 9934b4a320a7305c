"""GeoQA test, the open-ended form of R1-V.

Chen et al., "GeoQA: A Geometric Question Answering Benchmark Towards Multimodal Numerical Reasoning", Findings of ACL
2021; English text and images from Gao et al., "G-LLaVA" (Geo170K); test file from the R1-V repository, 754 rows.

An example: triangle ABC with a line DE, "As shown in the figure, in triangle ABC, it is known that angle A = 80.0,
angle B = 60.0, DE parallel BC, then the size of angle CED is ()". Gold: `140°`.

There are no options, so nothing is right by chance. Gold answers carry degree signs and units (also `米`) and write
roots as `√{3}`. The rows have no ids, so their position in the file names them. Questions and images are published
apart: `atrl-bench fetch geoqa_test` joins them into the columns read here, and puts the images inside the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from atrl_bench.evaluation.hooks import Gold, Row, column, hooks, label, picture, prepare, repair_latex

COLUMNS = ("question", "ground_truth", "image")
KEPT = ()
process_docs = prepare
problem_id = label("row_number")  # the row's position in the test file
group = problem_id  # no two rows share a figure
question = column("question")
images = picture("image")


def gold(row: Row) -> Gold:
    """The published answer; its unit is the grader's to ignore."""
    return Gold(repair_latex(row["ground_truth"]))


doc_to_text, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)


def join(questions: Path, pictures: Path, out: Path) -> None:
    """Write R1-V's `geoqa_test_prompts.jsonl` with the images of Geo170K's archive (unpacked) as one Parquet file."""
    from datasets import Dataset, Features, Image, Value

    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    columns = {name: [row[name] for row in rows] for name in ("question", "ground_truth")}
    names = [Path(row["image_path"]).name for row in rows]
    columns["image"] = [{"bytes": (pictures / name).read_bytes(), "path": name} for name in names]
    features = Features({"question": Value("string"), "ground_truth": Value("string"), "image": Image()})
    Dataset.from_dict(columns, features=features).to_parquet(out)


if __name__ == "__main__":
    join(*map(Path, sys.argv[1:4]))

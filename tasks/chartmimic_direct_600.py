"""ChartMimic, direct and customized mimic, 600 charts each (its testmini).

Shi et al., "ChartMimic: Evaluating LMM's Cross-Modal Reasoning Capability via Chart-to-Code Generation", ICLR 2025.
600 charts for each of two questions: draw this chart again, or draw other data in its style. An example of the second:
"There is a reference image for you and I also have a set of data about CIFAR10 Spiking ResNet18 performance metrics.
Please refer to the reference image and generate Python matplotlib code ...", then the data. Gold: a program.

The program in the response is run in isolation and what it draws compared with what the gold's draws
(`grading.scorers.charts`): the number is the mean of four F1 values, the benchmark's low-level score. Its overall
score is the mean of that and a vision model's opinion (`grading.judge.charts`), and is the number where a judge is
given; the paper does not say which of the two questions, which size or which prompt it used. There is no box to put an
answer in, so the prompt is the question alone, and the words of the direct question are ours.

In a customized row the picture is the *direct* chart of that name, and the program draws another. The charts are on
the hub as archives, sizes and instructions in the benchmark's repository (`dimentions_info.jsonl`, `..._edit.jsonl`):
`atrl-bench fetch chartmimic_direct_600`, or with the files at hand, `dataset-iclr.tar.gz` unpacked into CHARTS, `python
chartmimic_direct_600.py CHARTS dimentions_info.jsonl dimentions_info_edit.jsonl FOLDER`, writes `direct_600.parquet`
and `customized_600.parquet`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atrl_bench.errors import InvalidFileError
from atrl_bench.evaluation.hooks import Gold, Row, column, hooks, picture, prepare

COLUMNS = ("id", "chart_type", "instruction", "width", "height", "figure", "code")
KEPT = ("chart_type",)
BREAKDOWN = "chart_type"
VARIANTS = ("executed", "text", "layout", "type", "colour", "low", "high")
process_docs = prepare

DIRECT = "Write a Python program that draws the chart in the image with matplotlib, as exactly as you can."
FORM = """\
Set the size of the figure with figsize=({width:g}, {height:g}), and save the figure at the end.
Give the whole program, which must run as it is, in one block that begins with ```python and ends with ```."""


problem_id = column("id")  # the chart's name, such as `bar_17`
group = column("id")  # no two rows of a task share one
images = picture("figure")


def question(row: Row) -> str:
    return f"{row['instruction'] or DIRECT}\n{FORM.format(width=row['width'], height=row['height'])}"


def gold(row: Row) -> Gold:
    return Gold(row["code"], kind="text", metric="chart")


def gold_response(row: Row) -> str:
    """The row's program as a model would have to give it."""
    return f"Here is the program.\n```python\n{row['code']}\n```"


def doc_to_text(row: Row, settings: Mapping[str, Any] | None = None) -> str:
    """The question alone: the usual frames ask for a boxed answer."""
    return question(row)


_, doc_to_visual, doc_to_target, process_results = hooks(problem_id, group, question, gold, images)


# Its files --------------------------------------------------------------------------------------------------------


def convert(charts: Path, sizes: Path, instructions: Path, out: Path) -> None:
    """Write the unpacked charts with their sizes and instructions as one Parquet file for each question."""
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageFeature

    strings = dict.fromkeys(("id", "chart_type", "instruction", "code"), Value("string"))
    numbers = dict.fromkeys(("width", "height"), Value("float64"))
    features = Features({**strings, **numbers, "figure": ImageFeature()})
    pictures = {path.stem: path for path in charts.rglob("direct_600/[!.]*.png")}
    for folder, table in (("direct_600", sizes), ("customized_600", instructions)):
        lines = map(json.loads, filter(str.strip, table.read_text(encoding="utf-8").splitlines()))
        described = {line["idx"]: line for line in lines}
        rows = []
        programs = {path.stem: path for path in charts.rglob(f"{folder}/[!.]*.py")}
        for name in sorted({*programs, *(path.stem for path in charts.rglob(f"{folder}/[!.]*.png"))}):
            if name not in programs or name not in pictures or name not in described:
                raise InvalidFileError(
                    f"The chart {name} of {folder} is incomplete.",
                    why=f"It needs {name}.py, the picture direct_600/{name}.png and a line in {table}.",
                )
            rows.append(
                {
                    "id": name,
                    "chart_type": name.rpartition("_")[0],
                    "instruction": described[name]["instruction"] if folder == "customized_600" else "",
                    "width": described[name]["width"],
                    "height": described[name]["height"],
                    "figure": {"bytes": pictures[name].read_bytes(), "path": f"{name}.png"},
                    "code": programs[name].read_bytes().decode("utf-8"),
                }
            )
        out.mkdir(parents=True, exist_ok=True)
        Dataset.from_list(rows, features=features).to_parquet(out / f"{folder}.parquet")


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:5]))

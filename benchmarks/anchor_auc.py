"""How well each reading of the paper finds the tokens that are known to be read from the image.

The mini model is shown test problems with responses that list the digits and then compute. Which tokens transcribe the
image is known, so the area under the ROC curve of any token score is measured, not judged: 1 is perfect, 0.5 is chance.
The peer in the same run is the paper's text taken literally. `atrl-bench figure anchors` draws the same study.

    python benchmarks/anchor_auc.py [--model FOLDER] [--problems 60]
"""

from __future__ import annotations

import argparse

import torch

from atrl_bench.analysis.anchors import CREDIT, known_problems, study
from atrl_bench.models import local
from atrl_bench.profiles import load_profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--problems", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = load_profile("mini").evaluation
    model = local.load(
        local.find_model(arguments.model), min_pixels=sizes.min_pixels, max_pixels=sizes.max_pixels, dtype=sizes.dtype
    )
    scores = study(model, known_problems(arguments.problems))

    print("Connectivity density, by layers and reading, with and without bias correction")
    for score in scores:
        if score.part != CREDIT:
            bias = "corrected" if score.corrected else "not corrected"
            print(f"  {score.part:<20} {score.setting:<14} {score.reading:<10} {bias:<13} {_auc(score)}")
    print("Credit, by preset and rule (last 4 layers)")
    [peer] = [score for score in scores if (score.preset, score.setting) == ("literal", "atrl")]
    for score in scores:
        if score.part == CREDIT:
            ratio = f"{score.mean / peer.mean:.2f}x the literal text's"
            print(f"  {score.preset:<8} {score.setting:<24} {_auc(score)}   {ratio}")


def _auc(score) -> str:
    return f"{score.mean:.3f} ± {score.standard_error:.3f}"


if __name__ == "__main__":
    main()

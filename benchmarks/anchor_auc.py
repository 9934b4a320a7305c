"""How well each reading of the paper finds the tokens that are known to be read from the image.

The mini model is shown test problems with responses that list the digits and then compute. Which tokens transcribe the
image is known, so the area under the ROC curve of any token score is measured, not judged: 1 is perfect, 0.5 is chance.
The peer in the same run is the paper's text taken literally.

    python benchmarks/anchor_auc.py [--model FOLDER] [--problems 200]
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from atrl_bench.credit import (
    RULES,
    CreditConfig,
    anchor_auc,
    install_row_capture,
    split_footprints,
    token_credit,
    transcribed_tokens,
)
from atrl_bench.evaluation.prompts import TEMPLATES, render
from atrl_bench.mini import BASE
from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, draw_problem, grounded_response

NUM_RANDOM = 5  # seeds of the rules that draw random numbers
RANDOM = {"random"}


def footprints_of(model, processor, problems, num_layers):
    """Return, per reading, a footprint and an anchor mask for every problem's grounded response."""
    prompts, responses = [], []
    for place, problem in enumerate(problems):
        text = render(problem.question, place % len(TEMPLATES))
        message = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
        prompts.append(processor.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
        responses.append(grounded_response(problem) + "<|im_end|>")
    capture = install_row_capture(model, num_layers)
    found = defaultdict(list)
    for prompt, response, problem in zip(prompts, responses, problems, strict=True):
        inputs = processor(text=[prompt + response], images=[[draw(problem)]], return_tensors="pt")
        ids = processor.tokenizer(response).input_ids
        with torch.no_grad(), capture.record(len(ids)) as recording:
            model(**inputs)
        anchors = transcribed_tokens([processor.tokenizer.decode([token]) for token in ids], problem.transcription)
        visual = inputs["mm_token_type_ids"] != 0
        response_mask = torch.ones(1, len(ids), dtype=torch.bool)
        for reading in ("own", "predicting"):
            rows = recording.rows(reading)
            found[reading] += [(split_footprints(rows, inputs["attention_mask"], visual, response_mask)[0], anchors)]
    capture.remove()
    return found


def mean_auc(score_of, cases):
    values = [anchor_auc(score_of(footprint, seed), anchors) for seed, (footprint, anchors) in enumerate(cases)]
    return float(np.nanmean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(BASE))
    parser.add_argument("--problems", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    processor = AutoProcessor.from_pretrained(arguments.model, padding_side="left")
    model = AutoModelForImageTextToText.from_pretrained(arguments.model).eval()
    rng = np.random.default_rng(0)
    kinds = [kind for kind in KINDS.values() if kind.layout == "row"]
    problems = [draw_problem(kinds[i % len(kinds)], "test", rng) for i in range(arguments.problems)]

    print("Connectivity density, by layers and reading, with and without bias correction")
    for num_layers in (1, 2, 4):
        cases = footprints_of(model, processor, problems, num_layers)
        for reading, of_reading in cases.items():
            aucs = []
            for rule in ("raw_attention", "without_bias_correction"):
                aucs.append(
                    mean_auc(
                        lambda footprint, seed, rule=rule: token_credit(footprint, rule, seed=seed).connectivity_T,
                        of_reading,
                    )
                )
            print(f"  last {num_layers} layers, {reading:<10}  corrected {aucs[0]:.3f}   not corrected {aucs[1]:.3f}")

    print("Credit, by rule and preset (last 4 layers)")
    peer = None
    for preset in ("literal", "default"):
        config = CreditConfig.preset(preset)
        for rule in RULES:
            if rule in ("uniform", "high_entropy"):
                continue
            repeats = range(NUM_RANDOM if rule in RANDOM else 1)
            auc = np.mean(
                [
                    mean_auc(
                        lambda f, s, r=r, rule=rule, config=config: (
                            token_credit(f, rule, config, s + 1000 * r).credit_T
                        ),
                        cases[config.reading],
                    )
                    for r in repeats
                ]
            )
            peer = auc if (preset, rule) == ("literal", "atrl") else peer
            print(
                f"  {preset:<8} {rule:<24} {auc:.3f}   {auc / peer:.2f}x the literal text's"
                if peer
                else f"  {preset:<8} {rule:<24} {auc:.3f}"
            )
    for footprint in ("without_sinks", "all"):
        for tokens in (3, 10):
            config = CreditConfig().replace(footprint=footprint, tokens_per_cluster=tokens)
            auc = mean_auc(lambda f, s, config=config: token_credit(f, "atrl", config, s).credit_T, cases["predicting"])
            print(f"  default  atrl, footprint {footprint}, {tokens} tokens a cluster: {auc:.3f}")


if __name__ == "__main__":
    main()

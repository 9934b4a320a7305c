"""How well a token score finds the tokens that are known to be read from the image: the area under the ROC curve.

A model reads generated problems with responses that list the digits of the picture and then compute. Which tokens
transcribe the image is known, so nothing is judged: 1 is perfect, 0.5 is chance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from atrl_bench.credit.config import CreditConfig
from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import RULES, token_credit
from atrl_bench.experiments.answer_credit import READINGS, read_again
from atrl_bench.mini.drawing import draw
from atrl_bench.mini.problems import KINDS, draw_problem, grounded_response
from atrl_bench.models.local import LocalModel, Prompt
from atrl_bench.models.templates import TEMPLATES, render

if TYPE_CHECKING:
    from torch import Tensor

    from atrl_bench.credit import AttentionRows

MAX_LAYERS = 8  # of a deep model: the last ones
NUM_DRAWS = 5  # of the rule that deals weights at random
LAST, SINGLE, CREDIT = "last layers averaged", "single layer", "credit"


@dataclass(frozen=True)
class AnchorScore:
    """The mean AUC of one way to score tokens, over problems.

    `corrected` is whether rows were divided by the bias, `preset` what a credit's other settings are.
    """

    part: str
    setting: str
    reading: str
    corrected: bool
    mean: float
    standard_error: float
    num_problems: int
    preset: str = ""


@dataclass(frozen=True)
class KnownProblem:
    """A prompt, the response that reads its image and works the answer out, and what there is to read."""

    prompt: Prompt
    response: str
    transcription: str


def known_problems(count: int) -> list[KnownProblem]:
    """Generated problems over test scans in a row, in every template of the evaluation."""
    rng = np.random.default_rng(0)
    kinds = [kind for kind in KINDS.values() if kind.layout == "row"]
    problems = []
    for index in range(count):
        problem = draw_problem(kinds[index % len(kinds)], "test", rng)
        text = render(problem.question, index % len(TEMPLATES))
        messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
        prompt = Prompt(str(index), messages, [draw(problem)])
        problems.append(KnownProblem(prompt, grounded_response(problem), problem.transcription))
    return problems


def study(model: LocalModel, problems: Sequence[KnownProblem]) -> list[AnchorScore]:
    """The scores of connectivity, by layers, reading and debiasing, and of credit, by rule and setting."""
    from atrl_bench.credit.anchors import transcribed_tokens

    num_layers = min(MAX_LAYERS, model.model.config.get_text_config().num_hidden_layers)
    attention_B: dict[tuple[str, int], list[AttentionRows]] = {}
    anchors: list[Tensor] = []
    for count in range(1, num_layers + 1):
        reads = list(read_again(model, [p.prompt for p in problems], [p.response for p in problems], count))
        for reading in READINGS:
            attention_B[reading, count] = [read.attention_B[reading] for read in reads]
        anchors = [
            transcribed_tokens(list(read.texts), problem.transcription)
            for read, problem in zip(reads, problems, strict=True)
        ]
    return [*_connectivity_scores(attention_B, anchors, num_layers), *_credit_scores(attention_B, anchors, num_layers)]


def _connectivity_scores(
    attention_B: dict[tuple[str, int], list[AttentionRows]], anchors: Sequence[Tensor], num_layers: int
) -> Iterator[AnchorScore]:
    for reading, count in product(READINGS, range(1, num_layers + 1)):
        means = attention_B[reading, count]
        single = means if count == 1 else layer_alone(means, attention_B[reading, count - 1], count)
        for rule in ("raw_attention", "without_bias_correction"):
            for part, setting, rows in ((LAST, f"{count}", means), (SINGLE, f"{count} from the end", single)):
                values = [token_credit(each, rule, CreditConfig(), i).connectivity_T for i, each in enumerate(rows)]
                yield AnchorScore(part, setting, reading, rule == "raw_attention", *mean_auc(anchors, values))


def layer_alone(means: Sequence[AttentionRows], shorter: Sequence[AttentionRows], count: int) -> list[AttentionRows]:
    """The rows of the layer that a mean over `count` layers has and one over one less has not."""
    from atrl_bench.credit.attention_rows import AttentionRows

    return [
        AttentionRows((count * mean.rows_TS - (count - 1) * less.rows_TS).clamp(min=0), mean.visual_S)
        for mean, less in zip(means, shorter, strict=True)
    ]


def _credit_scores(
    attention_B: dict[tuple[str, int], list[AttentionRows]], anchors: Sequence[Tensor], num_layers: int
) -> Iterator[AnchorScore]:
    # Uniform credit ranks nothing; others read what these passes do not keep.
    presets = {name: CreditConfig.preset(name) for name in ("literal", "default")}
    settings = [
        (name, rule, rule, config)
        for name, config in presets.items()
        for rule in RULES
        if rule != "uniform" and not needs_of(RULES[rule])
    ]
    literal, default = presets.values()
    settings += [
        ("literal", "atrl, predicting rows", "atrl", literal.replace(reading="predicting")),
        ("default", "atrl, own rows", "atrl", default.replace(reading="own")),
        ("default", "atrl, sinks kept", "atrl", default.replace(footprint="all")),
        ("default", "atrl, 3 tokens a cluster", "atrl", default.replace(tokens_per_cluster=3)),
    ]
    for preset, name, rule, config in settings:
        of_config = attention_B[config.reading, min(config.num_layers, num_layers)]
        draws = [
            [token_credit(f, rule, config, seed + 1000 * draw).credit_T for seed, f in enumerate(of_config)]
            for draw in range(NUM_DRAWS if rule == "random" else 1)
        ]
        corrected = rule != "without_bias_correction"
        yield AnchorScore(CREDIT, name, config.reading, corrected, *mean_auc(anchors, *draws), preset)


def mean_auc(anchors: Sequence[Tensor], *draws: Sequence[Tensor]) -> tuple[float, float, int]:
    """The mean over problems, its error and their number; of several draws, of their means."""
    from atrl_bench.credit.anchors import anchor_auc

    aucs = [
        statistics.fmean(anchor_auc(value_T, anchor_T) for value_T in values)
        for *values, anchor_T in zip(*draws, anchors, strict=True)
    ]
    aucs = [auc for auc in aucs if not math.isnan(auc)]
    error = statistics.stdev(aucs) / math.sqrt(len(aucs)) if len(aucs) > 1 else math.nan
    return statistics.fmean(aucs), error, len(aucs)

"""How much the policy looks while it trains: what a grey picture takes from the log-probability of its own responses.

Off unless the size `measures_looking` asks for it: it costs a scoring pass a rollout, two where none was made. It draws
nothing at random and weighs nothing, so that the trained weights are the same with it and without.

Shapes: B responses, T response tokens, N patches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from atrl_bench.credit.anchors import tokens_of_parts
from atrl_bench.credit.blackening import black_patch, blackened

if TYPE_CHECKING:
    from atrl_bench.training.rollout import Rollout, RolloutTools, SampledResponse

GREY = 127  # the level that evaluations show as `blank`


def note_looking(rollout: Rollout, responses: Sequence[SampledResponse], tools: RolloutTools) -> None:
    """Log the mean drop a token, in nats: of right and of wrong responses, and of tokens known to be read or reasoned.

    A response without a picture counts nowhere.

    drop_t = log pi(y_t | picture, question, y_<t) - log pi(y_t | grey, question, y_<t)
    """
    with tools.clock.phase("looking"):
        grey = black_patch(tools.processor.image_processor, GREY)
        grey_B = [
            visual | {"pixel_values": blackened(pixels, grey, torch.ones(len(pixels), dtype=torch.bool))}
            if (pixels := visual.get("pixel_values")) is not None
            else visual
            for visual in rollout.visuals_B
        ]
        logprob_BT = tools.score(rollout).logprob_BT if rollout.old_BT is None else rollout.old_BT
        drop_BT = logprob_BT - tools.score(replace(rollout, visuals_B=grey_B)).logprob_BT
    drops: dict[str, list[float]] = {}
    shows_B = ["pixel_values" in visual for visual in rollout.visuals_B]
    for drop_T, mask_T, response in compress(zip(drop_BT, rollout.mask_BT.bool(), responses, strict=True), shows_B):
        of_tokens = drop_T[mask_T].cpu()
        accuracy = float(response.group.accuracies[response.repeat])
        if not math.isnan(accuracy):
            drops.setdefault("right" if accuracy == 1 else "wrong", []).append(_mean(of_tokens))
        parts = tokens_of_parts(response.example["token_truth"], tools.token_texts(response.token_ids))
        for part, is_part_T in parts.items():
            drops.setdefault(part, []).append(_mean(of_tokens[is_part_T.bool()]))
    for name, values in drops.items():
        if known := [value for value in values if not math.isnan(value)]:
            tools.note(f"looking/{name}", fmean(known), len(known))


def _mean(values_T: Tensor) -> float:
    return float(values_T.mean()) if len(values_T) else math.nan

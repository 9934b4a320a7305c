"""`atrl-bench mismatch`: how far what samples is from the policy that is trained, and which correction that allows.

The correction of a response multiplies the ratios of all its tokens, so what is harmless over 50 tokens can leave out
every third response of 2,000. Longer responses than those that were sampled are put together from these, whole ones in
random order.

Shapes: N drawn responses, L tokens of each; B sampled responses, T tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atrl_bench.data.sets import find_set
from atrl_bench.experiments.run_dir import RunDir
from atrl_bench.printable import Record
from atrl_bench.training.order import problem_order
from atrl_bench.training.recipe import load_rollout_recipe
from atrl_bench.training.run import load_inputs

if TYPE_CHECKING:
    from atrl_bench.training.loop import Loop

Found = dict[str, float | str]
POSITIONS = (16, 64, 256, 1024)  # where parts of a response end
NUM_DRAWN = 2000
# What a correction may cost: the first that stays within both is advised, those of whole responses before the others,
# since they alone remove the bias.
MOST_LEFT_OUT, LEAST_EFFECTIVE = 0.05, 0.9
CORRECTIONS = ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate")


@dataclass(frozen=True)
class Mismatch(Record):
    """Differences of log-probabilities, in nats a token, between a sampler and the policy; and corrections of them."""

    model: str
    engine: str
    dtype: str
    data: str
    responses: int
    tokens: int
    mean_difference: float
    largest_difference: float
    by_position: list[Found]
    by_context: list[Found]  # what the prompt before a token shows
    response_length: int  # for which the corrections are said
    corrections: list[Found]
    advice: str


def mismatch(
    run_dir: RunDir, model: str, *, engine: str, recipe: str, problems: int, length: int | None, seed: int
) -> Mismatch:
    """That of a model on some of a recipe's problems; corrections for responses of `length`, or the longest allowed."""
    from atrl_bench.training.rollouts import build  # and with it TRL

    loaded = load_rollout_recipe(recipe, "mismatch", kl_coef=0.0, schedule="strict")
    sizes = run_dir.profile.training.model_copy(update={"prompts_per_rollout": problems, "num_rollouts": 1})
    profile = run_dir.profile.model_copy(update={"training": sizes}).sampled_by(engine)
    data_dir, length = run_dir.data_dir(find_set(loaded.data).folder), length or sizes.max_response_tokens
    with tempfile.TemporaryDirectory() as folder:
        inputs = load_inputs(Path(folder), loaded, profile, model, data_dir, seed)
        with build(inputs) as loop:
            loop.keeps_logprobs = True  # the local sampler's, in any precision
            log_ratios, contexts = compared(loop, problem_order(len(inputs.data.problems), problems, seed))
    every = np.concatenate(log_ratios)
    position = np.concatenate([np.arange(len(ratio_T)) for ratio_T in log_ratios])
    context = np.repeat(contexts, [len(ratio_T) for ratio_T in log_ratios])
    part = np.searchsorted(POSITIONS, position, side="right")
    names = [f"{first + 1}-{last}" for first, last in zip((0, *POSITIONS), POSITIONS, strict=False)]
    names.append(f"from {POSITIONS[-1] + 1}")
    drawn_NL = at_length(log_ratios, length)
    corrections = [corrected(drawn_NL, kind) for kind in CORRECTIONS]
    return Mismatch(
        model=model,
        engine=engine,
        dtype=sizes.dtype,
        data=loaded.data,
        responses=len(log_ratios),
        tokens=len(every),
        mean_difference=float(np.abs(every).mean()),
        largest_difference=float(np.abs(every).max()),
        by_position=[summary(name, every[part == index]) for index, name in enumerate(names) if (part == index).any()],
        by_context=[summary(name, every[context == name]) for name in dict.fromkeys(contexts)],
        response_length=length,
        corrections=corrections,
        advice=advice(corrections, length),
    )


def compared(loop: Loop, rows: Sequence[int]) -> tuple[list[Any], list[str]]:
    """log pi(y_t) - log mu(y_t) of each response, where the sampler mu told it; and what its prompt shows."""
    import torch

    from atrl_bench.training.rollout import Rollout, SampledResponse

    groups = loop.generate(rows, "mismatch")
    size = loop.group_size
    responses = [SampledResponse(group, number) for number, group in enumerate(g for g in groups for _ in range(size))]
    rollout = Rollout.of(responses, torch.zeros(len(responses), device=loop.device), 1.0, loop.pad_id)
    assert rollout.sampled_BT is not None
    apart_BT = (loop.score(rollout).logprob_BT - rollout.sampled_BT).float().cpu()
    is_token_BT = rollout.mask_BT.bool().cpu() & ~apart_BT.isnan()
    ratios = [apart_T[is_token_T].numpy() for apart_T, is_token_T in zip(apart_BT, is_token_BT, strict=True)]
    shown = {"pixel_values": "images", "pixel_values_videos": "videos"}
    found = [[name for field, name in shown.items() if field in one.group.visual] for one in responses]
    return ratios, [" and ".join(names) or "text alone" for names in found]


def summary(name: str, ratio_N: Any) -> Found:
    apart_N = np.abs(ratio_N)
    return {"of": name, "tokens": len(apart_N), "mean": float(apart_N.mean()), "largest": float(apart_N.max())}


def corrected(log_ratio_NL: Any, kind: str) -> Found:
    import torch

    from atrl_bench.training.losses import sampler_correction
    from atrl_bench.training.sampler_check import left_by_correction

    drawn_NL = torch.from_numpy(log_ratio_NL)
    mask_NL = torch.ones_like(drawn_NL)
    left_out, effective = left_by_correction(sampler_correction(drawn_NL, 0 * drawn_NL, mask_NL, kind), mask_NL)
    return {"correction": kind, "left_out": left_out, "effective_share": effective}


def at_length(log_ratios: Sequence[Any], length: int) -> Any:
    """(N, L): log-ratios of responses of this length, put together from whole ones in random order."""
    rng, known = np.random.default_rng(0), [ratio_T for ratio_T in log_ratios if len(ratio_T)]
    drawn = []
    for _ in range(NUM_DRAWN):
        parts: list[Any] = []
        missing = length
        while missing > 0:
            parts.append(known[rng.integers(len(known))])
            missing -= len(parts[-1])
        drawn.append(np.concatenate(parts)[:length])
    return np.stack(drawn)


def advice(corrections: Sequence[Found], length: int) -> str:
    """The first correction that responses of this length can afford."""
    for found in corrections:
        if float(found["left_out"]) <= MOST_LEFT_OUT and float(found["effective_share"]) >= LEAST_EFFECTIVE:
            return f"rollouts.correction: {found['correction']} is affordable at {length} tokens"
    return f"no correction is affordable at {length} tokens: sample by --rollouts local, or in float32"

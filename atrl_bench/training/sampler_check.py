"""Whether the sampler is the policy that is trained: its prompts, its ends and its log-probabilities.

A vLLM that sees other images, or has old weights, answers without an error, and the training learns from responses of
another policy. Each rollout is compared, and a run that drifts is stopped.

The local sampler is the same model in the same process: its log-probabilities stand for a pass over what it has
sampled where they differ by rounding alone. That is measured on the first rollout of a process and on every
`CHECK_EVERY`-th, in which the sampler's are used too: a resumed run, which measures once more, goes on as it would have
gone on without a break.

Shapes: B responses, T response tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from atrl_bench.engines.processes import launched
from atrl_bench.errors import AtrlBenchError
from atrl_bench.profiles import Rollouts
from atrl_bench.training.losses import sampler_correction
from atrl_bench.training.rollout import Rollout
from atrl_bench.training.rollout_engine import LOCAL

# The mean difference of a log-probability that rounding may make, by compute type. In float32 on a CPU it is 4e-7,
# and the faults that were seen make 0.2 and more. What it is in half precision was not measured.
MAX_DIFFERENCE = {"float32": 1e-3, "bfloat16": 5e-2}
# Rounding in float32 stays below 1e-5, as the tests hold.
LARGEST_DIFFERENCE = 1e-4
CHECK_EVERY = 32  # rollouts: a pass more in each, 3 % of those that are saved


class LogprobDifferences(NamedTuple):
    """How far the sampler's log-probabilities are from the trainer's, over the response tokens."""

    mean: float
    largest: float


def differences(sampled_BT: Tensor, scored_BT: Tensor, mask_BT: Tensor) -> LogprobDifferences:
    """Mean and largest absolute difference of two log-probabilities; NaN where one is none."""
    apart_N = (sampled_BT - scored_BT).abs()[mask_BT.bool()]
    return LogprobDifferences(apart_N.mean().item(), apart_N.max().item())


def left_by_correction(ratio_BT: Tensor, mask_BT: Tensor) -> tuple[float, float]:
    """The share of responses, or of tokens, that a correction leaves out, and the effective share of all of them.

    The latter is the effective sample size over their number, (sum w)^2 / (N sum w^2) (Kish, 1965): one where all count
    the same, zero where none counts. A ratio of responses is a column.
    """
    ratio_N = _each(ratio_BT, mask_BT)
    squares = ratio_N.square().sum()
    effective = (ratio_N.sum().square() / (len(ratio_N) * squares)).item() if squares > 0 else 0.0
    return (ratio_N == 0).float().mean().item(), effective


def _each(ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return ratio_BT.flatten() if ratio_BT.shape[1] == 1 else ratio_BT[mask_BT.bool()]


def num_media_tokens(token_ids: Sequence[int], media_ids: Sequence[int | None]) -> int:
    return sum(token_id in media_ids for token_id in token_ids)


def require_same_prompt(read_ids: Sequence[int], token_ids: Sequence[int], media_ids: Sequence[int | None]) -> None:
    if list(read_ids) == list(token_ids):
        return
    read, expected = num_media_tokens(read_ids, media_ids), num_media_tokens(token_ids, media_ids)
    what = f"{read} tokens of images and videos where the trainer has {expected}"
    if read == expected:
        what = f"{len(read_ids)} tokens that are not the trainer's {len(token_ids)}"
    raise AtrlBenchError(
        f"vLLM reads a prompt with {what}.",
        why="Its responses answer another question than the one that is scored.",
        next_step=f"{LOCAL}; or a vLLM that expands an image once: pip install 'atrl-bench[vllm]'",
    )


def require_proper_end(token_ids: Sequence[int], eos_ids: Sequence[int], max_tokens: int) -> None:
    """Raise unless a response stops at its first end token, or is cut at its longest."""
    ends = [position for position, token_id in enumerate(token_ids) if token_id in eos_ids]
    if ends == [len(token_ids) - 1] or (not ends and len(token_ids) == max_tokens):
        return
    where = f"has an end token at position {ends[0] + 1} of {len(token_ids)}" if ends else "has no end token"
    raise AtrlBenchError(
        f"vLLM returned a response of {len(token_ids)} tokens that {where}.",
        why=f"A response stops at its first of {', '.join(map(str, eos_ids))}, or is cut at {max_tokens} tokens.",
        next_step=f"{LOCAL}; or correct eos_token_id in the model's generation_config.json",
    )


def require_same_policy(own: LogprobDifferences, dtype: str, most: float | None, rollout: int) -> None:
    """Raise, on all processes, unless a rollout's log-probabilities differ by rounding, or by `most`, on average."""
    means, largest = zip(*launched().gather([own]), strict=True)
    mean, limit = math.fsum(means) / len(means), MAX_DIFFERENCE[dtype] if most is None else most
    if mean <= limit:
        return
    raise AtrlBenchError(
        f"vLLM does not sample from the policy that is trained: in rollout {rollout} the log-probability of a token "
        f"differs by {mean:.2g} on average, by {max(largest):.2g} at most.",
        why=f"Rounding in {dtype} is at most {limit:g} on average. Beyond that vLLM has other weights, keeps what an "
        "image looked like before an update, or computes in another precision.",
        next_step=f"{LOCAL}; or, if that is rounding on this device, raise rollouts.max_logprob_difference in a "
        "profile of your own",
    )


def correct_sampler(rollout: Rollout, settings: Rollouts, dtype: str, number: int) -> dict[str, float]:
    """Write down the correction of what vLLM rounds otherwise, if one is wanted; metrics of how far it is.

    Raises, on all processes, unless vLLM samples from the policy.
    """
    old_BT, sampled_BT, mask_BT = rollout.old_BT, rollout.sampled_BT, rollout.mask_BT
    assert old_BT is not None
    assert sampled_BT is not None
    apart = differences(sampled_BT, old_BT, mask_BT)
    require_same_policy(apart, dtype, settings.max_logprob_difference, number)
    kind = settings.correction
    ratio = sampler_correction(old_BT, sampled_BT, mask_BT, "sequence_mask" if kind == "none" else kind)
    masked, effective = left_by_correction(ratio, mask_BT) if kind != "none" else (0.0, 1.0)
    rollout.correction = ratio if kind != "none" else None
    ratio_N = _each(ratio, mask_BT)
    return {
        "sampling/masked": masked,
        "sampling/effective_share": effective,
        "sampling/sampling_logp_difference/mean": apart.mean,
        "sampling/sampling_logp_difference/max": apart.largest,
        "sampling/importance_sampling_ratio/min": ratio_N.min().item(),
        "sampling/importance_sampling_ratio/mean": ratio_N.mean().item(),
        "sampling/importance_sampling_ratio/max": ratio_N.max().item(),
    }


def agree(sampled_BT: Tensor, scored_BT: Tensor, mask_BT: Tensor) -> bool:
    """Whether the two differ by rounding; a NaN does not."""
    return differences(sampled_BT, scored_BT, mask_BT).largest <= LARGEST_DIFFERENCE

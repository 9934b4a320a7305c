"""Training on rollouts: the loop of a `RolloutRecipe`, and its rewards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from trl.rewards import get_soft_overlong_punishment

from atrl_bench.credit.blackening import black_patch
from atrl_bench.credit.rule import needs_of
from atrl_bench.credit.rules import credit_rule
from atrl_bench.grading.grade import GradingPool
from atrl_bench.models.chat_template import begun_thought
from atrl_bench.training.arguments import num_rollouts, overlong_cache, reward_weights
from atrl_bench.training.loop import Loop
from atrl_bench.training.order import problem_order
from atrl_bench.training.own_code import names
from atrl_bench.training.recipe import RolloutRecipe
from atrl_bench.training.rewards import Reward
from atrl_bench.training.rewards.combined import Rewards
from atrl_bench.training.rewards.registry import find_reward
from atrl_bench.training.rewards.steps import chain_validity, check_key_steps, key_step_match
from atrl_bench.training.rewards.temporal import LengthReward, TemporalReward
from atrl_bench.training.rewards.video_r1 import FormatReward
from atrl_bench.training.rollout_engine import require_sampler
from atrl_bench.training.stability import StabilityChecks
from atrl_bench.training.trainer import TrainerInputs
from atrl_bench.training.weights.credit import require_truth
from atrl_bench.training.weights.dependency import refuse_videos


@contextlib.contextmanager
def build(inputs: TrainerInputs[RolloutRecipe]) -> Iterator[Loop]:
    recipe, data = inputs.recipe, inputs.data
    sizes = recipe.sizes(inputs.profile)
    if recipe.vppo is not None or "blackened_logprob" in needs_of(credit_rule(recipe.credit.rule)):
        refuse_videos(recipe.name, data)
    if recipe.vppo is not None or sizes.measures_looking:
        black_patch(inputs.processor.image_processor)  # raises where its patches cannot be blackened
    require_truth(
        recipe.credit.rule, data, next_step="give --set data=code_words --model mini-perception, or another --credit"
    )
    require_sampler(recipe, inputs.profile, has_videos=data.has_videos)
    rollouts = num_rollouts(recipe, inputs.profile, len(data.problems))
    rows = problem_order(len(data.problems), rollouts * sizes.prompts_per_rollout, inputs.seed)
    with GradingPool() as pool:
        loop = Loop(inputs, rewards=Rewards(_rewards(inputs, pool), reward_weights(recipe)), rows=rows)
        if sizes.checks and loop.processes.count == 1:
            loop.watchers.append(StabilityChecks(loop, sizes.checks, rows))
        try:
            yield loop
        finally:
            loop.close()


def _rewards(inputs: TrainerInputs[RolloutRecipe], pool: GradingPool) -> list[Reward]:
    """The rewards that a recipe combines: the accuracy, then in the order of `arguments.reward_weights`."""
    recipe, sizes = inputs.recipe, inputs.recipe.sizes(inputs.profile)
    of_answers = [find_reward(name).make(pool) for name in names(recipe.rewards)]
    rewards: list[Reward] = of_answers[:1]
    if recipe.overlong_cache_fraction is not None:
        rewards.append(overlong_reward(sizes.max_response_tokens, recipe.overlong_cache_fraction))
    rewards += of_answers[1:]
    if recipe.format_reward:
        rewards.append(FormatReward(recipe.format_reward, begun_thought(inputs.processor)))
    if (temporal := recipe.temporal) is not None:
        rewards += [TemporalReward(temporal, accuracy=rewards[0]), LengthReward(temporal, sizes.rewarded_lengths)]
    if recipe.step_rewards is not None:
        if recipe.step_rewards.key_steps:
            check_key_steps(inputs.data.name, [problem.key_steps for problem in inputs.data.problems])
        rewards += [key_step_match, chain_validity]
    return rewards


def overlong_reward(max_response_tokens: int, cache_fraction: float) -> Reward:
    """DAPO's soft overlong punishment, added to the accuracy reward.

    0 up to L_max - L_cache tokens, then (L_max - L_cache - |y|) / L_cache, and -1 beyond L_max (equation 13 of DAPO).
    """
    return get_soft_overlong_punishment(max_response_tokens, overlong_cache(max_response_tokens, cache_fraction))

"""Rules of other papers, each by numbers that a reader can redo; the credit is compared as its source writes it."""

import math

import pytest
import torch

from atrl_bench.credit import AttentionRows, CreditConfig, token_credit
from atrl_bench.credit.published import (
    answer_attention,
    entropy_bonus,
    future_attention,
    perception_grounded,
    position_ramp,
    preplan_attention,
    probability_weighting,
    relative_surprisal,
    token_reweighting,
    visual_dependency,
)

AS_WRITTEN = CreditConfig(scale="as_written")


def of_tokens(**values):
    """A response whose rows say nothing: each token looks at the one image column alone."""
    num_tokens = len(next(iter(values.values())))
    rows_TS = torch.zeros(num_tokens, num_tokens + 1)
    rows_TS[:, 0] = 1.0
    visual_S = torch.arange(num_tokens + 1) == 0
    return AttentionRows(rows_TS, visual_S, **{f"{name}_T": torch.tensor(value) for name, value in values.items()})


def weights(rule, attention, config=AS_WRITTEN):
    return token_credit(attention, rule, config).credit_T.tolist()


def test_the_entropy_bonus_ends_at_one_half():
    # 1 + 0.4 H, and 0.4 * 2 = 0.8 is cut to a half of the advantage.
    assert weights(entropy_bonus, of_tokens(entropy=[0.0, 1.0, 2.0])) == pytest.approx([1.0, 1.4, 1.5])
    # Mean one: over (1 + 1.4 + 1.5) / 3 = 1.3.
    assert weights(entropy_bonus, of_tokens(entropy=[0.0, 1.0, 2.0]), CreditConfig()) == pytest.approx(
        [1 / 1.3, 1.4 / 1.3, 1.5 / 1.3]
    )


def test_an_improbable_token_is_worth_less():
    logprob = [0.0, math.log(0.5), math.log(0.1)]
    assert weights(probability_weighting, of_tokens(logprob=logprob)) == pytest.approx([1.0, 0.9, 0.82])


def test_tokens_are_kept_whose_surprisal_is_of_the_order_of_the_entropy():
    # -log p / H: 0.05 is too sure, 1 and 3 are inside, 4 is a slip; without entropy and surprise there is nothing.
    attention = of_tokens(logprob=[-0.1, -2.0, -3.0, -4.0, 0.0], entropy=[2.0, 2.0, 1.0, 1.0, 0.0])
    assert weights(relative_surprisal, attention) == [0, 1, 1, 0, 0]
    assert weights(relative_surprisal, of_tokens(logprob=[-9.0, -9.0], entropy=[1.0, 1.0])) == [1, 1]


def test_two_fifths_of_the_tokens_are_kept_by_their_dependency_on_the_image():
    # d = -1, 0, 1, 0, -2: S = 1/e, 0, e - 2, 0, 1/e^2 + 1; the two largest are the last (1.135) and the third (0.718).
    attention = of_tokens(logprob=[-1.0] * 5, blackened_logprob=[-2.0, -1.0, 0.0, -1.0, -3.0])
    assert weights(visual_dependency, attention) == [0, 0, 1, 0, 1]


def test_grounded_tokens_are_amplified_above_the_threshold_and_damped_below():
    # log(1 + S) = log(exp(d) - d): at d = 0 and -2 it is 0 and log 2.1353, the ends 0 and 1 of the scale; at d = -1
    # log 1.3679 = 0.3133, in it 0.4129, just above 0.4: 1 + 2 * 0.0129 / 0.6.
    attention = of_tokens(logprob=[-1.0] * 3, blackened_logprob=[-1.0, -2.0, -3.0])
    middle = math.log(math.exp(-1) + 1) / math.log(math.exp(-2) + 2)
    assert weights(perception_grounded, attention) == pytest.approx([0.0, 1 + 2 * (middle - 0.4) / 0.6, 3.0])
    assert weights(perception_grounded, of_tokens(logprob=[-1.0, -2.0], blackened_logprob=[-1.0, -2.0])) == [1, 1]


def test_uncertain_tokens_count_fully_and_those_that_the_image_moves_half():
    # 30 % of four tokens, rounded up, are two: by entropy the first two, by |difference| the second and the third.
    attention = of_tokens(entropy=[3.0, 2.0, 1.0, 0.0], logprob=[-1.0] * 4, blackened_logprob=[-1.0, -3.0, 0.5, -1.1])
    assert weights(token_reweighting, attention) == [1.0, 1.0, 0.5, 0.0]


def among(rows_TT, looks_at_image=0.5):
    """Tokens that look at an image column and, with the given numbers, at one another."""
    looks_T1 = torch.full((len(rows_TT), 1), looks_at_image)
    return AttentionRows(torch.cat([looks_T1, torch.tensor(rows_TT)], 1), torch.arange(len(rows_TT) + 1) == 0)


OWN = AS_WRITTEN.replace(reading="own")
BACKWARD = [[0.0, 0.0, 0.0, 0.0], [0.3, 0.0, 0.0, 0.0], [0.1, 0.4, 0.0, 0.0], [0.1, 0.2, 0.5, 0.0]]


def test_a_token_that_later_ones_look_back_at_is_an_anchor():
    # From 1 to 2 positions on: token 0 gets (0.3 + 0.1) / 2 = 0.2, token 1 (0.4 + 0.2) / 2 = 0.3, token 2 0.5.
    def near(attention, config, seed):
        return future_attention(attention, config, seed, nearest=1, farthest=2)

    assert weights(near, among(BACKWARD), OWN) == [1.0, 1.5, 1.5, 1.0]
    # With the published 10 to 50 positions nobody looks back in so short a response: the first are as good as any.
    assert weights(future_attention, among(BACKWARD), OWN) == [1.5, 1.5, 1.0, 1.0]


def test_a_row_of_the_predicting_query_stands_one_position_earlier():
    # Then token 1 is seen from the place of token 1 (row 2) and 2 (row 3): one position on only row 3's 0.2 is left;
    # token 0 gets row 2's 0.1, token 2 nothing. 40 % of four tokens are two.
    def next_one(attention, config, seed):
        return future_attention(attention, config, seed, nearest=1, farthest=1)

    assert weights(next_one, among(BACKWARD), AS_WRITTEN.replace(reading="predicting")) == [1.5, 1.5, 1.0, 1.0]


def test_a_token_after_which_attention_draws_near_is_a_plan():
    # The image column is 1, 2, 3 and 4 positions away; within a window of 2 the rows are, on average, this far away:
    # 0.5 * 1 = 0.5; 0.5 * 2 + 0.3 = 1.3; 0.5 * 2 + 0.1 * 2 + 0.4 = 1.6; 1 + 0.1 * 2 + 0.2 * 2 + 0.5 = 2.1.
    # Changes: 0.8, 0.3, 0.5 and, after the last, none.
    def windowed(attention, config, seed):
        return preplan_attention(attention, config, seed, window=2)

    assert weights(windowed, among(BACKWARD), OWN) == [1.5, 1.0, 1.5, 1.0]


def test_a_plan_is_found_by_the_tokens_own_row_whichever_row_is_read():
    # Line t is then read from the place of the token before. Within a window of 2 the lines are 0, 0.5 * 1 = 0.5,
    # 0.5 * 2 + 0.1 = 1.1 and 0.5 * 2 + 0.4 * 2 + 0.4 = 2.2 away. The own row of a token is the next line, so token 0
    # has the change 0.6, token 1 has 1.1 and the last two none.
    rows = [*BACKWARD[:3], [0.4, 0.4, 0.0, 0.0]]

    def windowed(attention, config, seed):
        return preplan_attention(attention, config, seed, window=2)

    assert weights(windowed, among(rows), AS_WRITTEN.replace(reading="predicting")) == [1.5, 1.5, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_of_any_precision_have_a_credit(dtype):
    rows_TS = torch.rand(12, 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    given, single = (token_credit(AttentionRows(of, torch.arange(20) < 8)) for of in (rows_TS, rows_TS.float()))
    assert torch.equal(given.credit_T, single.credit_T)


def test_what_the_answer_looks_at_gets_more_than_the_rest_of_the_chain():
    # The answer is the last of four tokens; it pays 0.1, 0.1 and 0.4. z has mean 0 and deviation 1.
    rows = [row[:] for row in BACKWARD]
    rows[3] = [0.1, 0.1, 0.4, 0.0]
    paid = [math.log(0.1), math.log(0.1), math.log(0.4)]
    mean = sum(paid) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in paid) / 3)
    expected = [0.5 + 0.5 / (1 + math.exp(-(value - mean) / deviation)) for value in paid]
    assert weights(answer_attention, among(rows), OWN) == pytest.approx([*expected, 1.0])
    # Where all are paid alike each gets the middle, 3/4.
    assert weights(answer_attention, among([[0.1] * 4] * 4), OWN) == pytest.approx([0.75, 0.75, 0.75, 1.0])


def test_the_ramp_rises_from_a_half_to_one_and_a_half():
    assert weights(position_ramp, of_tokens(entropy=[0.0] * 3)) == [0.5, 1.0, 1.5]

"""What the bases of the worlds say, and what each token of it is for."""

import re

import numpy as np
import pytest

from atrl_bench.credit import TokenTruth, tokens_of_part
from atrl_bench.grading.grade import grade
from atrl_bench.lab.chains import FILLERS, chain, right, said
from atrl_bench.lab.worlds import Chains, load_world
from atrl_bench.mini.code_words import CODE, NUM_CELLS, PATTERNS
from atrl_bench.mini.problems import draw_problem
from atrl_bench.results.records import Gold

CHAINS = Chains(fillers_before=(1, 2), fillers_between=(0, 1))
# By hand: a letter for each token; p perception, r reasoning, f format, "." filler.
TEXTS = ["hmm", " well", " first", " shows", " ", "7", " so", " gives", " ", "0", ".", " now", " second", " shows", " "]
TEXTS += ["2", " gives", " ", "5", ".", " The", " answer", " is", " \\", "boxed", "{", "0", "5", "}."]
LETTERS = "..fffp.ffrf.fffpffrffffffffff"


@pytest.mark.parametrize(("part", "letter"), [("perception", "p"), ("reasoning", "r"), ("format", "f")])
def test_the_part_of_each_token_of_a_chain_written_by_hand(part, letter):
    assert "".join(TEXTS) == "hmm well first shows 7 so gives 0. now second shows 2 gives 5. The answer is \\boxed{05}."
    is_part_T = tokens_of_part(TokenTruth("7 2", PATTERNS), part, TEXTS)
    assert is_part_T.tolist() == [known == letter for known in LETTERS]


def test_a_digit_that_is_misread_is_perception_too():
    texts = [" first", " shows", " ", "8", " gives", " ", "1", "."]  # of a 7
    assert tokens_of_part(TokenTruth("7", PATTERNS), "perception", texts).tolist() == [text == "8" for text in texts]


def test_every_token_of_a_chain_has_one_part_and_only_fillers_have_none():
    rng = np.random.default_rng(0)
    texts = re.findall(r"\d|\s|\w+|[^\w\s]", chain(right((7, 2, 9, 1)), CHAINS, rng))
    truth = TokenTruth("7 2 9 1", PATTERNS)
    marks = np.array([tokens_of_part(truth, part, texts).tolist() for part in PATTERNS]).sum(0)
    assert marks.max() == 1
    assert {text for text, count in zip(texts, marks, strict=True) if not count and text != " "} <= set(FILLERS)


def test_the_gold_of_a_problem_grades_its_own_chain_as_right_and_a_mistake_as_wrong():
    rng = np.random.default_rng(1)
    for name in ("perception", "reasoning"):
        world = load_world(name)
        for base in world.bases.values():
            outcomes = []
            for _ in range(40):
                problem = draw_problem(CODE, "test", rng)
                what = said(problem.readings, world, base, rng)
                verdict = grade(chain(what, world.chains, rng), Gold(problem.answer))
                assert (verdict.state == "correct") == (what == right(problem.readings))
                outcomes.append(what == right(problem.readings))
            assert 0.15 < np.mean(outcomes) < 0.65


def test_the_worlds_give_the_same_answers_and_differ_in_where_they_go_wrong():
    perception, reasoning = load_world("perception"), load_world("reasoning")
    base = perception.bases["mini-perception"]
    assert base == reasoning.bases["mini-reasoning"]
    assert (perception.chains, perception.training) == (reasoning.chains, reasoning.training)
    for seed in range(20):
        misread, misreasoned = (
            said((1, 4, 6, 7), world, base, np.random.default_rng(seed)) for world in (perception, reasoning)
        )
        assert misread.answer == misreasoned.answer
        assert misreasoned.digits == (1, 4, 6, 7)
        assert misread == right(misread.digits)


def test_chains_are_between_sixty_and_a_hundred_tokens_and_fit_a_response(code_words_tokenizer):
    from atrl_bench.data.sets import GENERATED_SETS

    rng, chains = np.random.default_rng(0), load_world("perception").chains
    lengths = [
        len(code_words_tokenizer(chain(right(draw_problem(CODE, "train", rng).readings), chains, rng)).input_ids)
        for _ in range(100)
    ]
    assert min(lengths) >= 60
    assert max(lengths) < 0.9 * GENERATED_SETS["code_words"].response_tokens
    assert NUM_CELLS * 2 / np.mean(lengths) < 0.15, "few tokens decide"

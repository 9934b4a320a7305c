import numpy as np
import pytest
import torch
from PIL import Image
from tiny_vlms import make_tiny_vlm
from transformers import DynamicCache

from atrl_bench.errors import AtrlBenchError
from atrl_bench.models.decoding import MEDIA_TOKENS, Draw, ReservedLayer, _draw, reserve, sample, uniforms
from atrl_bench.models.prompt import Sampling


@pytest.fixture(scope="module")
def batch(mini_processor):
    """Six prompts of different lengths: one to four image cells, one with two images, one with none."""
    pixels = np.random.default_rng(0)
    texts, images = [], []
    for index, cells in enumerate([(1,), (4,), (2, 1), (), (3,), (2,)]):
        words = "What is the sum of all digits in the picture? " * (1 + index % 3)
        content = [{"type": "image"} for _ in cells] + [{"type": "text", "text": words}]
        turn = [{"role": "user", "content": content}]
        texts.append(mini_processor.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
        images += [Image.fromarray(pixels.integers(0, 255, (56, 56 * n, 3), dtype=np.uint8)) for n in cells]
    return mini_processor(text=texts, images=images, padding=True, return_tensors="pt")


def draws(problems=range(6), repeats=range(8)) -> list[Draw]:
    return [Draw(row, f"problem {problem}", repeat) for row, problem in enumerate(problems) for repeat in repeats]


def test_an_answer_does_not_depend_on_the_order_of_its_batch(tiny_model, batch, mini_processor) -> None:
    sampling = Sampling(10, temperature=1.0)
    forward = sample(tiny_model, batch, draws(), [], sampling)
    shuffled = [draws()[place] for place in np.random.default_rng(1).permutation(48)]
    again = dict(zip(shuffled, sample(tiny_model, batch, shuffled, [], sampling), strict=True))
    assert [again[draw] for draw in draws()] == forward


def test_an_answer_ends_at_any_of_several_end_tokens_and_says_when_none_came(tiny_model, batch) -> None:
    whole = sample(tiny_model, batch, draws(repeats=[0]), [], Sampling(10, temperature=1.0))
    assert all(answer.truncated and len(answer.token_ids) == 10 for answer in whole)
    ends = [whole[0].token_ids[4], whole[1].token_ids[2]]
    cut = sample(tiny_model, batch, draws(repeats=[0]), ends, Sampling(10, temperature=1.0))
    for before, after in zip(whole, cut, strict=True):
        first = next((place for place, token in enumerate(before.token_ids) if token in ends), 10)
        assert after.token_ids == before.token_ids[:first]
        assert after.truncated == (first == 10)


@pytest.mark.parametrize(
    ("weights", "sampling", "draws_of_1000"),
    [
        ([2.0, 1.0, 1.0, 0.0], Sampling(1), [500, 250, 250, 0]),
        # The nucleus is the smallest set: 0.5 + 0.3 reaches 0.7, and 0.5 / 0.8 = 62.5 % of it are the first.
        ([0.2, 0.5, 0.3], Sampling(1, top_p=0.7), [0, 625, 375]),
        # Of the two likeliest each has 0.4 / 0.8; a nucleus of 0.45 of these two is the first alone.
        ([0.2, 0.4, 0.4], Sampling(1, top_k=2), [0, 500, 500]),
        ([0.2, 0.4, 0.4], Sampling(1, top_k=2, top_p=0.45), [0, 1000, 0]),
        # (0.6 / 0.4) ** (1 / 0.5) = 2.25, so 2.25 / 3.25 = 69.2 %.
        ([0.6, 0.4], Sampling(1, temperature=0.5), [692, 308]),
    ],
)
def test_tokens_are_drawn_from_an_even_grid_as_often_as_they_should(weights, sampling, draws_of_1000) -> None:
    logits_RV, grid = torch.tensor([weights]).log(), (np.arange(1000) + 0.5) / 1000
    tokens = _draw(logits_RV, np.zeros(1000, dtype=int), grid, sampling)
    assert np.bincount(tokens, minlength=len(weights)).tolist() == draws_of_1000


def test_random_numbers_belong_to_seed_problem_repeat_and_step() -> None:
    numbers = uniforms(0, "a", 0, 5)
    assert numbers.tolist() == uniforms(0, "a", 0, 5).tolist() == uniforms(0, "a", 0, 9)[:5].tolist()
    others = [uniforms(1, "a", 0, 5), uniforms(0, "b", 0, 5), uniforms(0, "a", 1, 5)]
    assert all(not np.array_equal(numbers, other) for other in others)
    assert ((numbers >= 0) & (numbers < 1)).all()


def test_a_model_that_has_diverged_is_an_error_and_not_a_random_answer(tiny_model, batch) -> None:
    weights = tiny_model.model.language_model.norm.weight
    kept = weights.detach().clone()
    with torch.no_grad():
        weights.fill_(float("nan"))
    try:
        with pytest.raises(AtrlBenchError, match="not finite"):
            sample(tiny_model, batch, draws(), [], Sampling(3))
    finally:
        with torch.no_grad():
            weights.copy_(kept)


# Other families: sliding windows, several position axes, layers of linear attention with states in place of keys.


FAMILIES = ["qwen2_5_vl", "qwen3_vl", "qwen3_5", "llava", "gemma3"]


def tiny_prompts(family):
    """A random model of a family and three left-padded prompts, of two images, one image and none."""
    tiny = make_tiny_vlm(family)
    of_tokens = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")
    prompts = {
        name: value[:, : -tiny.num_response_tokens] if name in of_tokens else value
        for name, value in tiny.inputs.items()
    }
    return tiny.model, prompts


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_answers_from_one_prefill_as_transformers_generates(family) -> None:
    model, prompts = tiny_prompts(family)
    media = [token for name in MEDIA_TOKENS if (token := getattr(model.config, name, None)) is not None]
    expected = model.generate(
        **prompts, do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0, suppress_tokens=media
    )
    answers = sample(model, prompts, draws(range(3), range(2)), [], Sampling(12, temperature=0))
    assert [list(answer.token_ids) for answer in answers[::2]] == expected[:, prompts["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_eight_answers_of_every_family_from_one_prefill_are_eight_separate_runs(family) -> None:
    model, prompts = tiny_prompts(family)
    sampling = Sampling(10, temperature=1.0, run_seed=3)
    together = sample(model, prompts, draws(range(3)), [5, 6], sampling)
    assert len(set(together)) > 8
    for repeat in range(8):
        assert sample(model, prompts, draws(range(3), [repeat]), [5, 6], sampling) == together[repeat::8]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_answer_has_a_token_of_an_image_or_a_video_however_likely_it_is(family, temperature) -> None:
    model, prompts = tiny_prompts(family)
    media = [token for name in MEDIA_TOKENS if (token := getattr(model.config, name, None)) is not None]

    def prefer_media(_module, _arguments, output):
        output.logits[..., media] = 1e4

    handle = model.register_forward_hook(prefer_media)
    assert int(model(**prompts).logits[0, -1].argmax()) in media
    answers = sample(model, prompts, draws(range(3)), [], Sampling(6, temperature))
    handle.remove()
    assert not {token for answer in answers for token in answer.token_ids} & set(media)


def test_a_token_is_added_without_moving_those_before_it():
    cache, states = DynamicCache(), torch.randn(3, 2, 1, 4)
    cache.update(states, states, 0)
    reserve(cache, 1)
    before = cache.layers[0].keys.data_ptr()
    keys, _ = cache.update(states + 1, states, 0)
    assert isinstance(cache.layers[0], ReservedLayer)
    assert keys.data_ptr() == before
    assert torch.equal(keys, torch.cat([states, states + 1], dim=2))

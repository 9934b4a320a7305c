"""A batch whose prompts are read once against the same batch read row by row: log-probabilities, gradient, rows."""

import pytest
import torch
from tiny_vlms import IMAGE, PAD, VIDEO, VISION_END, VISION_START, make_tiny_vlm, token_types
from trl.trainer.utils import add_fused_lm_head

from atrl_bench.credit.capture import install_row_capture
from atrl_bench.training.rollout import joined_visuals
from atrl_bench.training.shared_prompts import (
    SharedPrompts,
    by_length,
    recompute,
    why_not,
)

NUM_TOKENS = 6
ONE_IMAGE = [VISION_START, *[IMAGE] * 4, VISION_END]
ONE_VIDEO = [VISION_START, *[VIDEO] * 8, VISION_END]
TWO_FRAMES = [*[VISION_START, *[VIDEO] * 4, VISION_END, 12] * 2]  # a video as Qwen3-VL writes it
WITHOUT_IMAGE, TWO_IMAGES, VIDEO_AND_IMAGE = (
    [18, 19, 10],
    [15, *ONE_IMAGE, 16, *ONE_IMAGE, 17],
    [*ONE_VIDEO, 19, *ONE_IMAGE, 15],
)


def visual(patch, seed, images=0, videos=0):
    """Return random pixels of images of 2 x 2 tokens, and of videos of twice that, in patches of this size."""
    generator, made = torch.Generator().manual_seed(seed), {}
    if images:
        made["pixel_values"] = torch.randn(images * 16, 3 * 2 * patch**2, generator=generator)
        made["image_grid_thw"] = torch.tensor([[1, 4, 4]] * images)
    if videos:
        made["pixel_values_videos"] = torch.randn(videos * 32, 3 * 2 * patch**2, generator=generator)
        made["video_grid_thw"] = torch.tensor([[2, 4, 4]] * videos)
        made["second_per_grid_ts"] = torch.tensor([2.0] * videos)
    return made


PROBLEMS = {  # a prompt, and the seed and numbers of its images and videos
    "images": [([15, *ONE_IMAGE, 17], (0, 1)), ([15, *ONE_IMAGE, 17, 18, 19], (1, 1))],
    "several images, or none": [(TWO_IMAGES, (0, 2)), (WITHOUT_IMAGE, (0,)), ([15, *ONE_IMAGE, 17], (1, 1))],
    "videos": [(VIDEO_AND_IMAGE, (0, 1, 1)), ([*ONE_VIDEO, 17], (1, 0, 1)), (TWO_IMAGES, (2, 2))],
    "text": [(WITHOUT_IMAGE, (0,)), ([11, 12, 13, 14, 15], (0,))],
    "two images behind the same words": [([15, *ONE_IMAGE, 17], (0, 1)), ([15, *ONE_IMAGE, 17], (1, 1))],
}

BY_FRAME = [([*TWO_FRAMES, 19, *ONE_IMAGE, 15], (0, 1, 1)), ([*TWO_FRAMES, 17], (1, 0, 1))]


def batch_of(model, problems, order):
    """Return a response of its own length to each problem of `order`, padded on both sides as TRL pads."""
    generator = torch.Generator().manual_seed(7)
    width = max(len(prompt) for prompt, _ in problems)
    ids, mask = [], []
    for place, problem in enumerate(order):
        prompt, length = problems[problem][0], 1 + place % NUM_TOKENS
        response = torch.randint(20, 50, (length,), generator=generator).tolist()
        left, right = width - len(prompt), NUM_TOKENS - length
        ids.append([PAD] * left + prompt + response + [PAD] * right)
        mask.append([0] * left + [1] * (len(prompt) + length) + [0] * right)
    input_ids = torch.tensor(ids)
    patch = model.config.vision_config.patch_size
    visuals = joined_visuals([visual(patch, *problems[problem][1]) for problem in order], torch.device("cpu"))
    kinds = {"mm_token_type_ids": token_types(input_ids, IMAGE, VIDEO)} if visuals else {}
    return {"input_ids": input_ids, "attention_mask": torch.tensor(mask), **kinds, **visuals}


def scored(model, inputs):
    """Return log-probabilities and entropies of the response tokens as TRL asks for them."""
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    labels[:, :-NUM_TOKENS] = -100
    output = model(**inputs, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -NUM_TOKENS:], output.entropy[:, -NUM_TOKENS:]


def gradients(model, logprobs):
    weights = torch.linspace(0.5, 1.5, logprobs.numel()).view_as(logprobs)
    model.zero_grad()
    (logprobs * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture(params=["qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"])
def model(request):
    made = make_tiny_vlm(request.param).model
    add_fused_lm_head(made, outputs=("log_probs", "entropy"))
    return made


@pytest.fixture
def qwen():
    made = make_tiny_vlm("qwen2_5_vl").model
    add_fused_lm_head(made, outputs=("log_probs", "entropy"))
    return made


def require_equal(model, base, inputs):
    plain, shared = scored(model, inputs), scored(SharedPrompts(model, base, NUM_TOKENS), inputs)
    for expected, actual in zip(plain, shared, strict=True):
        assert expected.abs().max() > 1, "this test would see nothing"
        assert torch.allclose(actual, expected, atol=1e-5)
    expected, actual = gradients(model, plain[0]), gradients(model, shared[0])
    assert expected.keys() == actual.keys()
    for name, gradient in expected.items():
        assert (actual[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name


@pytest.mark.parametrize("problems", PROBLEMS)
def test_log_probabilities_and_every_gradient_are_those_of_the_batch_read_row_by_row(model, problems):
    of_frames = problems == "videos" and model.config.model_type.startswith("qwen3")
    problems = BY_FRAME if of_frames else PROBLEMS[problems]
    order = [0, 1, 0, len(problems) - 1, 1, 0, len(problems) - 1]
    require_equal(model, model, batch_of(model, problems, order))


def test_adapters_get_the_same_gradient(qwen):
    import peft

    adapted = peft.get_peft_model(qwen, peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    require_equal(adapted, qwen, batch_of(qwen, PROBLEMS["several images, or none"], [0, 1, 0, 2, 2]))


def test_layers_that_are_computed_again_in_the_backward_pass_find_the_prompts_of_the_first_time(model):
    inputs = batch_of(model, PROBLEMS["several images, or none"], [0, 1, 0, 2, 2])
    expected = gradients(model, scored(model, inputs)[0])
    model.train()
    recompute(model)
    for called in (model, SharedPrompts(model, model, NUM_TOKENS)):
        computed = []
        layer = model.get_decoder().layers[0].mlp
        handle = layer.register_forward_pre_hook(lambda *_, computed=computed: computed.append(1))
        actual = gradients(model, scored(called, inputs)[0])
        handle.remove()
        assert len(computed) == 2, "nothing was computed again"
        assert actual.keys() == expected.keys()
        for name, gradient in expected.items():
            assert (actual[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name
    assert model.config.get_text_config()._attn_implementation == "sdpa"


def test_the_attention_rows_are_those_of_the_padded_batch(qwen):
    inputs = batch_of(qwen, PROBLEMS["several images, or none"], [0, 1, 0, 2, 1, 2])
    capture = install_row_capture(qwen, num_layers=3)
    rows = []
    for model in (qwen, SharedPrompts(qwen, qwen, NUM_TOKENS)):
        with capture.record(NUM_TOKENS) as recording:
            scored(model, inputs)
        rows.append([recording.rows(reading) for reading in ("own", "predicting")])
    is_token_BT, valid_BS = inputs["attention_mask"][:, -NUM_TOKENS:].bool(), inputs["attention_mask"].bool()
    for plain_BTS, shared_BTS in zip(*rows, strict=True):
        assert shared_BTS.shape == plain_BTS.shape
        looked_at_image = plain_BTS[0][:, (inputs["input_ids"][0] == IMAGE)].sum(1)
        assert (looked_at_image > 0.05).all(), "this test would see nothing"
        assert torch.allclose(shared_BTS[is_token_BT], plain_BTS[is_token_BT], atol=1e-6)
        assert not shared_BTS[is_token_BT][~valid_BS[:, None].expand_as(shared_BTS)[is_token_BT]].any()


def seen_by(module):
    """Return a list that gets, at each call of the vision tower, the number of its images."""
    counts = []
    module.register_forward_pre_hook(
        lambda _module, _arguments, options: counts.append(len(options["grid_thw"])), with_kwargs=True
    )
    return counts


def test_each_image_is_encoded_once_and_each_token_of_a_prompt_read_once(qwen):
    inputs = batch_of(qwen, PROBLEMS["images"], [0, 1, 0, 1, 0, 1])
    images, tokens = seen_by(qwen.model.visual), []
    qwen.model.language_model.register_forward_hook(lambda *_: tokens.append(_[-1].last_hidden_state.shape[:2]))
    scored(SharedPrompts(qwen, qwen, NUM_TOKENS), inputs)
    assert images == [2]
    # Prompts of 8 and 10 tokens but for their last, then responses of 1 to 6 tokens, each behind that last one.
    assert tokens == [(1, 7 + 9 + 2 + 3 + 4 + 5 + 6 + 7)]


def test_a_batch_that_shares_nothing_goes_through_as_it_is(qwen):
    inputs = batch_of(qwen, PROBLEMS["two images behind the same words"], [0, 1])
    shared, plain = scored(SharedPrompts(qwen, qwen, NUM_TOKENS), inputs), scored(qwen, inputs)
    assert torch.equal(shared[0], plain[0])


def test_an_image_token_in_a_response_is_left_to_the_plain_pass(qwen):
    inputs = batch_of(qwen, PROBLEMS["text"], [0, 0])
    inputs["input_ids"][0, -NUM_TOKENS] = IMAGE
    assert SharedPrompts(qwen, qwen, NUM_TOKENS)._layout(inputs, [{}, {}]) is None


@pytest.mark.parametrize(
    ("family", "attention", "reason"),
    [
        ("qwen2_5_vl", "sdpa", None),
        ("qwen2_5_vl", "eager", "the attention is eager"),
        ("qwen3_5", "sdpa", "not written for qwen3_5"),
    ],
)
def test_where_prompts_cannot_be_shared_there_is_a_reason(family, attention, reason):
    assert why_not(make_tiny_vlm(family, attention).model) == reason


def test_short_responses_are_not_padded_to_the_longest():
    # 3 rows of 2 and one of 9 are 15 positions; all four together, or cut anywhere else, are more.
    assert [rows.tolist() for rows in by_length([2, 9, 2, 2])] == [[0, 2, 3], [1]]
    assert [rows.tolist() for rows in by_length([4, 4])] == [[0, 1]]

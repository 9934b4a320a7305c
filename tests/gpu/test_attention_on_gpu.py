"""On a GPU: attention rows and credit against slower ways to the same numbers, and the windows of the vision tower.

The distance of two rows is half the sum of their absolute differences: the share of the attention that lies elsewhere.
A way that reads the wrong row or forgets the padding would be off by about the distance between the rows of
neighbouring tokens, so that a limit stays below a part of that.

Shapes: B sequences, H query heads, G key heads, T response tokens, S positions, D head dimension.
"""

from contextlib import contextmanager

import needs
import pytest
import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from atrl_bench.analysis.gpu_check import Bench
from atrl_bench.analysis.random_model import SHAPES
from atrl_bench.credit import AttentionRows, CreditConfig, install_row_capture, token_credit, visual_columns
from atrl_bench.models.attention import join_vision_windows, kernel

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.NO_GPU)]
FLASH = "flash_attention_2"
# Of two ways to the same rows. In bfloat16 the layers below round differently under each implementation: by 0.0016
# between eager and sdpa on a CPU, with 36 layers of width 2048.
ROUNDING = 2e-2
NUM_SEQUENCES = 4


@pytest.fixture(scope="module")
def bench():
    bench = Bench(SHAPES["3b"], "cuda")
    yield bench
    bench.model.cpu()


@contextmanager
def attention(model, name):
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")


def valid_rows(rows_BTS, inputs):
    """The rows of each response without padding, in double precision."""
    valid_BS = inputs["attention_mask"].bool().cpu()
    valid_BT = valid_BS[:, -rows_BTS.shape[1] :]
    return [rows_BTS[b].cpu()[valid_BT[b]][:, valid_BS[b]].double() for b in range(len(rows_BTS))]


def recorded(bench, name, inputs):
    num_tokens = bench.shape.response_tokens
    with attention(bench.model, name), torch.no_grad():
        capture = install_row_capture(bench.model, CreditConfig().num_layers)
        with capture.record(num_tokens) as recording:
            bench.model(**inputs, use_cache=False, logits_to_keep=1)
        capture.remove()
    return valid_rows(recording.rows("predicting"), inputs)


def returned_by_eager(bench, inputs):
    num_tokens = bench.shape.response_tokens
    with attention(bench.model, "eager"), torch.no_grad():
        output = bench.model(**inputs, output_attentions=True, use_cache=False, logits_to_keep=1)
    layers = [layer.float().mean(1)[:, -num_tokens - 1 : -1] for layer in output.attentions]
    return valid_rows(torch.stack(layers[-CreditConfig().num_layers :]).mean(0), inputs)


def distance(rows, others):
    return (rows - others).abs().sum(-1) / 2


@pytest.mark.parametrize("name", ["eager", "sdpa", pytest.param(FLASH, marks=needs.flash_attention)])
def test_recorded_rows_are_those_that_eager_attention_returns(bench, name):
    inputs = bench.sequences(NUM_SEQUENCES)
    rows, oracle = recorded(bench, name, inputs), returned_by_eager(bench, inputs)
    neighbours = min(float(distance(each[1:], each[:-1]).median()) for each in oracle)
    assert max(float(distance(a, b).max()) for a, b in zip(rows, oracle, strict=True)) < min(ROUNDING, 0.4 * neighbours)


def test_rows_and_credit_are_those_of_double_precision_on_the_cpu(bench):
    inputs = bench.sequences(NUM_SEQUENCES)
    with kept_queries(bench.model) as kept:
        rows = recorded(bench, "keeping", inputs)
    last = [kept[layer] for layer in sorted(kept)[-CreditConfig().num_layers :]]
    double_BTS = torch.stack([rows_in_double(*each, inputs, bench.shape.response_tokens) for each in last]).mean(0)
    double = valid_rows(double_BTS, inputs)
    assert max(float(distance(a, b).max()) for a, b in zip(rows, double, strict=True)) < 1e-5
    visual_BS = visual_columns(bench.model.config, inputs["input_ids"]).cpu()
    valid_BS, alike = inputs["attention_mask"].bool().cpu(), 0
    for b, pair in enumerate(zip(rows, double, strict=True)):
        ours, theirs = (token_credit(AttentionRows(each.float(), visual_BS[b][valid_BS[b]])) for each in pair)
        # METIS divides a graph whose weights differ by one rounding in another way: as good, and another credit.
        if torch.equal(ours.cluster_T, theirs.cluster_T):
            alike += 1
            spread = float(theirs.credit_T.std())
            assert float((ours.credit_T - theirs.credit_T).abs().max()) < min(1e-3, spread / 10)
    assert alike


@contextmanager
def kept_queries(model):
    """The queries and keys of each layer of the passes inside the block, under the implementation `keeping`."""
    kept, function = {}, ALL_ATTENTION_FUNCTIONS["sdpa"]

    def keep(module, query, key, *arguments, **options):
        if hasattr(module, "layer_idx"):
            kept[module.layer_idx] = (query.detach(), key.detach())
        return function(module, query, key, *arguments, **options)

    AttentionInterface.register("keeping", keep)
    AttentionMaskInterface.register("keeping", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    yield kept


def rows_in_double(query_BHSD, key_BGSD, inputs, num_tokens):
    """rows_BTS of the queries that predict the last tokens, the mean over heads, as a textbook writes them."""
    query_BHSD, key_BGSD = query_BHSD.cpu().double(), key_BGSD.cpu().double()
    num_heads, num_positions, head_size = query_BHSD.shape[1:]
    key_BHSD = key_BGSD.repeat_interleave(num_heads // key_BGSD.shape[1], dim=1)
    rows = torch.arange(num_positions - num_tokens - 1, num_positions - 1)
    scores_BHTS = query_BHSD[:, :, rows] @ key_BHSD.transpose(-1, -2) / head_size**0.5
    valid_BS = inputs["attention_mask"].bool().cpu()
    allowed_BTS = (torch.arange(num_positions) <= rows[:, None]) & valid_BS[:, None]
    # A row that may look nowhere belongs to padding; it is cut off later and must be no NaN.
    return scores_BHTS.masked_fill(~allowed_BTS[:, None], -1e300).softmax(-1).mean(1)


@pytest.mark.skipif(kernel() is None, reason=needs.NO_WINDOW_KERNEL)
def test_windows_of_all_images_at_once_differ_from_one_by_one_by_rounding(bench):
    join_vision_windows(bench.model)
    inputs = bench.prompts(NUM_SEQUENCES)

    def embeddings():
        with torch.no_grad():
            found = bench.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"]).pooler_output
        return torch.cat(tuple(found)).float()

    joined = embeddings()
    with attention(bench.model, "eager"):
        eager = embeddings()
    single = embeddings()  # by sdpa, one window after the other
    rounding = float((eager - single).norm() / single.norm())
    assert float((joined - single).norm() / single.norm()) < 2 * rounding
